//! What open files and directories of a volume do.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_service::storage::{
    Attributes, BUFFER, Changes, DirectoryEntry, Operation, Request, flags, set,
};
use doppel_machine::storage::CHANNEL;
use doppel_machine::user::UserPtr;

use super::call::Call;
use super::mapped;
use super::node::Node;
use super::reads::Past;
use super::storage;
use super::writes::LARGE;
use crate::core::subject::subject;
use crate::memory::MapSource;
use crate::objects::lookup::perm;
use crate::objects::vfs::file::{DirSink, File, FileOps, Flight, Splice, Whence, seek_from};
use crate::objects::vfs::flags::{FallocateFlags, OpenFlags};
use crate::objects::vfs::inode::{FileType, Inode, Stat};
use crate::objects::vfs::io::{Input, Output};
use crate::{Errno, Result};

impl Node {
    /// Sets the size, with other changes.
    pub(super) fn resize(&self, size: u64, changes: &Changes, which: u32) -> Result<()> {
        if i64::try_from(size).is_err() {
            return Err(Errno::EFBIG);
        }
        let mut held = self.lock_alone();
        if size == 0
            && let Some(m) = held.as_mut()
        {
            self.cut(m, 0);
        }
        self.write_out_held(&mut held);
        self.change(changes, which)?;
        if let Some(m) = mapped::in_use(&mut held, self.lease()) {
            m.object.truncate(size)?;
            m.count(self);
        }
        drop(held);
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
        if !cred.capable_over(p.uid, p.gid, perm::cap::FSETID) && mode != p.mode & 0o7777 {
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
        let limit = file.size_limit();
        if !append
            && file.flags().contains(OpenFlags::DIRECT)
            && let Some(done) = self.write_past(input, offset, limit)
        {
            return self.is_changed(file, done?);
        }
        let mut held = self.lock_alone();
        self.settle(&mut held);
        let (mut done, mut at) = self.write_waiting(file, input, offset, append, &mut held)?;
        // Where the end is matters only to the limit: the service finds it again when it writes.
        if append && limit != u64::MAX && done == 0 {
            at = self.asked().size;
        }
        if input.remaining() > 0 && !append {
            match self.write_pieces(input, at, limit, Some(&mut held)) {
                Ok((wrote, end)) => (done, at) = (done + wrote, end),
                Err(e) if done == 0 => return Err(e),
                Err(_) => {}
            }
        }
        while input.remaining() > 0 && append {
            let room = if limit == u64::MAX { u64::MAX } else { limit.saturating_sub(at) };
            if room == 0 {
                if done == 0 {
                    return Err(Errno::EFBIG);
                }
                break;
            }
            match self.append_some(input, usize::try_from(room).unwrap_or(usize::MAX), &mut held) {
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
        self.is_changed(file, (done, at))
    }

    /// What follows from a write, of which this was done.
    fn is_changed(&self, file: &File, done: (usize, u64)) -> Result<(usize, u64)> {
        self.drop_setid();
        if file.flags().intersects(OpenFlags::DSYNC | OpenFlags::SYNC) {
            self.sync(file, !file.flags().contains(OpenFlags::SYNC))?;
        }
        Ok(done)
    }

    /// Writes a buffer at most at the end, which the service finds; gives how much, where it ends, and whether that was less than
    /// could be had.
    fn append_some(
        &self,
        input: &mut Input<'_>,
        most: usize,
        held: &mut mapped::Held,
    ) -> Result<(usize, u64, bool)> {
        let call = self.ordered_call();
        let n = call.gather(input, most)?;
        if n == 0 {
            return Ok((0, 0, true));
        }
        let flags = flags::APPEND | self.holds();
        call.start(Request { b: n as u64, flags, ..self.request(Operation::Write) });
        let (wrote, end) = self.written(&call, n, Some(held))?;
        Ok((wrote, end, wrote < n))
    }

    /// Writes it to where it survives a power cut; what was written through mappings too.
    fn sync(&self, file: &File, data: bool) -> Result<()> {
        self.write_back()?;
        let synced = self.write_out_synced(if data { flags::DSYNC } else { flags::SYNC });
        self.write_out();
        let file = core::ptr::from_ref(file).addr();
        self.failed.take(file)?;
        if synced {
            return self.names_failed(file);
        }
        let call = self.ordered_call();
        self.names_failed(file)?;
        let how = if data { flags::DATA } else { 0 };
        call.ask(Request { flags: how, ..self.request(Operation::Sync) }).map(drop)
    }

    /// Its size, also of what waits.
    fn size_now(&self) -> u64 {
        {
            let lease = self.lease();
            let mut held = self.mapped.lock();
            self.settle(&mut held);
            if let Some(m) = mapped::in_use(&mut held, lease).filter(|_| lease.is_held()) {
                return m.object.len();
            }
        }
        self.look().size
    }

    fn list(&self, mut pos: u64, sink: &mut DirSink<'_>) -> Result<()> {
        loop {
            let bytes = {
                let call = self.ordered_call();
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

impl Node {
    /// What a write says for a program that has the file open.
    pub(super) fn holds(&self) -> u32 {
        self.is_held.store(true, Ordering::Release);
        flags::HELD
    }
}

impl FileOps for Node {
    fn splice(&self) -> Splice {
        if self.kind() == FileType::Directory { Splice::Neither } else { Splice::Both }
    }

    fn read(&self, file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        if self.kind() == FileType::Directory {
            return Err(Errno::EISDIR);
        }
        let direct = file.flags().contains(OpenFlags::DIRECT);
        let end = offset.saturating_add(out.remaining() as u64);
        {
            let lease = self.lease();
            let mut held = self.mapped.lock();
            self.settle(&mut held);
            match mapped::in_use(&mut held, lease) {
                Some(m) if m.is_mapped() => return m.object.read(out, offset),
                // Several of one file may be under way then, as none leaves a page.
                ref here if direct && here.as_ref().is_none_or(|m| !m.is_here(offset, end)) => {
                    self.write_out_held(&mut held);
                }
                _ if lease.is_held() => return self.read_kept(&mut held, lease, out, offset),
                _ => {}
            }
        }
        if out.remaining() >= LARGE {
            let done = self.read_pieces(out, offset, end, Past { direct, filled: false })?;
            return Ok(done as usize);
        }
        // No more than a buffer holds.
        self.call().read(self.id, out, offset).map(|(_, taken)| taken)
    }

    fn begin_read(&self, _file: &File, to: UserPtr, len: usize, offset: u64) -> Option<Box<dyn Flight>> {
        Some(Box::new(self.fly(to, len, offset)?))
    }

    fn write(&self, file: &File, input: &mut Input<'_>, offset: u64) -> Result<usize> {
        self.write_all(file, input, offset, file.flags().contains(OpenFlags::APPEND)).map(|r| r.0)
    }

    fn append(&self, file: &File, input: &mut Input<'_>, offset: u64) -> Result<(usize, u64)> {
        self.write_all(file, input, offset, true)
    }

    /// Others see that it is closed at once, if the service has it open for that.
    fn release(&self, file: &File) {
        // A clone may have no service.
        if file.writable()
            && self.is_held.swap(false, Ordering::AcqRel)
            && let Some(storage) = storage()
        {
            storage.link.lock().tell(self.request(Operation::Release));
            CHANNEL.ring();
        }
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        let base = match whence {
            Whence::Set => 0,
            Whence::Cur => file.pos.get(),
            Whence::End if self.kind() == FileType::Directory => i64::MAX.cast_unsigned(),
            Whence::End => self.size_now(),
            Whence::Data | Whence::Hole => {
                let a = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                self.write_out();
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
                let left = self.size_now().saturating_sub(file.pos.get());
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

    fn fsync(&self, file: &File) -> Result<()> {
        self.sync(file, false)
    }

    fn fallocate(&self, file: &File, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|e| i64::try_from(*e).is_ok()).ok_or(Errno::EFBIG)?;
        if !mode.contains(FallocateFlags::KEEP_SIZE) && end > file.size_limit() {
            return Err(Errno::EFBIG);
        }
        // What moves bytes moves those that were written through mappings too.
        self.write_back()?;
        let mut held = self.lock_alone();
        self.write_out_held(&mut held);
        let call = self.ordered_call();
        call.ask(Request { a: offset, b: len, flags: mode.bits(), ..self.request(Operation::Allocate) })
            .inspect_err(|_| self.changed())?;
        let now: Attributes = self.note(&call, true);
        drop(call);
        if let Some(m) = mapped::in_use(&mut held, self.lease()) {
            match mode - FallocateFlags::KEEP_SIZE {
                FallocateFlags::ALLOCATE if now.size <= m.object.len() => {}
                FallocateFlags::ALLOCATE => m.object.truncate(now.size)?,
                _ => m.reload(self, now.size)?,
            }
            m.count(self);
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
