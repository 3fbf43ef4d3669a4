//! What open files and directories of a volume do.

use alloc::vec::Vec;

use doppel_abi_service::storage::{
    Attributes, BUFFER, Changes, DirectoryEntry, Operation, Request, flags, set,
};

use super::call::Call;
use super::mapped;
use super::node::Node;
use crate::core::subject::subject;
use crate::memory::MapSource;
use crate::objects::lookup::perm;
use crate::objects::vfs::file::{DirSink, File, FileOps, Splice, Whence, seek_from};
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::inode::{FileType, Inode, Stat};
use crate::objects::vfs::io::{Input, Output};
use crate::{Errno, Result};

/// `fallocate(2)`: the size stays.
const KEEP_SIZE: u32 = 1;

impl Node {
    /// Sets the size, with other changes.
    pub(super) fn resize(&self, size: u64, changes: &Changes, which: u32) -> Result<()> {
        if i64::try_from(size).is_err() {
            return Err(Errno::EFBIG);
        }
        let mut mapped = self.mapped.lock();
        self.change(changes, which)?;
        if let Some(m) = mapped::in_use(&mut mapped) {
            m.object.truncate(size)?;
        }
        drop(mapped);
        self.drop_setid();
        Ok(())
    }

    /// Writing takes set-user-ID and set-group-ID away, unless a privileged process writes.
    fn drop_setid(&self) {
        let p = Inode::perm(self);
        if p.mode & 0o6000 == 0 || self.kind() != FileType::Regular {
            return;
        }
        let cred = subject().cred();
        let mode = p.mode & 0o7777 & !perm::lost_setid(&cred, p);
        if !cred.capable(perm::cap::FSETID) && mode != p.mode & 0o7777 {
            // What cannot be changed any more is a file that is no more.
            let _ = self.change(&Changes { mode, ..Changes::default() }, set::MODE);
        }
    }

    /// Writes all there is at `offset`, or at the end; gives how much, and where that ends.
    fn write_all(
        &self,
        file: &File,
        input: &mut Input<'_>,
        offset: u64,
        append: bool,
    ) -> Result<(usize, u64)> {
        if input.remaining() == 0 {
            return Ok((0, offset));
        }
        let mut held = self.mapped.lock();
        let limit = file.size_limit();
        // Where the end is matters only to the limit: the service finds it again when it writes.
        let mut at = if append && limit != u64::MAX { self.look().size } else { offset };
        let mut done = 0;
        while input.remaining() > 0 {
            let room = if append && limit == u64::MAX { u64::MAX } else { limit.saturating_sub(at) };
            if room == 0 {
                if done == 0 {
                    return Err(Errno::EFBIG);
                }
                break;
            }
            let r =
                self.write_some(input, at, append, usize::try_from(room).unwrap_or(usize::MAX), &mut held);
            match r {
                Ok((0, _, _)) => break,
                Ok((wrote, end, short)) => {
                    done += wrote;
                    at = end;
                    if short {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        drop(held);
        self.drop_setid();
        if file.flags().intersects(OpenFlags::DSYNC | OpenFlags::SYNC) {
            self.sync(!file.flags().contains(OpenFlags::SYNC))?;
        }
        Ok((done, at))
    }

    /// Writes a buffer at most; gives how much, where it ends, and whether that was less than could be had.
    fn write_some(
        &self,
        input: &mut Input<'_>,
        at: u64,
        append: bool,
        most: usize,
        held: &mut Option<mapped::Mapped>,
    ) -> Result<(usize, u64, bool)> {
        let call = self.call();
        let n = call.gather(input, most)?;
        if n == 0 {
            return Ok((0, at, true));
        }
        let how = if append { flags::APPEND } else { 0 };
        let answer =
            call.ask(Request { a: at, b: n as u64, flags: how, ..self.request(Operation::Write) })?;
        let wrote = Call::length(answer.value, n)?;
        self.note(&call);
        if let Some(m) = mapped::in_use(held) {
            let mut bytes = alloc::vec![0; wrote];
            call.take(0, &mut bytes);
            m.wrote(&bytes, answer.node.saturating_sub(wrote as u64))?;
        }
        Ok((wrote, answer.node, wrote < n))
    }

    /// Writes it to where it survives a power cut; what was written through mappings too.
    fn sync(&self, data: bool) -> Result<()> {
        self.write_back()?;
        let how = if data { flags::DATA } else { 0 };
        self.call().ask(Request { flags: how, ..self.request(Operation::Sync) }).map(drop)
    }

    fn list(&self, mut pos: u64, sink: &mut DirSink<'_>) -> Result<()> {
        loop {
            let bytes = {
                let call = self.call();
                let len = call.ask(Request { a: pos, ..self.request(Operation::ReadDir) })?.value;
                let mut bytes: Vec<u8> = alloc::vec![0; Call::length(len, BUFFER)?];
                call.take(0, &mut bytes);
                bytes
            };
            if bytes.is_empty() {
                return Ok(());
            }
            let mut rest = bytes.as_slice();
            while let Some((head, behind)) = rest.split_first_chunk() {
                let entry = DirectoryEntry::decode(head);
                let (name, behind) = behind.split_at_checked(entry.len.into()).ok_or(Errno::EIO)?;
                let kind = FileType::from_mode(u32::from(entry.kind) << 12).unwrap_or(FileType::Regular);
                if !sink(entry.ino, entry.next, kind, name) {
                    return Ok(());
                }
                (pos, rest) = (entry.next, behind);
            }
        }
    }
}

impl FileOps for Node {
    fn splice(&self) -> Splice {
        if self.kind() == FileType::Directory { Splice::Neither } else { Splice::Both }
    }

    fn read(&self, _file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        if self.kind() == FileType::Directory {
            return Err(Errno::EISDIR);
        }
        {
            let mut held = self.mapped.lock();
            if let Some(m) = mapped::in_use(&mut held) {
                return m.object.read(out, offset);
            }
        }
        let mut done = 0;
        while out.remaining() > 0 {
            let want = out.remaining().min(BUFFER);
            match self.call().read(self.id, out, offset + done as u64) {
                Ok((got, taken)) => {
                    done += taken;
                    if got < want || taken < got {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write(&self, file: &File, input: &mut Input<'_>, offset: u64) -> Result<usize> {
        self.write_all(file, input, offset, file.flags().contains(OpenFlags::APPEND)).map(|r| r.0)
    }

    fn append(&self, file: &File, input: &mut Input<'_>, offset: u64) -> Result<(usize, u64)> {
        self.write_all(file, input, offset, true)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        let base = match whence {
            Whence::Set => 0,
            Whence::Cur => file.pos.get(),
            Whence::End if self.kind() == FileType::Directory => i64::MAX.cast_unsigned(),
            Whence::End => self.look().size,
            Whence::Data | Whence::Hole => {
                let a = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                let how = whence as u32;
                return Ok(self
                    .call()
                    .ask(Request { a, flags: how, ..self.request(Operation::Seek) })?
                    .value);
            }
        };
        seek_from(base, offset)
    }

    fn pollable(&self) -> bool {
        false
    }

    fn ioctl(&self, file: &File, cmd: u32, arg: u64) -> Result<u64> {
        const FIONREAD: u32 = 0x541b;
        match cmd {
            FIONREAD if self.kind() == FileType::Regular => {
                let left = self.look().size.saturating_sub(file.pos.get());
                File::copy_out(arg, &(left.min(i32::MAX as u64) as i32))
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn map(&self, file: &File) -> Result<MapSource> {
        if self.kind() != FileType::Regular {
            return Err(Errno::ENODEV);
        }
        self.map_pages(file.writable())
    }

    fn readdir(&self, _file: &File, pos: u64, sink: &mut DirSink<'_>) -> Result<()> {
        if self.kind() != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.list(pos, sink)
    }

    fn fsync(&self, _file: &File) -> Result<()> {
        self.sync(false)
    }

    fn fallocate(&self, file: &File, mode: u32, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|e| i64::try_from(*e).is_ok()).ok_or(Errno::EFBIG)?;
        if mode & KEEP_SIZE == 0 && end > file.size_limit() {
            return Err(Errno::EFBIG);
        }
        // What moves bytes moves those that were written through mappings too.
        self.write_back()?;
        let mut held = self.mapped.lock();
        let call = self.call();
        call.ask(Request { a: offset, b: len, flags: mode, ..self.request(Operation::Allocate) })?;
        let now: Attributes = self.note(&call);
        drop(call);
        if let Some(m) = mapped::in_use(&mut held) {
            match mode & !KEEP_SIZE {
                0 if now.size <= m.object.len() => {}
                0 => m.object.truncate(now.size)?,
                _ => m.reload(self, now.size)?,
            }
        }
        drop(held);
        self.drop_setid();
        Ok(())
    }

    fn truncate(&self, _file: &File, len: u64) -> Result<()> {
        self.resize(len, &Changes { size: len, ..Changes::default() }, set::SIZE)
    }

    fn stat(&self, _file: &File) -> Result<Stat> {
        Ok(Inode::stat(self))
    }
}
