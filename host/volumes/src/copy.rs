//! Copies of volumes: by reflinks where the host's file system has some, else of all that is no hole.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, SeekFrom, Stat, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;

/// Extended attributes that a domain can have given to its files.
const XATTRS: [&str; 3] = ["user.", "system.posix_acl_", "security.capability"];
/// Most bytes of the names, and of the value, of a file's attributes.
const XATTR: usize = 64 << 10;
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A tree that is being copied.
struct Copy {
    from: OwnedFd,
    to: OwnedFd,
    /// Directories that were made, each behind the one it is in.
    dirs: Vec<PathBuf>,
    /// Where each file is, by device and number of the one that was copied.
    places: HashMap<(u64, u64), PathBuf>,
}

/// Copies the files in a directory, and its attributes, to another one, which is empty, and has the copy survive a power cut. Links are
/// not followed. Where each file is then, by device and number of the one that was copied.
///
/// # Errors
/// What the host says.
pub(crate) fn tree(from: &Path, to: &Path) -> io::Result<HashMap<(u64, u64), PathBuf>> {
    let open = |path| rustix::fs::open(path, READ | OFlags::DIRECTORY, Mode::empty());
    let mut copy = Copy { from: open(from)?, to: open(to)?, dirs: vec![".".into()], places: HashMap::new() };
    let mut next = 0;
    while let Some(dir) = copy.dirs.get(next).cloned() {
        copy.directory(&dir)?;
        next += 1;
    }
    // What is made in a directory changes its times.
    for dir in copy.dirs.iter().rev() {
        let (old, new) = (beneath(&copy.from, dir)?, beneath(&copy.to, dir)?);
        attributes(&old, &new)?;
    }
    rustix::fs::syncfs(&copy.to)?;
    Ok(copy.places)
}

/// A directory below another one.
fn beneath(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(root, path, READ | OFlags::DIRECTORY, Mode::empty(), how)
}

impl Copy {
    /// Copies what is in a directory; of directories in it only the names.
    fn directory(&mut self, dir: &Path) -> io::Result<()> {
        let (old, new) = (beneath(&self.from, dir)?, beneath(&self.to, dir)?);
        for entry in Dir::read_from(&old)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let path = dir.join(name);
            let stat = rustix::fs::statat(&old, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            let key = (stat.st_dev, stat.st_ino);
            if kind == FileType::Directory {
                rustix::fs::mkdirat(&new, name, Mode::RWXU)?;
                self.dirs.push(path.clone());
            } else if let Some(first) = self.places.get(&key) {
                rustix::fs::linkat(&self.to, first, &new, name, AtFlags::empty())?;
                continue;
            }
            self.places.insert(key, path);
            if kind == FileType::Directory {
                continue;
            }
            match kind {
                FileType::RegularFile => file(&old, &new, name)?,
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&old, name, Vec::new())?;
                    rustix::fs::symlinkat(target, &new, name)?;
                    by_name(&new, name, &stat)?;
                }
                _ => {
                    rustix::fs::mknodat(&new, name, kind, Mode::empty(), stat.st_rdev)?;
                    by_name(&new, name, &stat)?;
                    let mode = Mode::from_raw_mode(stat.st_mode);
                    rustix::fs::chmodat(&new, name, mode, AtFlags::empty())?;
                }
            }
        }
        Ok(())
    }
}

fn file(old: &OwnedFd, new: &OwnedFd, name: &OsStr) -> io::Result<()> {
    // A pipe that is there by now is not waited for.
    let old = rustix::fs::openat(old, name, READ | OFlags::NONBLOCK, Mode::empty())?;
    let make = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let new = rustix::fs::openat(new, name, make, Mode::RUSR | Mode::WUSR)?;
    if rustix::fs::ioctl_ficlone(&new, &old).is_err() {
        data(&old, &new)?;
    }
    attributes(&old, &new)
}

/// Copies a file's bytes, and no holes.
fn data(old: &OwnedFd, new: &OwnedFd) -> io::Result<()> {
    let size = rustix::fs::fstat(old)?.st_size.cast_unsigned();
    rustix::fs::ftruncate(new, size)?;
    let mut at = 0;
    loop {
        at = match rustix::fs::seek(old, SeekFrom::Data(at)) {
            Ok(at) if at < size => at,
            Ok(_) | Err(Errno::NXIO) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(old, SeekFrom::Hole(at))?.min(size);
        let (mut from, mut to) = (at, at);
        while from < end {
            let len = usize::try_from(end - from).unwrap_or(usize::MAX).min(1 << 30);
            if rustix::fs::copy_file_range(old, Some(&mut from), new, Some(&mut to), len)? == 0 {
                return Ok(());
            }
        }
        at = end;
    }
}

/// Gives a file or a directory owner, mode, extended attributes and times of another one.
fn attributes(old: &OwnedFd, new: &OwnedFd) -> io::Result<()> {
    let stat = rustix::fs::fstat(old)?;
    rustix::fs::fchown(new, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    rustix::fs::fchmod(new, Mode::from_raw_mode(stat.st_mode))?;
    let mut names = vec![0; XATTR];
    let len = match rustix::fs::flistxattr(old, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        listed => listed?,
    };
    for name in names[..len].split(|byte| *byte == 0) {
        if !XATTRS.iter().any(|prefix| name.starts_with(prefix.as_bytes())) {
            continue;
        }
        let name = CString::new(name)?;
        let mut value = vec![0; XATTR];
        let len = rustix::fs::fgetxattr(old, &name, &mut value[..])?;
        rustix::fs::fsetxattr(new, &name, &value[..len], XattrFlags::empty())?;
    }
    rustix::fs::futimens(new, &times(&stat))?;
    Ok(())
}

/// The same, without a mode and extended attributes, for what is not opened.
fn by_name(dir: &OwnedFd, name: &OsStr, stat: &Stat) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    rustix::fs::utimensat(dir, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

fn times(stat: &Stat) -> Timestamps {
    let time = |seconds: i64, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn a_copy_has_all_that_files_have() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir_all(a.join("d/e")).unwrap();
        fs::create_dir(&b).unwrap();
        let sparse = File::create(a.join("d/sparse")).unwrap();
        sparse.write_all_at(b"far", 1 << 30).unwrap();
        sparse.set_len(2 << 30).unwrap();
        fs::write(a.join("run"), "x").unwrap();
        fs::set_permissions(a.join("run"), fs::Permissions::from_mode(0o4751)).unwrap();
        fs::hard_link(a.join("run"), a.join("d/e/same")).unwrap();
        symlink("/etc/passwd", a.join("link")).unwrap();
        let attribute = |path: &Path| {
            let mut value = [0; 8];
            rustix::fs::getxattr(path, "user.note", &mut value[..]).map(|n| value[..n].to_vec())
        };
        let has = rustix::fs::setxattr(a.join("d"), "user.note", b"\0v", XattrFlags::empty()).is_ok();
        let old = Timespec { tv_sec: 1_600_000_000, tv_nsec: 5 };
        let times = Timestamps { last_access: old, last_modification: old };
        rustix::fs::utimensat(CWD, a.join("d"), &times, AtFlags::empty()).unwrap();
        tree(&a, &b).unwrap();
        let meta = |path: &str| fs::symlink_metadata(b.join(path)).unwrap();
        assert_eq!(fs::read_link(b.join("link")).unwrap(), Path::new("/etc/passwd"));
        assert_eq!((meta("run").mode() & 0o7777, meta("run").nlink()), (0o4751, 2));
        assert_eq!(meta("run").ino(), meta("d/e/same").ino());
        assert_eq!((meta("d").mtime(), meta("d").mtime_nsec()), (1_600_000_000, 5));
        assert!(meta("d/sparse").blocks() < 1000 && meta("d/sparse").len() == 2 << 30);
        let mut far = [0; 3];
        File::open(b.join("d/sparse")).unwrap().read_exact_at(&mut far, 1 << 30).unwrap();
        assert_eq!(&far, b"far");
        assert!(!has || attribute(&b.join("d")).unwrap() == b"\0v");
    }
}
