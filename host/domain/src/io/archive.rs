//! Tar archives from and to our own file system, for copies out of and into domains.
//!
//! An archive that comes from a domain is hostile. [`unpack`] takes every name apart, goes down from the directory it
//! was given one component at a time without following links, makes every file anew, refuses devices, drops set-user-ID
//! and its like, gives everything to the caller, and counts entries and bytes against [`Limits`].

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use doppel_tar::{self as tar, BLOCK, Entry, Kind, Next};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::Error;

/// How much is moved at a time.
const CHUNK: usize = 64 << 10;
/// Deepest directory.
const DEPTH_MAX: usize = 1000;

/// How much an archive may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most entries.
    pub entries: u64,
    /// Most bytes of files.
    pub bytes: u64,
}

impl Limits {
    /// A million files, as many bytes as there is room at `to`.
    ///
    /// # Errors
    /// What the host says.
    pub fn of(to: &Path) -> Result<Self, Error> {
        let room = rustix::fs::statvfs(to).map_err(Error::os(format!("examine {}", to.display())))?;
        Ok(Self { entries: 1 << 20, bytes: room.f_bavail.saturating_mul(room.f_frsize) })
    }
}

fn wrong(name: &[u8], why: impl std::fmt::Display) -> Error {
    Error::Config(format!("{}: {why}", OsStr::from_bytes(name).display()))
}

fn failed(name: &[u8]) -> impl FnOnce(Errno) -> Error {
    Error::os(format!("unpack {}", OsStr::from_bytes(name).display()))
}

/// Unpacks an archive below the directory `to`. With `top`, its only name at the top becomes this one.
///
/// # Errors
/// What is wrong with the archive, or what the host says. What was unpacked before stays.
pub fn unpack(from: impl Read, to: &Path, top: Option<&OsStr>, limits: Limits) -> Result<(), Error> {
    let dir = rustix::fs::open(to, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(Error::os(format!("open {}", to.display())))?;
    let mut unpacker = Unpacker { from, dir, top, first: None, limits, dirs: Vec::new() };
    unpacker.run()
}

struct Unpacker<'a, R> {
    from: R,
    dir: OwnedFd,
    top: Option<&'a OsStr>,
    /// What the archive calls its top.
    first: Option<Vec<u8>>,
    limits: Limits,
    /// Directories get their attributes last: they may not be writable then, and their times change until then.
    dirs: Vec<(Vec<Vec<u8>>, Entry)>,
}

impl<R: Read> Unpacker<'_, R> {
    fn run(&mut self) -> Result<(), Error> {
        let mut reader = tar::Reader::default();
        loop {
            let mut block = [0; BLOCK];
            if !self.fill(&mut block)? {
                break;
            }
            match reader.block(&block).map_err(|bad| wrong(b"archive", bad))? {
                Next::Header => {}
                Next::End => break,
                Next::Extension(size) => {
                    let mut data = tar::extension_buffer(size);
                    self.take(&mut data)?;
                    self.skip(tar::padding(size))?;
                    reader.extension(&data).map_err(|bad| wrong(b"archive", bad))?;
                }
                Next::Entry(entry) => self.unpack(&entry)?,
            }
        }
        for (parts, entry) in std::mem::take(&mut self.dirs).iter().rev() {
            let dir = self.descend(parts, false, &entry.path)?;
            let mode = Mode::from_raw_mode(entry.mode & 0o777);
            let dir = rustix::fs::openat(
                &dir,
                ".",
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .map_err(failed(&entry.path))?;
            rustix::fs::futimens(&dir, &times(entry.mtime)).map_err(failed(&entry.path))?;
            rustix::fs::fchmod(&dir, mode).map_err(failed(&entry.path))?;
        }
        io::copy(&mut self.from, &mut io::sink()).map(drop).map_err(Error::host("read the archive"))
    }

    /// Fills a block; false at the end.
    fn fill(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, Error> {
        let mut done = 0;
        while done < BLOCK {
            match self.from.read(&mut block[done..]) {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => return Err(wrong(b"archive", "it ends in the middle")),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::host("read the archive")(e)),
            }
        }
        Ok(true)
    }

    fn take(&mut self, buf: &mut [u8]) -> Result<(), Error> {
        self.from.read_exact(buf).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => wrong(b"archive", "it ends in the middle"),
            _ => Error::host("read the archive")(e),
        })
    }

    fn skip(&mut self, n: usize) -> Result<(), Error> {
        self.take(&mut vec![0; n])
    }

    /// The components of a name, the top renamed.
    fn parts(&mut self, name: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut parts: Vec<Vec<u8>> =
            tar::components(name).map_err(|bad| wrong(name, bad))?.into_iter().map(<[u8]>::to_vec).collect();
        if parts.len() > DEPTH_MAX {
            return Err(wrong(name, "too deep"));
        }
        if let (Some(top), Some(own)) = (self.top, parts.first_mut()) {
            if self.first.get_or_insert_with(|| own.clone()) != own {
                return Err(wrong(name, "a second name at the top of the archive"));
            }
            *own = top.as_bytes().to_vec();
        }
        Ok(parts)
    }

    /// Goes down; makes what is missing if `make`. Links are not followed.
    fn descend(&self, parts: &[Vec<u8>], make: bool, name: &[u8]) -> Result<OwnedFd, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |dir: BorrowedFd<'_>, part: &[u8]| rustix::fs::openat(dir, part, flags, Mode::empty());
        let mut dir = open(self.dir.as_fd(), b".").map_err(failed(name))?;
        for part in parts {
            dir = match open(dir.as_fd(), part) {
                Err(Errno::NOENT) if make => {
                    rustix::fs::mkdirat(&dir, part.as_slice(), Mode::from_raw_mode(0o755))
                        .map_err(failed(name))?;
                    open(dir.as_fd(), part)
                }
                r => r,
            }
            .map_err(|e| match e {
                Errno::LOOP | Errno::NOTDIR => wrong(name, "a link or a file is in its way"),
                e => failed(name)(e),
            })?;
        }
        Ok(dir)
    }

    fn unpack(&mut self, e: &Entry) -> Result<(), Error> {
        let too_much = || wrong(&e.path, "the archive holds more than there is room for");
        self.limits.entries = self.limits.entries.checked_sub(1).ok_or_else(too_much)?;
        self.limits.bytes = self.limits.bytes.checked_sub(e.size).ok_or_else(too_much)?;
        let parts = self.parts(&e.path)?;
        let Some((last, above)) = parts.split_last() else { return Ok(()) };
        let dir = self.descend(above, true, &e.path)?;
        if e.kind == Kind::Directory {
            self.descend(&parts, true, &e.path)?;
            self.dirs.push((parts, e.clone()));
            return Ok(());
        }
        // Made anew: nothing that was there, and nothing it is linked to, is written to.
        match rustix::fs::unlinkat(&dir, last.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => return Err(wrong(&e.path, "a directory is in its way")),
            Err(error) => return Err(failed(&e.path)(error)),
        }
        match e.kind {
            Kind::File | Kind::Directory => self.file(&dir, last, e),
            Kind::Symlink => {
                rustix::fs::symlinkat(e.link.as_slice(), &dir, last.as_slice()).map_err(failed(&e.path))?;
                rustix::fs::utimensat(&dir, last.as_slice(), &times(e.mtime), AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(failed(&e.path))
            }
            Kind::HardLink => {
                let from = self.parts(&e.link)?;
                let (name, above) = from.split_last().ok_or_else(|| wrong(&e.path, "a link to nothing"))?;
                let from = self.descend(above, false, &e.link)?;
                rustix::fs::linkat(&from, name.as_slice(), &dir, last.as_slice(), AtFlags::empty())
                    .map_err(failed(&e.path))
            }
            Kind::Fifo => {
                let mode = Mode::from_raw_mode(e.mode & 0o777);
                rustix::fs::mknodat(&dir, last.as_slice(), FileType::Fifo, mode, 0).map_err(failed(&e.path))
            }
            Kind::CharDevice | Kind::BlockDevice => {
                Err(wrong(&e.path, "devices are not copied out of a domain"))
            }
        }
    }

    fn file(&mut self, dir: &OwnedFd, last: &[u8], e: &Entry) -> Result<(), Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, last, flags, Mode::from_raw_mode(0o600)).map_err(failed(&e.path))?;
        let file = File::from(fd);
        let mut buf = vec![0; CHUNK];
        let mut at = 0;
        while at < e.size {
            let n = buf.len().min(usize::try_from(e.size - at).unwrap_or(usize::MAX));
            self.take(&mut buf[..n])?;
            // Long runs of zeros become holes.
            if buf[..n].iter().any(|&b| b != 0) {
                use std::os::unix::fs::FileExt;
                file.write_all_at(&buf[..n], at)
                    .map_err(|error| failed(&e.path)(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
            }
            at += n as u64;
        }
        self.skip(tar::padding(e.size))?;
        rustix::fs::ftruncate(&file, e.size).map_err(failed(&e.path))?;
        rustix::fs::futimens(&file, &times(e.mtime)).map_err(failed(&e.path))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(e.mode & 0o777)).map_err(failed(&e.path))
    }
}

fn times(mtime: i64) -> Timestamps {
    let time = Timespec { tv_sec: mtime.div_euclid(1_000_000_000), tv_nsec: mtime.rem_euclid(1_000_000_000) };
    Timestamps { last_access: time, last_modification: time }
}

/// Writes the tree at `from` as an archive whose top is called `top` (empty: what is in the directory itself). Everything
/// belongs to root in it. Sockets are left out.
///
/// # Errors
/// What the host says.
pub fn pack(from: &Path, top: &OsStr, mut to: impl Write) -> Result<(), Error> {
    let mut links: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    let mut todo = vec![(from.to_owned(), top.as_bytes().to_vec())];
    while let Some((path, name)) = todo.pop() {
        let kind = pack_one(&path, &name, &mut links, &mut to)?;
        if kind == FileType::Directory {
            let doing = || Error::host(format!("list {}", path.display()));
            let mut inside = Vec::new();
            for entry in std::fs::read_dir(&path).map_err(doing())? {
                inside.push(entry.map_err(doing())?.file_name());
            }
            // Taken from the end.
            inside.sort_unstable_by(|a, b| b.cmp(a));
            for one in inside {
                let mut full = name.clone();
                if !full.is_empty() {
                    full.push(b'/');
                }
                full.extend(one.as_bytes());
                todo.push((path.join(&one), full));
            }
        }
    }
    to.write_all(&tar::END).and_then(|()| to.flush()).map_err(Error::host("send the archive"))
}

fn pack_one(
    path: &PathBuf,
    name: &[u8],
    links: &mut HashMap<(u64, u64), Vec<u8>>,
    to: &mut impl Write,
) -> Result<FileType, Error> {
    let doing = || Error::os(format!("read {}", path.display()));
    let st = rustix::fs::lstat(path).map_err(doing())?;
    let file_type = FileType::from_raw_mode(st.st_mode);
    let kind = match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        _ => return Ok(file_type),
    };
    if name.is_empty() {
        return Ok(file_type);
    }
    let mut e = Entry::new(name.to_vec(), kind);
    e.mode = st.st_mode & 0o7777;
    e.mtime = st
        .st_mtime
        .saturating_mul(1_000_000_000)
        .saturating_add(i64::try_from(st.st_mtime_nsec).unwrap_or(0));
    e.device = (rustix::fs::major(st.st_rdev), rustix::fs::minor(st.st_rdev));
    if kind == Kind::Symlink {
        e.link = rustix::fs::readlink(path, Vec::new()).map_err(doing())?.into_bytes();
    }
    let send =
        |to: &mut dyn Write, bytes: &[u8]| to.write_all(bytes).map_err(Error::host("send the archive"));
    if kind != Kind::Directory && st.st_nlink > 1 {
        if let Some(first) = links.get(&(st.st_dev, st.st_ino)) {
            (e.kind, e.link) = (Kind::HardLink, first.clone());
            send(to, &tar::header(&e))?;
            return Ok(file_type);
        }
        links.insert((st.st_dev, st.st_ino), name.to_vec());
    }
    if kind != Kind::File {
        send(to, &tar::header(&e))?;
        return Ok(file_type);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(doing())?);
    e.size = file.metadata().map_err(Error::host(format!("read {}", path.display())))?.len();
    send(to, &tar::header(&e))?;
    let mut buf = vec![0; CHUNK];
    let mut left = e.size;
    while left > 0 {
        let most = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let n = match file.read(&mut buf[..most]) {
            // One that became shorter meanwhile ends in zeros: its size has been told.
            Ok(0) => {
                buf[..most].fill(0);
                most
            }
            Ok(n) => n,
            Err(error) => return Err(Error::host(format!("read {}", path.display()))(error)),
        };
        send(to, &buf[..n])?;
        left -= n as u64;
    }
    send(to, &[0; BLOCK][..tar::padding(e.size)])?;
    Ok(file_type)
}

#[cfg(test)]
mod tests;
