//! What open block devices do.

use super::{Device, Medium, SECTOR};
use crate::objects::vfs::file::{File, FileOps, Whence, seek_from};
use crate::objects::vfs::flags::{FallocateFlags, OpenFlags};
use crate::objects::vfs::io::{Input, Output};
use crate::{Errno, Result};

impl Device {
    /// Makes these bytes zero: sectors inside the device.
    pub(super) fn zero(&self, file: &File, at: u64, len: u64) -> Result<()> {
        if !file.writable() {
            return Err(Errno::EBADF);
        }
        if self.is_read_only() {
            return Err(Errno::EPERM);
        }
        let end = at.checked_add(len).ok_or(Errno::EINVAL)?;
        if !at.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) || len == 0 || end > self.size() {
            return Err(Errno::EINVAL);
        }
        self.medium().ok_or(Errno::ENXIO)?.zero(at, len)
    }
}

fn write_all(medium: &dyn Medium, input: &mut Input<'_>, offset: u64) -> Result<usize> {
    let mut done = 0;
    while input.remaining() > 0 {
        let room = medium.size().saturating_sub(offset + done as u64);
        if room == 0 {
            break;
        }
        match medium.write(input, offset + done as u64, usize::try_from(room).unwrap_or(usize::MAX)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

impl FileOps for Device {
    fn read(&self, _file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let Some(medium) = self.medium() else { return Ok(0) };
        let left = medium.size().saturating_sub(offset);
        out.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        while out.remaining() > 0 {
            match medium.read(out, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write(&self, file: &File, input: &mut Input<'_>, offset: u64) -> Result<usize> {
        let medium = self.medium().ok_or(Errno::ENXIO)?;
        if medium.is_read_only() {
            return Err(Errno::EPERM);
        }
        if input.remaining() == 0 {
            return Ok(0);
        }
        if offset >= medium.size() {
            return Err(Errno::ENOSPC);
        }
        let done = write_all(&*medium, input, offset)?;
        if file.flags().intersects(OpenFlags::DSYNC | OpenFlags::SYNC) {
            medium.sync()?;
        }
        Ok(done)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        let size = self.size();
        let base = match whence {
            Whence::Set => 0,
            Whence::Cur => file.pos.get(),
            Whence::End => size,
            Whence::Data | Whence::Hole => {
                let at = offset.cast_unsigned();
                if at >= size {
                    return Err(Errno::ENXIO);
                }
                return Ok(if whence == Whence::Data { at } else { size });
            }
        };
        // There is nothing behind the end, and nothing comes there.
        seek_from(base, offset).ok().filter(|to| *to <= size).ok_or(Errno::EINVAL)
    }

    fn ioctl(&self, file: &File, cmd: u32, arg: u64) -> Result<u64> {
        super::ioctl::ioctl(self, file, cmd, arg)
    }

    fn fsync(&self, _file: &File) -> Result<()> {
        self.medium().map_or(Ok(()), |medium| medium.sync())
    }

    fn release(&self, _file: &File) {
        self.let_go();
    }

    fn fallocate(&self, file: &File, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        if !mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.zero(file, offset, len)
    }
}
