//! Operations on the bytes of files.

use std::os::fd::{AsFd, OwnedFd};

use doppel_abi_service::storage::{Amount, BUFFER, buffer, flags};
use doppel_sys::shared::offset;
use rustix::fs::{AtFlags, FallocateFlags, FileType, OFlags, SeekFrom};
use rustix::io::Errno;

use super::attributes::modified;
use super::bounds::room_for;
use super::{Done, Result, Work, shared, statx};
use crate::nodes::errno;

/// `fallocate(2)`: KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE.
const ALLOCATE: u32 = 1 | 2 | 8 | 16 | 32;
const PUNCH: u32 = 2;
const COLLAPSE: u32 = 8;
const INSERT: u32 = 32;
/// `lseek(2)`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl Work<'_> {
    /// The file's bytes on the device; none: they are to be had through the host's cache alone.
    fn device(&self, file: &OwnedFd, access: OFlags) -> Option<OwnedFd> {
        if !self.request.is_direct() {
            return None;
        }
        self.host.open(file.as_fd(), access | OFlags::DIRECT).ok()
    }

    pub(super) fn length(&self) -> Result<usize> {
        usize::try_from(self.request.b).ok().filter(|n| *n <= BUFFER).ok_or(Errno::INVAL)
    }

    pub(super) fn read(&mut self) -> Result<Done> {
        let (r, len) = (self.request, self.length()?);
        let file = self.data(r.node, false)?;
        let at = offset(buffer(r.slot));
        if let Some(device) = self.device(&file, OFlags::RDONLY) {
            match self.memory().read_from_at(device.as_fd(), r.a, at, len, true).map_err(errno) {
                // The device has larger blocks.
                Err(Errno::INVAL) => {}
                done => return Ok(Done { value: done? as u64, node: 0 }),
            }
        }
        let read = |waits| self.memory().read_from_at(file.as_fd(), r.a, at, len, waits).map_err(errno);
        let done = match read(self.waits) {
            // There is no other way on this file system.
            Err(Errno::OPNOTSUPP) if !self.waits => read(true)?,
            // The rest may be on the device, or the file ends here.
            Ok(n) if n < len && !self.waits && self.goes_on(&file, r.a, n)? => return Err(Errno::AGAIN),
            done => done?,
        };
        Ok(Done { value: done as u64, node: 0 })
    }

    fn goes_on(&self, file: &std::os::fd::OwnedFd, at: u64, n: usize) -> Result<bool> {
        Ok(rustix::fs::fstat(file)?.st_size.cast_unsigned() > at.saturating_add(n as u64))
    }

    pub(super) fn write(&mut self) -> Result<Done> {
        let (r, len) = (self.request, self.length()?);
        self.nodes().writable(r.node)?;
        let file = self.data(r.node, true)?;
        if r.flags & flags::HELD != 0 {
            self.nodes().hold_writer(r.node);
        }
        let (at, done) = if r.flags & flags::APPEND == 0 {
            (r.a, self.write_at(&file, r.a, len)?)
        } else {
            let s = rustix::fs::fstat(&file)?;
            // Nobody of this process appends meanwhile.
            let host = self.host;
            let _alone = host.lock(s.st_ino ^ s.st_dev.rotate_left(32));
            let end = |_: &Self| Ok(rustix::fs::fstat(&file)?.st_size.cast_unsigned());
            let at = self.found_first(end)?;
            (at, self.write_at(&file, at, len)?)
        };
        if r.other != 0 {
            // The bytes are written in any case.
            let _ = rustix::fs::futimens(&file, &modified(r.other.cast_signed()));
        }
        let synced = r.flags & (flags::DSYNC | flags::SYNC);
        if synced != 0 {
            // That may take long, and others write meanwhile.
            self.was_heard(true);
        }
        match synced {
            0 => {}
            flags::DSYNC => rustix::fs::fdatasync(&file)?,
            _ => rustix::fs::fsync(&file)?,
        }
        self.show_attributes(&statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?);
        Ok(Done { value: done as u64, node: at.saturating_add(done as u64) })
    }

    /// Writes what fits into the volume's bound.
    fn write_at(&mut self, file: &OwnedFd, at: u64, len: usize) -> Result<usize> {
        let r = self.request;
        shared::check(r.node, file, at, at.saturating_add(len as u64))?;
        let (len, room) = self.fitting(r.node, file, at, len)?;
        let device = self.device(file, OFlags::RDWR);
        self.charged(r.node, file, room, |work| {
            let from = offset(buffer(r.slot));
            let write = |file: &OwnedFd| work.client.memory.write_to_at(file.as_fd(), at, from, len);
            let done = match device.as_ref().map(write) {
                // The device has larger blocks, or a bound leaves less than one.
                Some(Err(e)) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => write(file),
                Some(done) => done,
                None => write(file),
            };
            done.map(|n| (n, 0)).map_err(errno)
        })
    }

    pub(super) fn sync(&mut self) -> Result<Done> {
        let file = self.data(self.request.node, false)?;
        if self.request.flags & flags::ALL != 0 {
            rustix::fs::syncfs(&file)?;
        } else if self.request.flags & flags::DATA == 0 {
            rustix::fs::fsync(&file)?;
        } else {
            rustix::fs::fdatasync(&file)?;
        }
        Ok(Done::default())
    }

    pub(super) fn allocate(&mut self) -> Result<Done> {
        let r = self.request;
        let mode = r.flags & !flags::AGAIN;
        self.nodes().writable(r.node)?;
        let file = self.data(r.node, true)?;
        if mode & !ALLOCATE != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let end = if mode & (COLLAPSE | INSERT) == 0 { r.a.saturating_add(r.b) } else { u64::MAX };
        shared::check(r.node, &file, r.a, end)?;
        if mode & (COLLAPSE | INSERT) != 0 {
            let size = || Ok(rustix::fs::fstat(&file)?.st_size.cast_unsigned());
            let first = self.found_first(|_| size())?;
            // What moves bytes moves them once.
            if self.before.is_some() && size()? != first {
                return self.show(&file, r.node);
            }
        }
        let needs = if mode & (PUNCH | COLLAPSE | INSERT) == 0 { room_for(r.a, r.b) } else { 0 };
        self.charged(r.node, &file, Amount { bytes: needs, inodes: 0 }, |_| {
            let how = FallocateFlags::from_bits_retain(mode);
            rustix::fs::fallocate(&file, how, r.a, r.b).map(|()| ((), 0))
        })?;
        self.show(&file, r.node)
    }

    pub(super) fn seek(&mut self) -> Result<Done> {
        let r = self.request;
        // A directory has a position that its entries are read from.
        if self.nodes().kind_of(r.node)? == FileType::Directory {
            return Err(Errno::ISDIR);
        }
        let file = self.data(r.node, false)?;
        let from = match r.flags & !flags::AGAIN {
            SEEK_DATA => SeekFrom::Data(r.a),
            SEEK_HOLE => SeekFrom::Hole(r.a),
            _ => return Err(Errno::INVAL),
        };
        Ok(Done { value: rustix::fs::seek(&file, from)?, node: 0 })
    }
}
