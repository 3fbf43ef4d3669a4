//! `tar-in PATH`: unpacks a tar archive from standard input below a directory (docs/sessions.md).
//!
//! Names are taken apart here: none leaves PATH, and no symbolic link below PATH is followed, neither one that was there
//! nor one from the archive. What stands in the way of an entry is replaced, directories excepted.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;

use doppel_tar::{self as tar, BLOCK, Bad, Entry, Kind, Next};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use super::outcome::{About, Failure, Outcome};
use super::{CHUNK, get_all};

const INPUT: &[u8] = b"standard input";

pub fn run(name: &[u8]) -> Outcome {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(name, flags, Mode::empty()).about(name)?;
    let mut reader = tar::Reader::default();
    // Directories get their attributes last: they may not be writable then, and their times change until then.
    let mut dirs = Vec::new();
    loop {
        let mut block = [0; BLOCK];
        match get_all(&mut block)? {
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
                take(&mut data)?;
                skip(tar::padding(size))?;
                reader.extension(&data).map_err(broken)?;
            }
            Next::Entry(e) => unpack(&top, &e, &mut dirs)?,
        }
    }
    for (parts, e) in dirs.iter().rev() {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        if let Some((last, above)) = parts.split_last() {
            let dir = descend(&top, above, false).about(&e.path)?;
            dress(&dir, last, e).about(&e.path)?;
        }
    }
    // The writer may have padded it further.
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop).about(INPUT)
}

fn broken(bad: Bad) -> Failure {
    Failure { what: bad.to_string().into_bytes(), errno: Errno::INVAL }
}

/// Takes exactly so many bytes.
fn take(buf: &mut [u8]) -> Outcome {
    if get_all(buf)? == buf.len() {
        return Ok(());
    }
    Err(Failure { what: b"the archive ends in the middle".to_vec(), errno: Errno::INVAL })
}

fn skip(n: usize) -> Outcome {
    take(&mut [0; BLOCK][..n])
}

/// Goes down from `top`; makes what is missing if `make`. Links are not followed.
fn descend(top: &OwnedFd, parts: &[&[u8]], make: bool) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = rustix::io::fcntl_dupfd_cloexec(top, 0)?;
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

fn kind_of(dir: &OwnedFd, name: &[u8]) -> Result<FileType, Errno> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

fn unpack(top: &OwnedFd, e: &Entry, dirs: &mut Vec<(Vec<Vec<u8>>, Entry)>) -> Outcome {
    let parts = tar::components(&e.path).map_err(|bad| Failure { what: e.path.clone(), ..broken(bad) })?;
    let Some((last, above)) = parts.split_last() else {
        // The directory itself: its attributes are not the archive's to say.
        return Ok(());
    };
    let dir = descend(top, above, true).about(&e.path)?;
    if e.kind == Kind::Directory {
        descend(&dir, &[last], true).about(&e.path)?;
        dirs.push((parts.iter().map(|p| p.to_vec()).collect(), e.clone()));
        return Ok(());
    }
    match kind_of(&dir, last) {
        Ok(FileType::Directory) => return Err(Failure { what: e.path.clone(), errno: Errno::ISDIR }),
        Ok(_) if e.kind != Kind::HardLink => {
            rustix::fs::unlinkat(&dir, *last, AtFlags::empty()).about(&e.path)?;
        }
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(Failure { what: e.path.clone(), errno }),
    }
    let node = |kind, device| {
        rustix::fs::mknodat(&dir, *last, kind, Mode::from_raw_mode(0o600), device).about(&e.path)
    };
    match e.kind {
        Kind::HardLink => return hard_link(top, &dir, last, e),
        Kind::Symlink => rustix::fs::symlinkat(e.link.as_slice(), &dir, *last).about(&e.path)?,
        Kind::Fifo => node(FileType::Fifo, 0)?,
        Kind::CharDevice => node(FileType::CharacterDevice, rustix::fs::makedev(e.device.0, e.device.1))?,
        Kind::BlockDevice => node(FileType::BlockDevice, rustix::fs::makedev(e.device.0, e.device.1))?,
        Kind::File | Kind::Directory => content(&dir, last, e)?,
    }
    dress(&dir, last, e).about(&e.path)
}

/// Another name of something that came before, or was there.
fn hard_link(top: &OwnedFd, dir: &OwnedFd, last: &[u8], e: &Entry) -> Outcome {
    let parts = tar::components(&e.link).map_err(|bad| Failure { what: e.link.clone(), ..broken(bad) })?;
    let (name, above) = parts.split_last().ok_or(Errno::INVAL).about(&e.link)?;
    let from = descend(top, above, false).about(&e.link)?;
    let stat = |dir: &OwnedFd, name: &[u8]| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    let wanted = stat(&from, name).about(&e.link)?;
    match stat(dir, last) {
        // It is that already.
        Ok(old) if (old.st_dev, old.st_ino) == (wanted.st_dev, wanted.st_ino) => return Ok(()),
        Ok(_) => rustix::fs::unlinkat(dir, last, AtFlags::empty()).about(&e.path)?,
        Err(_) => {}
    }
    rustix::fs::linkat(&from, *name, dir, last, AtFlags::empty()).about(&e.path)
}

/// The bytes of a file; long runs of zeros become holes.
fn content(dir: &OwnedFd, last: &[u8], e: &Entry) -> Outcome {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, last, flags, Mode::from_raw_mode(0o600)).about(&e.path)?;
    let mut file = File::from(file);
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    while at < e.size {
        let n = buf.len().min(usize::try_from(e.size - at).unwrap_or(usize::MAX));
        take(&mut buf[..n])?;
        if buf[..n].iter().any(|&b| b != 0) {
            file.seek(SeekFrom::Start(at)).about(&e.path)?;
            file.write_all(&buf[..n]).about(&e.path)?;
        }
        at += n as u64;
    }
    file.set_len(e.size).about(&e.path)?;
    skip(tar::padding(e.size))
}

/// Gives a file the attributes the archive tells; the owner only if the caller may give files away.
fn dress(dir: &OwnedFd, name: &[u8], e: &Entry) -> Result<(), Errno> {
    let link = AtFlags::SYMLINK_NOFOLLOW;
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
