//! A file of the service's that the kernel itself keeps something in: bytes at positions, without a name or attributes.

use alloc::vec::Vec;

use doppel_abi_service::storage::{BUFFER, Changes, Operation, Request, VOLUMES, flags, set};
use doppel_machine::sync::SpinLock;

use super::call::Call;
use super::{Storage, storage};
use crate::objects::vfs::inode::FileType;
use crate::objects::vfs::io::{Input, Output};
use crate::{Errno, Result};

/// `fallocate(2)`: the size stays, a hole is made.
const PUNCH: u32 = 3;

/// Such a file: a volume that is a regular file. Its first bytes may be in other ones, which are only read.
pub struct RawFile {
    storage: &'static Storage,
    node: u64,
    /// Those, the lowest first.
    below: SpinLock<Vec<Below>>,
}

/// A file that has the bytes up to `end` that none before it has.
#[derive(Clone, Copy)]
struct Below {
    end: u64,
    node: u64,
}

impl RawFile {
    /// The domain's volume with this number.
    ///
    /// # Errors
    /// ENODEV: there is none; EINVAL: it is no regular file; or what the service says.
    pub fn open(number: u64) -> Result<Self> {
        let storage = storage().ok_or(Errno::ENODEV)?;
        if number >= VOLUMES {
            return Err(Errno::ENODEV);
        }
        let call = storage.call();
        call.ask(Request::new(Operation::GetAttr, number))?;
        match FileType::from_mode(call.attributes().mode) {
            Some(FileType::Regular) => Ok(Self { storage, node: number, below: SpinLock::default() }),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What is in it up to this position is read from another volume from here on: the domain is a clone, whose own file is empty. The
    /// one below it has the number that follows it, the next one that follows that.
    pub fn begin_above(&self, end: u64) {
        let mut below = self.below.lock();
        let node = self.node + 1 + below.len() as u64;
        below.push(Below { end, node });
    }

    /// Up to which position there are files below it.
    pub fn end_below(&self) -> u64 {
        self.below.lock().last().map_or(0, |b| b.end)
    }

    /// How many files are below it.
    pub fn depth(&self) -> usize {
        self.below.lock().len()
    }

    /// Which file has what is at a position, and how many bytes from there on are in that.
    fn place(&self, at: u64) -> (u64, u64) {
        let below = self.below.lock();
        below.iter().find(|b| at < b.end).map_or((self.node, u64::MAX), |b| (b.node, b.end - at))
    }

    /// Reads at a position; gives how many bytes, fewer than asked for only at the end.
    ///
    /// # Errors
    /// What the service says. EIO: the domain is a clone without a service.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            let call = self.storage.call_if_there().ok_or(Errno::EIO)?;
            // Only now: while it waited the domain may have become a clone.
            let (node, most) = self.place(at + done as u64);
            let len = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len() - done);
            let mut out = Output::kernel(&mut bytes[done..done + len]);
            let (_, n) = call.read(node, &mut out, at + done as u64)?;
            if n == 0 {
                break;
            }
            done += n;
        }
        Ok(done)
    }

    /// Its size in bytes.
    ///
    /// # Errors
    /// What the service says.
    pub fn size(&self) -> Result<u64> {
        let call = self.storage.call();
        call.ask(Request::new(Operation::GetAttr, self.node))?;
        Ok(call.attributes().size)
    }

    /// Reads some bytes at a position to where a program wants them; gives how many.
    ///
    /// # Errors
    /// What the service says, or EFAULT.
    pub fn read_out(&self, out: &mut Output<'_>, at: u64) -> Result<usize> {
        self.storage.call().read(self.node, out, at).map(|(_, taken)| taken)
    }

    /// Writes some bytes of a program's at a position, at most `most`; gives how many.
    ///
    /// # Errors
    /// What the service says, or EFAULT.
    pub fn write_in(&self, input: &mut Input<'_>, at: u64, most: usize) -> Result<usize> {
        let call = self.storage.call();
        let n = call.gather(input, most)?;
        if n == 0 {
            return Ok(0);
        }
        let request = Request { a: at, b: n as u64, ..Request::new(Operation::Write, self.node) };
        Call::length(call.ask(request)?.value, n)
    }

    /// Makes bytes zero, which take no room then where the host's file system has holes.
    ///
    /// # Errors
    /// What the service says.
    pub fn zero(&self, at: u64, len: u64) -> Result<()> {
        let request = Request { a: at, b: len, flags: PUNCH, ..Request::new(Operation::Allocate, self.node) };
        self.storage.call().ask(request).map(drop)
    }

    /// Writes all bytes at a position.
    ///
    /// # Errors
    /// What the service says.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.write_all(at, bytes, 0)
    }

    /// The same, and what was written, also before, survives a power cut from here on.
    ///
    /// # Errors
    /// What the service says.
    pub fn write_synced(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.write_all(at, bytes, flags::DSYNC)
    }

    /// With these flags for the last request.
    fn write_all(&self, mut at: u64, mut bytes: &[u8], last: u32) -> Result<()> {
        while !bytes.is_empty() {
            let call = self.storage.call();
            let part = &bytes[..bytes.len().min(BUFFER)];
            call.fill(part);
            let flags = if part.len() == bytes.len() { last } else { 0 };
            let request =
                Request { a: at, b: part.len() as u64, flags, ..Request::new(Operation::Write, self.node) };
            let done =
                usize::try_from(call.ask(request)?.value).ok().filter(|n| (1..=part.len()).contains(n));
            let done = done.ok_or(Errno::EIO)?;
            at += done as u64;
            bytes = &bytes[done..];
        }
        Ok(())
    }

    /// What was written survives a power cut from here on.
    ///
    /// # Errors
    /// What the service says.
    pub fn sync(&self) -> Result<()> {
        let request = Request { flags: flags::DATA, ..Request::new(Operation::Sync, self.node) };
        self.storage.call().ask(request).map(drop)
    }

    /// It ends here. One that others read too may stay longer.
    pub fn cut(&self, size: u64) {
        let call = self.storage.call();
        call.changes(&Changes { size, ..Changes::default() });
        let _ = call.ask(Request { flags: set::SIZE, ..Request::new(Operation::SetAttr, self.node) });
    }

    /// These bytes are not needed any more. A file system without holes keeps them.
    pub fn punch(&self, at: u64, len: u64) {
        let _ = self.zero(at, len);
    }
}
