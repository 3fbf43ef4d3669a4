//! `tar-out PATH`: a tree as a tar archive on standard output.
//!
//! Names begin with the last component of PATH, or with "." if there is none or it is ".". File systems mounted below
//! are left out, as are sockets.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use doppel_tar::{self as tar, Entry, Kind};

use super::{About, Command, Failure, Outcome, chunk};
use crate::Errno;
use crate::objects::lookup::path::Path;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{FileType, Output};

/// Most files with several names whose other names are remembered.
const LINKS_MAX: usize = 100_000;

pub fn run(c: &mut Command<'_>, name: &[u8]) -> Outcome {
    let last = name.split(|&b| b == b'/').rfind(|p| !p.is_empty()).unwrap_or(b".");
    if last == b".." {
        return Err(Failure { what: name.to_vec(), errno: Errno::EINVAL });
    }
    // A directory named with a slash or a dot behind it is meant, not a link to it.
    let top = c.find(name, name.ends_with(b"/") || last == b".").about(name)?;
    let mut links = BTreeMap::new();
    let mut todo = vec![(top.clone(), last.to_vec())];
    while let Some((path, name)) = todo.pop() {
        let same = Arc::ptr_eq(path.mount(), top.mount());
        entry(c, &path, &name, &mut links)?;
        if same && path.inode().kind() == FileType::Directory {
            let mut inside = c.names(&path).about(&name)?;
            // Taken from the end.
            inside.sort_unstable_by(|a, b| b.cmp(a));
            for one in inside {
                match c.child(&path, &one) {
                    Ok(child) => todo.push((child, [&name[..], b"/", &one].concat())),
                    // It has gone meanwhile.
                    Err(Errno::ENOENT) => {}
                    Err(errno) => return Err(Failure { what: one, errno }),
                }
            }
        }
    }
    c.put(&tar::END).about(b"standard output")
}

/// Numbers of a device node.
fn device(rdev: u64) -> (u32, u32) {
    let (major, minor) = (rdev >> 8 & 0xfff | rdev >> 32 & !0xfff, rdev & 0xff | rdev >> 12 & 0xff_ff00);
    (major as u32, minor as u32)
}

fn entry(
    c: &mut Command<'_>,
    path: &Path,
    name: &[u8],
    links: &mut BTreeMap<(u64, u64), Vec<u8>>,
) -> Outcome {
    let inode = path.inode();
    let st = inode.stat();
    let kind = match inode.kind() {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => return Ok(()),
    };
    let mut e = Entry::new(name.to_vec(), kind);
    (e.mode, e.uid, e.gid, e.mtime) = (st.mode & 0o7777, st.uid, st.gid, st.mtime);
    match kind {
        Kind::Symlink => e.link = inode.readlink().about(name)?,
        Kind::CharDevice | Kind::BlockDevice => e.device = device(st.rdev),
        _ => {}
    }
    if kind != Kind::Directory && st.nlink > 1 {
        if let Some(first) = links.get(&(st.dev, st.ino)) {
            (e.kind, e.link) = (Kind::HardLink, first.clone());
            return c.put(&tar::header(&e)).about(b"standard output");
        }
        if links.len() < LINKS_MAX {
            links.insert((st.dev, st.ino), name.to_vec());
        }
    }
    e.xattrs = xattrs(path);
    if kind != Kind::File {
        return c.put(&tar::header(&e)).about(b"standard output");
    }
    let file = c.open(path, OpenFlags::RDONLY).about(name)?;
    e.size = st.size;
    c.put(&tar::header(&e)).about(b"standard output")?;
    let mut buf = chunk();
    let mut at = 0;
    while at < st.size {
        let most = buf.len().min(usize::try_from(st.size - at).unwrap_or(usize::MAX));
        let n =
            c.patiently(|| file.ops().read(&file, &mut Output::kernel(&mut buf[..most]), at)).about(name)?;
        // One that became shorter meanwhile ends in zeros: its size has been told.
        let n = if n == 0 {
            buf[..most].fill(0);
            most
        } else {
            n
        };
        c.put(&buf[..n]).about(b"standard output")?;
        at += n as u64;
    }
    c.put(&[0; tar::BLOCK][..tar::padding(st.size)]).about(b"standard output")
}

/// Extended attributes as far as they can be read; most file systems have none.
fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let Ok(list) = path.inode().listxattr() else { return Vec::new() };
    let names = list.split(|&b| b == 0).filter(|n| n.starts_with(b"user.") || *n == b"security.capability");
    names.filter_map(|n| Some((n.to_vec(), path.inode().getxattr(n).ok()?))).collect()
}
