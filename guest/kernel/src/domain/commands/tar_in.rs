//! `tar-in PATH`: unpacks a tar archive from standard input below a directory.
//!
//! Names are taken apart here: none leaves PATH, and no symbolic link below PATH is followed, neither one that was there
//! nor one from the archive. What stands in the way of an entry is replaced, directories excepted.

use alloc::vec::Vec;

use doppel_tar::{self as tar, BLOCK, Bad, Entry, Kind, Next};

use super::{About, Command, Failure, Outcome, chunk};
use crate::objects::lookup::names;
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm;
use crate::objects::vfs::flags::{OpenFlags, SetXattr};
use crate::objects::vfs::inode::SetAttr;
use crate::objects::vfs::{FileType, Input};
use crate::{Errno, Result};

pub fn run(c: &mut Command<'_>, name: &[u8]) -> Outcome {
    let top = c.find(name, true).about(name)?;
    if top.inode().kind() != FileType::Directory {
        return Err(Failure { what: name.to_vec(), errno: Errno::ENOTDIR });
    }
    let mut reader = tar::Reader::default();
    // Directories get their attributes last: they may not be writable then, and their times change until then.
    let mut dirs = Vec::new();
    loop {
        let mut block = [0; BLOCK];
        match c.get_all(&mut block).about(b"standard input")? {
            // Some archives have no end mark.
            0 => break,
            BLOCK => {}
            _ => return Err(broken(Bad::Checksum)),
        }
        match reader.block(&block).map_err(broken)? {
            Next::Header => {}
            Next::End => break,
            Next::Extension(size) => {
                let mut data = tar::extension_buffer(size);
                take(c, &mut data)?;
                skip(c, tar::padding(size) as u64)?;
                reader.extension(&data).map_err(broken)?;
            }
            Next::Entry(e) => unpack(c, &top, &e, &mut dirs)?,
        }
        c.breathe().about(b"standard input")?;
    }
    for (dir, e) in dirs.iter().rev() {
        dress(c, dir, e).about(&e.path)?;
    }
    // The writer may have padded it further.
    let mut rest = chunk();
    while c.get(&mut rest).about(b"standard input")? > 0 {}
    Ok(())
}

fn broken(bad: Bad) -> Failure {
    Failure { what: alloc::format!("{bad}").into_bytes(), errno: Errno::EINVAL }
}

/// Takes exactly so many bytes.
fn take(c: &Command<'_>, buf: &mut [u8]) -> Outcome {
    if c.get_all(buf).about(b"standard input")? == buf.len() {
        return Ok(());
    }
    Err(Failure { what: b"the archive ends in the middle".to_vec(), errno: Errno::EINVAL })
}

fn skip(c: &Command<'_>, mut n: u64) -> Outcome {
    let mut buf = [0; BLOCK];
    while n > 0 {
        let k = n.min(BLOCK as u64);
        take(c, &mut buf[..k as usize])?;
        n -= k;
    }
    Ok(())
}

/// Goes down from `top`; makes what is missing if `make`. Links are not followed.
fn descend(c: &Command<'_>, top: &Path, parts: &[&[u8]], make: bool) -> Result<Path> {
    let mut dir = top.clone();
    for part in parts {
        dir = match c.child(&dir, part) {
            Ok(p) => p,
            Err(Errno::ENOENT) if make => {
                names::create(&c.caller, &dir, part, FileType::Directory as u32 | 0o755, 0)?
            }
            Err(e) => return Err(e),
        };
        match dir.inode().kind() {
            FileType::Directory => {}
            FileType::Symlink => return Err(Errno::ELOOP),
            _ => return Err(Errno::ENOTDIR),
        }
    }
    Ok(dir)
}

fn unpack(c: &mut Command<'_>, top: &Path, e: &Entry, dirs: &mut Vec<(Path, Entry)>) -> Outcome {
    let parts = tar::components(&e.path).map_err(|bad| Failure { what: e.path.clone(), ..broken(bad) })?;
    let Some((last, above)) = parts.split_last() else {
        // The directory itself: its attributes are not the archive's to say.
        return Ok(());
    };
    let dir = descend(c, top, above, true).about(&e.path)?;
    if e.kind == Kind::Directory {
        let made = descend(c, &dir, &[last], true).about(&e.path)?;
        dirs.push((made, Entry { xattrs: e.xattrs.clone(), ..e.clone() }));
        return Ok(());
    }
    match c.child(&dir, last) {
        Ok(old) if old.inode().kind() == FileType::Directory => {
            return Err(Failure { what: e.path.clone(), errno: Errno::EISDIR });
        }
        Ok(_) if e.kind != Kind::HardLink => names::remove(&c.caller, &dir, last, false).about(&e.path)?,
        Ok(_) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(Failure { what: e.path.clone(), errno }),
    }
    let node = |c: &Command<'_>, kind: FileType, rdev| {
        names::create(&c.caller, &dir, last, kind as u32 | 0o600, rdev).about(&e.path)
    };
    let made = match e.kind {
        Kind::HardLink => return hard_link(c, top, &dir, last, e),
        Kind::Symlink => names::symlink(&c.caller, &dir, last, &e.link).about(&e.path)?,
        Kind::Fifo => node(c, FileType::Fifo, 0)?,
        Kind::CharDevice | Kind::BlockDevice => {
            if !c.caller.cred.capable(perm::cap::MKNOD) {
                return Err(Failure { what: e.path.clone(), errno: Errno::EPERM });
            }
            let (major, minor) = (u64::from(e.device.0), u64::from(e.device.1));
            let rdev = (major & 0xfff) << 8 | (major & !0xfff) << 32 | minor & 0xff | (minor & !0xff) << 12;
            let char = e.kind == Kind::CharDevice;
            node(c, if char { FileType::CharDevice } else { FileType::BlockDevice }, rdev)?
        }
        Kind::File | Kind::Directory => {
            let made = node(c, FileType::Regular, 0)?;
            content(c, &made, e)?;
            made
        }
    };
    dress(c, &made, e).about(&e.path)
}

/// Another name of something that came before, or was there.
fn hard_link(c: &Command<'_>, top: &Path, dir: &Path, last: &[u8], e: &Entry) -> Outcome {
    let parts = tar::components(&e.link).map_err(|bad| Failure { what: e.link.clone(), ..broken(bad) })?;
    let (name, above) = parts.split_last().ok_or(Errno::EINVAL).about(&e.link)?;
    let from = descend(c, top, above, false).and_then(|d| c.child(&d, name)).about(&e.link)?;
    if c.child(dir, last).is_ok_and(|old| !old.same(&from)) {
        names::remove(&c.caller, dir, last, false).about(&e.path)?;
    }
    match names::link(&c.caller, &from, dir, last) {
        // It is that already.
        Err(Errno::EEXIST) => Ok(()),
        r => r.about(&e.path),
    }
}

/// The bytes of a file; long runs of zeros become holes.
fn content(c: &mut Command<'_>, made: &Path, e: &Entry) -> Outcome {
    let file = c.open(made, OpenFlags::WRONLY).about(&e.path)?;
    let mut buf = chunk();
    let mut at = 0;
    while at < e.size {
        let n = buf.len().min(usize::try_from(e.size - at).unwrap_or(usize::MAX));
        take(c, &mut buf[..n])?;
        if buf[..n].iter().any(|&b| b != 0) {
            let mut done = 0;
            while done < n {
                let (part, offset) = (&buf[done..n], at + done as u64);
                done += c
                    .patiently(|| file.ops().write(&file, &mut Input::kernel(part), offset))
                    .about(&e.path)?;
            }
        }
        at += n as u64;
        c.breathe().about(&e.path)?;
    }
    made.inode().set_attr(&SetAttr { size: Some(e.size), ..SetAttr::default() }).about(&e.path)?;
    skip(c, tar::padding(e.size) as u64)
}

/// Gives a file the attributes the archive tells; the owner only if the caller may give files away.
fn dress(c: &Command<'_>, path: &Path, e: &Entry) -> Result<()> {
    let cred = &c.caller.cred;
    let give = cred.capable(perm::cap::CHOWN);
    let inode = path.inode();
    perm::owner(cred, &**inode)?;
    let mut mode = e.mode;
    if !give && !cred.in_group(inode.perm().gid) {
        mode &= !0o2000;
    }
    for (name, value) in &e.xattrs {
        if name.starts_with(b"user.") || cred.capable(perm::cap::SYS_ADMIN) {
            match inode.setxattr(name, value, SetXattr::Any) {
                // Not every file system has them, nor every kind of file.
                Ok(()) | Err(Errno::EOPNOTSUPP | Errno::EPERM) => {}
                Err(e) => return Err(e),
            }
        }
    }
    inode.set_attr(&SetAttr {
        mode: (e.kind != Kind::Symlink).then_some(mode),
        uid: give.then_some(e.uid),
        gid: give.then_some(e.gid),
        atime: None,
        mtime: Some(e.mtime),
        size: None,
    })
}
