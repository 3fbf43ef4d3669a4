//! `tar-in PATH`: unpacks a tar archive from standard input below a directory (`doppel_tar::unpack`, docs/sessions.md).

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use doppel_abi_linux::errno::{self, Errno as Number};
use doppel_tar::unpack::{self, Target};
use doppel_tar::{Entry, Kind};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::get_all;
use super::outcome::{About, Failure, Outcome};

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub fn run(name: &[u8]) -> Outcome {
    let top = rustix::fs::open(name, DIRECTORY, Mode::empty()).about(name)?;
    let dir = rustix::io::fcntl_dupfd_cloexec(&top, 0).about(name)?;
    let mut below = Below { top, dir, file: None, found: None };
    unpack::unpack(&mut below).map_err(|f| {
        let errno = Errno::from_raw_os_error(i32::from(f.errno.0));
        Failure { what: f.what, errno }
    })
}

/// The host's error as the archive's code has it.
fn number(e: Errno) -> Number {
    u16::try_from(e.raw_os_error()).map_or(Number::EIO, Number)
}

/// A directory, and where below it an archive is unpacked just now.
struct Below {
    top: OwnedFd,
    dir: OwnedFd,
    /// The file that was made last.
    file: Option<File>,
    /// What the next hard link leads to: its directory and name there.
    found: Option<(OwnedFd, OsString)>,
}

impl Below {
    /// Goes down from the top; makes what is missing if `make`. Links are not followed.
    fn descend(&self, parts: &[&[u8]], make: bool) -> Result<OwnedFd, Errno> {
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&self.top, 0)?;
        for part in parts {
            dir = match rustix::fs::openat(&dir, *part, flags, Mode::empty()) {
                Err(Errno::NOENT) if make => {
                    rustix::fs::mkdirat(&dir, *part, Mode::from_raw_mode(0o755))?;
                    rustix::fs::openat(&dir, *part, flags, Mode::empty())?
                }
                found => found?,
            };
        }
        Ok(dir)
    }

    fn node(&self, name: &[u8], entry: &Entry) -> Result<(), Errno> {
        let (major, minor) = entry.device;
        let (kind, device) = match entry.kind {
            Kind::Fifo => (FileType::Fifo, 0),
            Kind::CharDevice => (FileType::CharacterDevice, rustix::fs::makedev(major, minor)),
            Kind::BlockDevice => (FileType::BlockDevice, rustix::fs::makedev(major, minor)),
            _ => return Err(Errno::INVAL),
        };
        rustix::fs::mknodat(&self.dir, name, kind, Mode::from_raw_mode(0o600), device)
    }

    fn empty_file(&self, name: &[u8]) -> Result<File, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, name, flags, Mode::from_raw_mode(0o600)).map(File::from)
    }

    /// The owner only if the caller may give files away.
    fn dress(&self, name: &[u8], e: &Entry) -> Result<(), Errno> {
        let (dir, link) = (&self.dir, AtFlags::SYMLINK_NOFOLLOW);
        let give = rustix::process::geteuid().is_root();
        if give {
            rustix::fs::chownat(dir, name, Some(Uid::from_raw(e.uid)), Some(Gid::from_raw(e.gid)), link)?;
        }
        if e.kind == Kind::File || e.kind == Kind::Directory {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
            for (name, value) in e.xattrs.iter().filter(|(name, _)| give || name.starts_with(b"user.")) {
                match rustix::fs::fsetxattr(&file, name.as_slice(), value, XattrFlags::empty()) {
                    // Not every file system has them.
                    Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM) => {}
                    Err(error) => return Err(error),
                }
            }
            rustix::fs::fchmod(&file, Mode::from_raw_mode(e.mode & 0o7777))?;
        } else if e.kind != Kind::Symlink {
            rustix::fs::chmodat(dir, name, Mode::from_raw_mode(e.mode & 0o7777), AtFlags::empty())?;
        }
        let (seconds, rest) = (e.mtime.div_euclid(1_000_000_000), e.mtime.rem_euclid(1_000_000_000));
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: seconds, tv_nsec: rest },
        };
        rustix::fs::utimensat(dir, name, &times, link)
    }

    /// Gives what was found another name.
    fn other_name(&self, (from, old): &(OwnedFd, OsString), name: &[u8]) -> Result<(), Errno> {
        let wanted = stat(from, old)?;
        match stat(&self.dir, name) {
            // It is that already.
            Ok(there) if (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino) => return Ok(()),
            Ok(_) => rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())?,
            Err(_) => {}
        }
        rustix::fs::linkat(from, old, &self.dir, name, AtFlags::empty())
    }
}

fn stat<P: rustix::path::Arg>(dir: &OwnedFd, name: P) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

impl Target for Below {
    fn read(&mut self, buf: &mut [u8]) -> errno::Result<usize> {
        get_all(buf).map_err(|f| number(f.errno))
    }

    /// The host's scheduler sees to it.
    fn pause(&mut self) -> errno::Result<()> {
        Ok(())
    }

    fn enter(&mut self, names: &[&[u8]], make: bool) -> errno::Result<()> {
        self.dir = self.descend(names, make).map_err(number)?;
        Ok(())
    }

    fn is_directory(&mut self, name: &[u8]) -> errno::Result<Option<bool>> {
        match stat(&self.dir, name) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(number(e)),
        }
    }

    fn remove(&mut self, name: &[u8]) -> errno::Result<()> {
        rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()).map_err(number)
    }

    fn make(&mut self, name: &[u8], entry: &Entry) -> errno::Result<()> {
        match entry.kind {
            Kind::File => self.empty_file(name).map(|file| self.file = Some(file)),
            Kind::Symlink => rustix::fs::symlinkat(entry.link.as_slice(), &self.dir, name),
            _ => self.node(name, entry),
        }
        .map_err(number)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> errno::Result<()> {
        let file = self.file.as_ref().ok_or(Number::EBADF)?;
        file.write_all_at(bytes, offset).map_err(|e| Errno::from_io_error(&e).map_or(Number::EIO, number))
    }

    fn set_size(&mut self, size: u64) -> errno::Result<()> {
        let file = self.file.as_ref().ok_or(Number::EBADF)?;
        rustix::fs::ftruncate(file, size).map_err(number)
    }

    fn find(&mut self, names: &[&[u8]]) -> errno::Result<()> {
        let (name, above) = names.split_last().ok_or(Number::EINVAL)?;
        let dir = self.descend(above, false).map_err(number)?;
        stat(&dir, *name).map_err(number)?;
        self.found = Some((dir, OsString::from_vec(name.to_vec())));
        Ok(())
    }

    fn link(&mut self, name: &[u8]) -> errno::Result<()> {
        let found = self.found.take().ok_or(Number::EBADF)?;
        self.other_name(&found, name).map_err(number)
    }

    fn set_attributes(&mut self, name: &[u8], entry: &Entry) -> errno::Result<()> {
        self.dress(name, entry).map_err(number)
    }
}
