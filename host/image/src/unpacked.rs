//! Images as directories, for hosts that cannot mount them: `unpacked/sha256-<hex>/` of the store, made when first wanted.
//!
//! A directory appears under its name complete and on disk. Who uses one holds a lock on it (shared), who makes or removes
//! one has it alone. It goes with the image, or when its last user does and the store is changed next.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use doppel_erofs::{Erofs, Inode, Kind};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, flock,
};

use crate::error::IoContext;
use crate::{Error, Result, Store};

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;
/// What unfinished ones are called.
const UNFINISHED: &str = "new-";

/// An image as a directory, which stays while this is held.
#[derive(Debug)]
pub struct Unpacked {
    /// The directory.
    pub path: PathBuf,
    _held: File,
}

/// The directory with the files of an image of a store, given its file.
///
/// # Errors
/// If the file is in no store, or damaged, or what the host says.
pub fn unpacked(image: &File) -> Result<Unpacked> {
    let link = PathBuf::from(format!("/proc/self/fd/{}", image.as_fd().as_raw_fd()));
    let file = fs::read_link(&link).doing("read", &link)?;
    let (root, name) = place(&file).ok_or_else(|| {
        Error::source(
            file.as_os_str().as_bytes(),
            "only images of a store can be unpacked (doppel image import)",
        )
    })?;
    let all = root.join("unpacked");
    DirBuilder::new().recursive(true).mode(0o700).create(&all).doing("create", &all)?;
    let path = all.join(name);
    // One unpacks it, others wait.
    flock(image, FlockOperation::LockExclusive).doing("lock", &file)?;
    let done = match held(&path)? {
        Some(unpacked) => Ok(unpacked),
        None => make(image, &file, &all, path),
    };
    flock(image, FlockOperation::Unlock).doing("unlock", &file)?;
    done
}

/// The store's directory that an image file is in, and the name of its directory there.
fn place(file: &Path) -> Option<(&Path, &str)> {
    let name = file.file_name()?.to_str()?.strip_suffix(".erofs")?;
    let images = file.parent()?;
    (name.starts_with("sha256-") && images.file_name()? == "images").then_some((images.parent()?, name))
}

/// One that is there, held.
fn held(path: &Path) -> Result<Option<Unpacked>> {
    let dir = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.doing("open", path)?,
    };
    flock(&dir, FlockOperation::LockShared).doing("lock", path)?;
    // It may have been removed meanwhile.
    let same = |now: fs::Metadata| dir.metadata().is_ok_and(|m| (m.dev(), m.ino()) == (now.dev(), now.ino()));
    Ok(fs::metadata(path).is_ok_and(same).then_some(Unpacked { path: path.to_owned(), _held: dir }))
}

fn make(image: &File, file: &Path, all: &Path, path: PathBuf) -> Result<Unpacked> {
    let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(all).doing("create", all)?;
    let dir = File::open(unfinished.path()).doing("open", unfinished.path())?;
    flock(&dir, FlockOperation::LockExclusive).doing("lock", unfinished.path())?;
    let map = doppel_sys::FileMap::new(image).doing("map", file)?;
    unpack(&map, file, unfinished.path())?;
    rustix::fs::syncfs(&dir).doing("sync", all)?;
    let unfinished = unfinished.keep();
    fs::rename(&unfinished, &path).doing("rename", &unfinished)?;
    File::open(all).and_then(|d| d.sync_all()).doing("sync", all)?;
    flock(&dir, FlockOperation::LockShared).doing("lock", &path)?;
    Ok(Unpacked { path, _held: dir })
}

/// Puts all files of an image into a directory, with their owners, modes, times, attributes and links.
fn unpack(image: &[u8], file: &Path, to: &Path) -> Result<()> {
    let fs = Erofs::open(image).map_err(|e| damaged(file, &e.to_string()))?;
    let root = fs.inode(fs.root_nid()).map_err(|e| damaged(file, &e.to_string()))?;
    if !root.is_dir() {
        return Err(damaged(file, "its root is no directory"));
    }
    unpack_below(&fs, root, file, to, true)
}

fn damaged(file: &Path, why: &str) -> Error {
    Error::Damaged { image: file.display().to_string(), why: why.into() }
}

/// Most links that a path leads over.
const MOST_LINKS: usize = 40;

/// Puts what an image has in the directory at `path` into a directory of the host, which gets its owner and mode too; links in
/// the path are followed inside the image. Devices are left out. False if the image has no directory there.
///
/// # Errors
/// If the image is damaged, or what the host says.
pub fn copy_out(image: &File, path: &str, to: &Path) -> Result<bool> {
    let link = PathBuf::from(format!("/proc/self/fd/{}", image.as_fd().as_raw_fd()));
    let file = fs::read_link(&link).doing("read", &link)?;
    let map = doppel_sys::FileMap::new(image).doing("map", &file)?;
    let broken = |e: doppel_erofs::Error| damaged(&file, &e.to_string());
    let fs = Erofs::open(&map).map_err(broken)?;
    match directory_at(&fs, path).map_err(broken)? {
        Some(inode) => unpack_below(&fs, inode, &file, to, false).map(|()| true),
        None => Ok(false),
    }
}

/// The directory at a path of an image, if there is one.
fn directory_at(fs: &Erofs<'_>, path: &str) -> std::result::Result<Option<Inode>, doppel_erofs::Error> {
    let parts = |text: &[u8]| -> Vec<Vec<u8>> {
        let parts = text.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."));
        // The next one is the last.
        parts.map(<[u8]>::to_vec).rev().collect()
    };
    let root = fs.inode(fs.root_nid())?;
    let (mut above, mut todo, mut links) = (vec![root], parts(path.as_bytes()), 0);
    while let Some(part) = todo.pop() {
        if part == b".." {
            above.truncate((above.len() - 1).max(1));
            continue;
        }
        let Some(at) = above.last().filter(|at| at.is_dir()) else { return Ok(None) };
        let Some((nid, ..)) = fs.lookup(at, &part)? else { return Ok(None) };
        let inode = fs.inode(nid)?;
        if inode.kind != Kind::Symlink {
            above.push(inode);
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Ok(None);
        }
        let target = fs.symlink(&inode)?;
        if target.starts_with(b"/") {
            above.truncate(1);
        }
        todo.extend(parts(target));
    }
    Ok(above.pop().filter(Inode::is_dir))
}

/// Puts what is below a directory of an image into a directory; devices only if these are wanted.
fn unpack_below(fs: &Erofs<'_>, root: Inode, file: &Path, to: &Path, devices: bool) -> Result<()> {
    let broken = |e: doppel_erofs::Error| damaged(file, &e.to_string());
    let mut links: HashMap<u64, PathBuf> = HashMap::new();
    // Directories get their times when everything is in them.
    let mut directories = Vec::new();
    let mut todo = vec![(root, to.to_owned())];
    while let Some((inode, path)) = todo.pop() {
        if inode.is_dir() {
            if path != to {
                fs::create_dir(&path).doing("create", &path)?;
            }
            own(&inode, &path)?;
            let mut children = Vec::new();
            fs.readdir(&inode, 0, |entry| {
                children.push((entry.nid, entry.name));
                true
            })
            .map_err(broken)?;
            for (nid, name) in children.into_iter().filter(|(_, name)| !matches!(*name, b"." | b"..")) {
                let path = path.join(OsStr::from_bytes(name));
                // A directory that is in itself ends here.
                if path.as_os_str().len() > to.as_os_str().len() + 4096 {
                    return Err(damaged(file, "it is too deep"));
                }
                let inode = fs.inode(nid).map_err(broken)?;
                if devices || !matches!(inode.kind, Kind::CharDevice | Kind::BlockDevice) {
                    todo.push((inode, path));
                }
            }
            directories.push((inode, path.clone()));
        } else {
            if inode.nlink > 1 {
                if let Some(first) = links.get(&inode.nid) {
                    fs::hard_link(first, &path).doing("link", &path)?;
                    continue;
                }
                links.insert(inode.nid, path.clone());
            }
            create(fs, &inode, &path, &broken)?;
        }
        let mut refused = None;
        let root = rustix::process::geteuid().is_root();
        fs.xattrs(&inode, |prefix, rest, value| {
            let name = [prefix, rest].concat();
            refused = rustix::fs::lsetxattr(&path, name, value, XattrFlags::empty()).err().filter(|_| root);
            refused.is_none()
        })
        .map_err(broken)?;
        refused.map_or(Ok(()), Err).doing("set attributes of", &path)?;
        if !inode.is_dir() {
            set_time(&inode, &path)?;
        }
    }
    directories.iter().rev().try_for_each(|(inode, path)| set_time(inode, path))
}

fn create(
    fs: &Erofs<'_>,
    inode: &Inode,
    path: &Path,
    broken: &impl Fn(doppel_erofs::Error) -> Error,
) -> Result<()> {
    let special = match inode.kind {
        Kind::Regular => {
            copy(fs, inode, path, broken)?;
            return own(inode, path);
        }
        Kind::Symlink => {
            let target = fs.symlink(inode).map_err(broken)?;
            std::os::unix::fs::symlink(OsStr::from_bytes(target), path).doing("create", path)?;
            return own(inode, path);
        }
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::Directory => return Ok(()),
    };
    let (major, minor) = inode.device();
    let device = rustix::fs::makedev(major, minor);
    rustix::fs::mknodat(CWD, path, special, Mode::from_raw_mode(0o600), device).doing("create", path)?;
    own(inode, path)
}

fn copy(
    fs: &Erofs<'_>,
    inode: &Inode,
    path: &Path,
    broken: &impl Fn(doppel_erofs::Error) -> Error,
) -> Result<()> {
    let out = File::create_new(path).doing("create", path)?;
    out.set_len(inode.size).doing("write", path)?;
    let mut buf = vec![0; CHUNK.min(usize::try_from(inode.size).unwrap_or(CHUNK))];
    let mut at = 0;
    while at < inode.size {
        let n = fs.read_at(inode, at, &mut buf).map_err(broken)?;
        if n == 0 {
            return Err(broken(doppel_erofs::Error::Corrupt("a file ends early")));
        }
        // Holes stay such.
        if buf[..n].iter().any(|b| *b != 0) {
            out.write_all_at(&buf[..n], at).doing("write", path)?;
        }
        at += n as u64;
    }
    Ok(())
}

/// Owner before mode: a change of owner takes set-user-ID bits away. Who is not root has all as its own.
fn own(inode: &Inode, path: &Path) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(inode.uid), Gid::from_raw(inode.gid));
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .doing("chown", path)?;
    }
    if inode.kind != Kind::Symlink {
        let mode = Mode::from_raw_mode(u32::from(inode.mode & 0o7777));
        rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()).doing("chmod", path)?;
    }
    Ok(())
}

fn set_time(inode: &Inode, path: &Path) -> Result<()> {
    let time = Timespec { tv_sec: inode.mtime_sec, tv_nsec: inode.mtime_nsec.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).doing("set the time of", path)
}

impl Store {
    /// Removes directories that were not finished, and those of images that are gone, unless somebody uses them. Under the lock.
    pub(crate) fn sweep_unpacked(&self) -> Result<()> {
        let all = self.root().join("unpacked");
        let entries = match fs::read_dir(&all) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.doing("list", &all)?,
        };
        for entry in entries {
            let entry = entry.doing("list", &all)?;
            let (path, name) = (entry.path(), entry.file_name());
            let image = self.root().join("images").join(format!("{}.erofs", name.to_string_lossy()));
            if image.symlink_metadata().is_ok() {
                continue;
            }
            let dir = File::open(&path).doing("open", &path)?;
            if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
                fs::remove_dir_all(&path).doing("remove", &path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
