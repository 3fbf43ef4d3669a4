//! Operations on disks (`common/disk`): bytes at places, inside the disk, and nothing else.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use doppel_abi_service::storage::{Operation, buffer, flags};
use doppel_disk::Stack;
use doppel_sys::shared::offset;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::{Done, Result, Work, statx};
use crate::nodes::errno;

/// `fallocate(2)`: PUNCH_HOLE with KEEP_SIZE.
const PUNCH: u32 = 3;
/// Zeros that are given out at a time.
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];

impl Work<'_> {
    /// Does what a request asks of a disk. All of it can be done again.
    pub(super) fn on_disk(&mut self, disk: &Stack<File>) -> Result<Done> {
        let r = self.request;
        match r.operation {
            Operation::GetAttr => {
                let file = self.nodes().name(r.node)?;
                let mut s = statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?;
                s.stx_size = disk.size();
                self.show_attributes(&s);
                Ok(Done { value: 0, node: r.node })
            }
            Operation::Read => self.read_disk(disk),
            Operation::Write if r.flags & flags::APPEND == 0 => self.write_disk(disk),
            Operation::Sync => disk.flush().map(|()| Done::default()).map_err(errno),
            Operation::Allocate => self.zero_disk(disk),
            _ => Err(Errno::PERM),
        }
    }

    fn read_disk(&self, disk: &Stack<File>) -> Result<Done> {
        let r = self.request;
        let left = usize::try_from(disk.size().saturating_sub(r.a)).unwrap_or(usize::MAX);
        let len = self.length()?.min(left);
        if len == 0 {
            return Ok(Done::default());
        }
        let to = offset(buffer(r.slot));
        let read = disk.read(r.a, len, |place, done, len| match place {
            Some((file, at)) => self.fetch(file, at, to + done, len),
            None => {
                for from in (0..len).step_by(ZEROS.len()) {
                    self.memory().write(to + done + from, &ZEROS[..ZEROS.len().min(len - from)]);
                }
                Ok(())
            }
        });
        read.map(|()| Done { value: len as u64, node: 0 }).map_err(errno)
    }

    /// Reads all of a piece.
    fn fetch(&self, file: &File, at: u64, to: usize, len: usize) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let read = |waits| {
                self.memory().read_from_at(file.as_fd(), at + done as u64, to + done, len - done, waits)
            };
            match read(self.waits) {
                // There is no other way on this file system.
                Err(e) if !self.waits && e.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                    done += read(true)?;
                }
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => done += read?,
            }
        }
        Ok(())
    }

    fn write_disk(&self, disk: &Stack<File>) -> Result<Done> {
        let (r, len) = (self.request, self.length()?);
        self.nodes().writable(r.node)?;
        inside(disk, r.a, len as u64)?;
        let from = offset(buffer(r.slot));
        let put = |file: &File, at, len| self.memory().write_to_at(file.as_fd(), at, from, len);
        let done = disk.write(r.a, len, put).map_err(errno)?;
        if r.is_synced() {
            disk.flush().map_err(errno)?;
        }
        Ok(Done { value: done as u64, node: r.a + done as u64 })
    }

    fn zero_disk(&self, disk: &Stack<File>) -> Result<Done> {
        let r = self.request;
        self.nodes().writable(r.node)?;
        if r.flags & !flags::AGAIN != PUNCH {
            return Err(Errno::OPNOTSUPP);
        }
        inside(disk, r.a, r.b)?;
        disk.zero(r.a, r.b).map(|()| Done::default()).map_err(errno)
    }
}

/// EINVAL if this is not all inside the disk.
fn inside(disk: &Stack<File>, at: u64, len: u64) -> Result<()> {
    match at.checked_add(len) {
        Some(end) if end <= disk.size() => Ok(()),
        _ => Err(Errno::INVAL),
    }
}
