//! `stat`, `list`, `remove`, `mkdir`, `rename`, `read`, `write`.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use doppel_abi_machine::builtin::FileRecord;

use super::{About, Command, Failure, Outcome, chunk};
use crate::Errno;
use crate::objects::ipc::inotify::{self, InotifyMask};
use crate::objects::lookup::path::Path;
use crate::objects::lookup::{names, open};
use crate::objects::vfs::flags::{OpenFlags, RenameFlags};
use crate::objects::vfs::inode::SetAttr;
use crate::objects::vfs::{FileType, Input, Output, Stat, at};

fn letter(kind: FileType) -> char {
    match kind {
        FileType::Regular => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

fn record(c: &mut Command<'_>, path: &Path, name: &[u8]) -> Outcome {
    let Stat { mode, uid, gid, size, mtime, nlink, .. } = path.inode().stat();
    let kind = path.inode().kind();
    let record = FileRecord {
        kind: letter(kind),
        size,
        mode: mode & 0o7777,
        uid,
        gid,
        modified: mtime.into(),
        links: nlink.into(),
    };
    let head = format!("{record}");
    let target = if kind == FileType::Symlink { path.inode().readlink().about(name)? } else { Vec::new() };
    for part in [head.as_bytes(), name, b"\0", &target, b"\0"] {
        c.put(part).about(b"standard output")?;
    }
    Ok(())
}

pub fn stat(c: &mut Command<'_>, name: &[u8], follow: bool) -> Outcome {
    let path = c.find(name, follow).about(name)?;
    record(c, &path, name)
}

pub fn list(c: &mut Command<'_>, name: &[u8], depth: u64) -> Outcome {
    let top = c.find(name, true).about(name)?;
    // What is still to be listed: the directory, its name, how deep below it.
    let mut todo = vec![(top, Vec::new(), depth)];
    while let Some((dir, prefix, left)) = todo.pop() {
        let mut all = match c.names(&dir) {
            // It has gone meanwhile.
            Err(Errno::ENOENT) if !prefix.is_empty() => continue,
            r => r.about(if prefix.is_empty() { name } else { &prefix })?,
        };
        all.sort_unstable();
        for one in all {
            let child = match c.child(&dir, &one) {
                Ok(p) => p,
                Err(Errno::ENOENT) => continue,
                Err(errno) => return Err(Failure { what: one, errno }),
            };
            let full = if prefix.is_empty() { one } else { [&prefix[..], b"/", &one].concat() };
            record(c, &child, &full)?;
            if left > 1 && child.inode().kind() == FileType::Directory {
                todo.push((child, full, left - 1));
            }
        }
    }
    Ok(())
}

pub fn remove(c: &mut Command<'_>, name: &[u8], recursive: bool) -> Outcome {
    let (dir, last, _) = c.caller.parent(at::FDCWD, name).about(name)?;
    if matches!(last.as_slice(), b"" | b"." | b"..") {
        return Err(Failure { what: name.to_vec(), errno: Errno::EINVAL });
    }
    // Of each directory on the way down: where it is, its name there, and the names in it that are still there.
    let mut levels: Vec<(Path, Vec<u8>, Vec<Vec<u8>>)> = Vec::new();
    let (mut dir, mut one) = (dir, last);
    loop {
        c.breathe().about(name)?;
        let child = c.child(&dir, &one).about(&one)?;
        if child.inode().kind() == FileType::Directory && recursive {
            let inside = c.names(&child).about(&one)?;
            levels.push((dir, one, inside));
            dir = child;
        } else {
            let is_dir = child.inode().kind() == FileType::Directory;
            names::remove(&c.caller, &dir, &one, is_dir).about(&one)?;
        }
        // The next name: in this directory, or the directory itself once it is empty.
        loop {
            let Some((above, own, inside)) = levels.last_mut() else { return Ok(()) };
            if let Some(next) = inside.pop() {
                one = next;
                break;
            }
            let (above, own) = (above.clone(), core::mem::take(own));
            levels.pop();
            names::remove(&c.caller, &above, &own, true).about(&own)?;
            dir = above;
        }
    }
}

pub fn mkdir(c: &Command<'_>, name: &[u8], mode: u32) -> Outcome {
    names::make_dirs(&c.caller, name, mode).map(drop).about(name)
}

pub fn rename(c: &Command<'_>, from: &[u8], to: &[u8]) -> Outcome {
    let (old_dir, old, a) = c.caller.parent(at::FDCWD, from).about(from)?;
    let (new_dir, new, b) = c.caller.parent(at::FDCWD, to).about(to)?;
    names::rename(&c.caller, (&old_dir, &old), (&new_dir, &new), RenameFlags::empty(), a || b).about(from)
}

pub fn read(c: &mut Command<'_>, name: &[u8], offset: u64, length: Option<u64>) -> Outcome {
    let (mut at, mut left) = (offset, length.unwrap_or(u64::MAX));
    let path = c.find(name, true).about(name)?;
    if path.inode().kind() == FileType::Directory {
        return Err(Failure { what: name.to_vec(), errno: Errno::EISDIR });
    }
    let file = c.open(&path, OpenFlags::RDONLY).about(name)?;
    let mut buf = chunk();
    while left > 0 {
        let most = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let n =
            c.patiently(|| file.ops().read(&file, &mut Output::kernel(&mut buf[..most]), at)).about(name)?;
        if n == 0 {
            break;
        }
        c.put(&buf[..n]).about(b"standard output")?;
        at += n as u64;
        left -= n as u64;
    }
    Ok(())
}

pub fn write(c: &mut Command<'_>, name: &[u8], mode: u32) -> Outcome {
    if let Some(slash) = name.iter().rposition(|&b| b == b'/').filter(|&n| n > 0) {
        names::make_dirs(&c.caller, &name[..slash], 0o755).about(&name[..slash])?;
    }
    let base = c.caller.base(at::FDCWD, name).about(name)?;
    let flags = OpenFlags::WRONLY | OpenFlags::CREAT | OpenFlags::TRUNC;
    let file = open::open(&c.caller, &c.caller.walker, &base, name, flags, mode).about(name)?;
    let mut buf = chunk();
    let mut at = 0;
    loop {
        let n = c.get(&mut buf).about(b"standard input")?;
        if n == 0 {
            break;
        }
        let mut done = 0;
        while done < n {
            let part = &buf[done..n];
            let k = c.patiently(|| file.ops().write(&file, &mut Input::kernel(part), at)).about(name)?;
            done += k;
            at += k as u64;
        }
        inotify::file_event(&file, InotifyMask::MODIFY);
    }
    // The umask says nothing here.
    if let Some(inode) = &file.inode
        && inode.kind() == FileType::Regular
        && crate::objects::lookup::perm::owner(&c.caller.cred, &**inode).is_ok()
    {
        inode.set_attr(&SetAttr { mode: Some(mode), ..SetAttr::default() }).about(name)?;
    }
    inotify::file_event(&file, InotifyMask::CLOSE_WRITE);
    Ok(())
}
