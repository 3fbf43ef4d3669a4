//! Reads, writes and syncs, and the buffers for them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::user::UserPtr;

use super::steps::{Step, armed, file};
use crate::core::sched::{PollEvents, without_waiting};
use crate::objects::vfs::File;
use crate::objects::vfs::file::Flight;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::io::{Input, IoVec, Output};
use crate::objects::vfs::rw::{RW_MAX, read_at, read_iovecs, write_at};
use crate::personality::Args;
use crate::process::async_io::held::HeldFile;
use crate::process::async_io::transfer::{self, Operation, Transfer};
use crate::process::async_io::uring::layout::{CqeFlags, SetupFlags, Sqe, SqeFlags};
use crate::process::async_io::uring::request::Request;
use crate::process::async_io::uring::{Buffer, Uring};
use crate::process::async_io::workers::{self, Job};
use crate::{Errno, Result};

/// `IORING_OP_` numbers of transfers, and of what does nothing.
pub(super) mod op {
    pub const NOP: u8 = 0;
    pub const READV: u8 = 1;
    pub const WRITEV: u8 = 2;
    pub const READ_FIXED: u8 = 4;
    pub const WRITE_FIXED: u8 = 5;
    pub const READ: u8 = 22;
    pub const WRITE: u8 = 23;
}

/// A transfer that a worker does.
struct Passed {
    request: Arc<Request>,
    transfer: Transfer,
}

impl Job for Passed {
    fn flies(&self) -> bool {
        self.transfer.flies()
    }

    fn begin(&self) -> Option<Box<dyn Flight>> {
        self.transfer.begin_flight()
    }

    fn run(self: Arc<Self>, begun: Option<Box<dyn Flight>>) {
        *self.request.found.lock() = Some(self.transfer.result(begun));
        self.request.wake_up();
    }
}

/// Gives a transfer to a worker, who waits for the device.
fn pass(a: &Args, request: &Arc<Request>, transfer: Transfer) -> Step {
    request.later.store(true, core::sync::atomic::Ordering::SeqCst);
    let passed = Passed { request: request.clone(), transfer };
    workers::slowly(&a.thread.process, Arc::new(passed));
    Step::Waits
}

/// A buffer that the program has given for a group of requests, and the flags that tell which.
pub(super) fn selected(request: &Request, most: u32) -> Result<(IoVec, u32)> {
    let mut provided = request.ring.provided.lock();
    let group = provided.get_mut(&request.sqe.buffer);
    let buffer = group.and_then(|g| g.pop_front()).ok_or(Errno::ENOBUFS)?;
    let len = if most == 0 { buffer.len } else { buffer.len.min(most.into()) };
    let flags = CqeFlags::BUFFER.bits() | u32::from(buffer.id) << 16;
    Ok((IoVec { base: UserPtr(buffer.at), len: len as usize }, flags))
}

/// Whether the bytes that a request names lie in the registered buffer that it names.
pub(super) fn is_registered(ring: &Uring, sqe: &Sqe) -> bool {
    let buffers = ring.buffers.lock();
    let buffer = buffers.as_ref().and_then(|b| b.get(usize::from(sqe.buffer)));
    let end = sqe.addr.checked_add(sqe.len.into());
    buffer.zip(end).is_some_and(|(b, end)| sqe.addr >= b.at && end <= b.at + b.len)
}

/// The program's buffers, and flags of the completion.
fn vectors(request: &Request) -> Result<(Vec<IoVec>, u32)> {
    let sqe = &request.sqe;
    let one = |sqe: &Sqe| IoVec { base: UserPtr(sqe.addr), len: (sqe.len as usize).min(RW_MAX) };
    if sqe.flags().contains(SqeFlags::BUFFER_SELECT) {
        // A vector of one has the length only.
        let most = match sqe.opcode {
            op::READV if sqe.len != 1 => return Err(Errno::EINVAL),
            op::READV => read_iovecs(UserPtr(sqe.addr), 1)?.first().map_or(0, |v| v.len as u32),
            _ => sqe.len,
        };
        let (vector, flags) = selected(request, most)?;
        return Ok((alloc::vec![vector], flags));
    }
    Ok((
        match sqe.opcode {
            op::READV | op::WRITEV => read_iovecs(UserPtr(sqe.addr), sqe.len as usize)?,
            op::READ_FIXED | op::WRITE_FIXED => {
                if !is_registered(&request.ring, sqe) {
                    return Err(Errno::EFAULT);
                }
                alloc::vec![one(sqe)]
            }
            _ => alloc::vec![one(sqe)],
        },
        0,
    ))
}

/// The place in the file; none is the current one.
fn place(file: &File, sqe: &Sqe) -> Result<Option<u64>> {
    if sqe.off == u64::MAX || !file.seekable() {
        return Ok(None);
    }
    if i64::try_from(sqe.off).is_err() { Err(Errno::EINVAL) } else { Ok(Some(sqe.off)) }
}

/// Reads or writes at the current position, and moves it.
fn at_position(f: &HeldFile, vectors: Vec<IoVec>, writes: bool) -> Result<usize> {
    if !f.positioned() {
        return if writes {
            write_at(f, &mut Input::iovecs(vectors), 0)
        } else {
            read_at(f, &mut Output::iovecs(vectors), 0)
        };
    }
    let mut own = f.pos.lock(false);
    if !writes {
        let n = read_at(f, &mut Output::iovecs(vectors), own.at)?;
        own.at += n as u64;
        return Ok(n);
    }
    if f.flags().contains(OpenFlags::APPEND) {
        let (n, end) = f.ops().append(f, &mut Input::iovecs(vectors), own.at)?;
        own.at = end;
        return Ok(n);
    }
    let n = write_at(f, &mut Input::iovecs(vectors), own.at)?;
    own.at += n as u64;
    Ok(n)
}

/// Whether readers and writers of a file may wait for each other.
fn may_wait(file: &HeldFile) -> bool {
    !file.seekable() && file.ops().pollable()
}

/// What becomes of a transfer for which a file was not ready: it is armed, and what has come meanwhile is taken at once.
fn again(a: &Args, request: &Arc<Request>, file: &HeldFile, writes: bool) -> Result<Step> {
    let wanted = if writes { PollEvents::OUT } else { PollEvents::IN };
    if request.is_armed() || armed(request, file, wanted).is_empty() {
        return Ok(Step::Waits);
    }
    transfer(a, request)
}

/// A buffer of a group that was not used.
fn give_back(request: &Request, vectors: &[IoVec], flags: u32) {
    if flags & CqeFlags::BUFFER.bits() == 0 {
        return;
    }
    let mut provided = request.ring.provided.lock();
    if let (Some(group), Some(v)) = (provided.get_mut(&request.sqe.buffer), vectors.first()) {
        group.push_front(Buffer { at: v.base.0, len: v.len as u64, id: (flags >> 16) as u16 });
    }
}

/// Whether a file that may have its readers and writers wait has them wait now: it is armed then.
fn must_wait(request: &Request, file: &HeldFile, writes: bool) -> bool {
    if !may_wait(file) {
        return false;
    }
    let wanted = if writes { PollEvents::OUT } else { PollEvents::IN };
    if !(file.poll(None) & (wanted | PollEvents::ALWAYS)).is_empty() {
        return false;
    }
    armed(request, file, wanted).is_empty()
}

/// IORING_OP_READ, WRITE, READV, WRITEV, READ_FIXED, WRITE_FIXED.
pub(super) fn transfer(a: &Args, request: &Arc<Request>) -> Result<Step> {
    /// RWF_HIPRI, DSYNC, SYNC, NOWAIT, APPEND.
    const KNOWN: u32 = 0x1f;
    let sqe = &request.sqe;
    let file = file(a, request)?;
    let writes = matches!(sqe.opcode, op::WRITE | op::WRITEV | op::WRITE_FIXED);
    if !(if writes { file.writable() } else { file.readable() }) {
        return Err(Errno::EBADF);
    }
    if sqe.op_flags & !KNOWN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if request.ring.flags.contains(SetupFlags::IOPOLL) && !file.flags().contains(OpenFlags::DIRECT) {
        return Err(Errno::EOPNOTSUPP);
    }
    let place = place(&file, sqe)?;
    if must_wait(request, &file, writes) {
        return Ok(Step::Waits);
    }
    let (vectors, flags) = vectors(request)?;
    let operation = if writes { Operation::Write } else { Operation::Read };
    if let Some(offset) = place
        && transfer::waits(&file, operation)
        && flags == 0
    {
        let file = HeldFile::new((**file).clone());
        return Ok(pass(a, request, Transfer { operation, file, vectors, offset }));
    }
    let n = match place {
        Some(at) if writes => write_at(&file, &mut Input::iovecs(vectors), at)?,
        Some(at) => read_at(&file, &mut Output::iovecs(vectors), at)?,
        None if may_wait(&file) => {
            // Somebody else may have taken what it was ready for.
            match without_waiting(|| at_position(&file, vectors.clone(), writes)) {
                Err(Errno::EAGAIN) => {
                    give_back(request, &vectors, flags);
                    return again(a, request, &file, writes);
                }
                n => n?,
            }
        }
        None => at_position(&file, vectors, writes)?,
    };
    Ok(Step::With(n as i64, flags))
}

/// IORING_OP_FSYNC.
pub(super) fn sync(a: &Args, request: &Arc<Request>) -> Result<Step> {
    /// IORING_FSYNC_DATASYNC.
    const DATASYNC: u32 = 1;
    if request.sqe.op_flags & !DATASYNC != 0 || request.sqe.addr != 0 {
        return Err(Errno::EINVAL);
    }
    let file = file(a, request)?;
    if transfer::waits(&file, Operation::Sync) {
        let file = HeldFile::new((**file).clone());
        let sync = Transfer { operation: Operation::Sync, file, vectors: Vec::new(), offset: 0 };
        return Ok(pass(a, request, sync));
    }
    file.ops().fsync(&file)?;
    Ok(Step::Done(0))
}

/// IORING_OP_PROVIDE_BUFFERS.
pub(super) fn provide(_: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    let count = u16::try_from(sqe.fd).ok().filter(|n| *n > 0).ok_or(Errno::EINVAL)?;
    let first = u16::try_from(sqe.off).map_err(|_| Errno::EINVAL)?;
    if sqe.len == 0 || usize::from(first) + usize::from(count) > 1 << 16 {
        return Err(Errno::EINVAL);
    }
    let mut provided = request.ring.provided.lock();
    let group = provided.entry(sqe.buffer).or_default();
    if group.len() + usize::from(count) > 1 << 16 {
        return Err(Errno::ENOMEM);
    }
    group.extend((0..count).map(|i| Buffer {
        at: sqe.addr + u64::from(i) * u64::from(sqe.len),
        len: sqe.len.into(),
        id: first + i,
    }));
    Ok(Step::Done(0))
}

/// IORING_OP_REMOVE_BUFFERS.
pub(super) fn withdraw(_: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    let most = u16::try_from(sqe.fd).ok().filter(|n| *n > 0).ok_or(Errno::EINVAL)?;
    let mut provided = request.ring.provided.lock();
    let group = provided.get_mut(&sqe.buffer).ok_or(Errno::ENOENT)?;
    let n = group.len().min(most.into());
    group.drain(..n);
    Ok(Step::Done(n as i64))
}
