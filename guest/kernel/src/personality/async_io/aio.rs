//! Kernel AIO (`io_setup(2)`, `io_submit(2)`, `io_getevents(2)`, `io_cancel(2)`, `io_destroy(2)`).
//!
//! A request is done when it is submitted, as on Linux, unless it waits for a device or for a file to become ready.

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;
use doppel_machine::user::UserPtr;

use crate::core::numbers::numbers;
use crate::core::sched::PollEvents;
use crate::core::time::Timespec;
use crate::objects::ipc::eventfd::EventFd;
use crate::objects::ipc::timeout::Timeout;
use crate::objects::vfs::File;
use crate::objects::vfs::io::IoVec;
use crate::objects::vfs::rw::{RW_MAX, read_iovecs};
use crate::personality::Support::{Full, Partial};
use crate::personality::events::mask::with_mask;
use crate::personality::{Args, Syscall, call};
use crate::process::async_io::armed::Armed;
use crate::process::async_io::context::{CONTEXTS, Context, Ticket};
use crate::process::async_io::held::HeldFile;
use crate::process::async_io::transfer::{Operation, Transfer};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::IO_SETUP, sys_io_setup(u32, UserPtr), Full, ""),
    call!(nr::IO_DESTROY, sys_io_destroy(u64), Full, ""),
    call!(
        nr::IO_SUBMIT,
        sys_io_submit(u64, i64, UserPtr),
        Partial,
        "what waits for no device is done at once; priorities have no effect",
    ),
    call!(nr::IO_CANCEL, sys_io_cancel(u64, UserPtr, UserPtr), Full, ""),
    call!(nr::IO_GETEVENTS, sys_io_getevents(u64, i64, i64, UserPtr, UserPtr), Full, ""),
    call!(nr::IO_PGETEVENTS, sys_io_pgetevents(u64, i64, i64, UserPtr, UserPtr, UserPtr), Full, ""),
];

numbers! {
    /// `IOCB_CMD_` operations.
    enum Command {
        Pread = 0,
        Pwrite = 1,
        Fsync = 2,
        Fdsync = 3,
        Poll = 5,
        Preadv = 7,
        Pwritev = 8,
    }
}

bitflags::bitflags! {
    /// `IOCB_FLAG_` flags.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct IocbFlags: u32 {
        const RESFD = 1;
        const IOPRIO = 2;
    }
}

pod_struct! {
    /// `struct iocb`.
    pub struct Iocb {
        /// Given back with the event.
        pub data: u64,
        /// Written by the kernel.
        pub key: u32,
        /// `RWF_` flags.
        pub rw_flags: u32,
        /// What to do, and its priority in the upper half.
        pub command: u32,
        /// Descriptor.
        pub fd: i32,
        /// Address, or events of a poll.
        pub buffer: u64,
        /// Length.
        pub len: u64,
        /// Place in the file.
        pub offset: i64,
        /// Zero.
        pub reserved: u64,
        /// `IOCB_FLAG_` flags.
        pub flags: u32,
        /// Event counter.
        pub counter: i32,
    }
}

/// Most requests that Linux counts of one instance; it allows fewer of all together.
const MOST: u32 = 0x40_0000;

fn sys_io_setup(a: &Args, events: u32, id: UserPtr) -> Result<u64> {
    let old: u64 = id.read()?;
    if old != 0 || events == 0 || events > MOST {
        return Err(Errno::EINVAL);
    }
    let mm = &a.thread.space().mm;
    let context = Context::new(mm, events)?;
    let at = context.at();
    CONTEXTS.add(a.thread.process.pid, context);
    if id.write(&at).is_err() {
        // It was made this moment: nobody else knows it.
        CONTEXTS.destroy(a.thread.process.pid, at, mm)?;
        return Err(Errno::EFAULT);
    }
    Ok(0)
}

fn sys_io_destroy(a: &Args, id: u64) -> Result<u64> {
    CONTEXTS.destroy(a.thread.process.pid, id, &a.thread.space().mm)?;
    Ok(0)
}

fn sys_io_submit(a: &Args, id: u64, count: i64, list: UserPtr) -> Result<u64> {
    let count = u64::try_from(count).map_err(|_| Errno::EINVAL)?;
    let context = CONTEXTS.find(a.thread.process.pid, id)?;
    for i in 0..count.min(context.room().into()) {
        let submitted =
            list.add(i * 8).read::<u64>().map_err(Errno::from).and_then(|at| submit(a, &context, at));
        match submitted {
            Ok(()) => {}
            Err(e) if i == 0 => return Err(e),
            Err(_) => return Ok(i),
        }
    }
    Ok(count.min(context.room().into()))
}

fn submit(a: &Args, context: &Arc<Context>, at: u64) -> Result<()> {
    let iocb: Iocb = UserPtr(at).read()?;
    if iocb.reserved != 0 || i64::try_from(iocb.len).is_err() {
        return Err(Errno::EINVAL);
    }
    context.reserve()?;
    let begun = begin(a, context, at, &iocb);
    if begun.is_err() {
        context.release();
    }
    begun
}

/// Begins a request, for which there is a place in the ring.
fn begin(a: &Args, context: &Arc<Context>, at: u64, iocb: &Iocb) -> Result<()> {
    let file = HeldFile::new(a.thread.file(iocb.fd)?.clone());
    let flags = IocbFlags::from_bits_truncate(iocb.flags);
    let counter = if flags.contains(IocbFlags::RESFD) {
        let counter = HeldFile::new(a.thread.file(iocb.counter)?.clone());
        counter.downcast::<EventFd>().ok_or(Errno::EINVAL)?;
        Some(counter)
    } else {
        None
    };
    UserPtr(at).add(8).write(&0u32)?;
    let command = Command::try_from(iocb.command & 0xffff)?;
    let ticket = Ticket { data: iocb.data, object: at, counter };
    match command {
        Command::Poll => poll(a, context, file, ticket, iocb),
        Command::Fsync | Command::Fdsync => {
            if iocb.buffer != 0 || iocb.offset != 0 || iocb.len != 0 || iocb.rw_flags != 0 {
                return Err(Errno::EINVAL);
            }
            let sync = Transfer { operation: Operation::Sync, file, vectors: Vec::new(), offset: 0 };
            sync.begin(&a.thread.process, context, ticket)
        }
        Command::Pread | Command::Pwrite | Command::Preadv | Command::Pwritev => {
            let writes = matches!(command, Command::Pwrite | Command::Pwritev);
            let offset = checked(&file, writes, flags, iocb)?;
            let vectors = if matches!(command, Command::Preadv | Command::Pwritev) {
                read_iovecs(UserPtr(iocb.buffer), usize::try_from(iocb.len).map_err(|_| Errno::EINVAL)?)?
            } else {
                alloc::vec![IoVec { base: UserPtr(iocb.buffer), len: (iocb.len as usize).min(RW_MAX) }]
            };
            let operation = if writes { Operation::Write } else { Operation::Read };
            Transfer { operation, file, vectors, offset }.begin(&a.thread.process, context, ticket)
        }
    }
}

/// Whether a file can be read or written like this; the place in it.
fn checked(file: &File, writes: bool, flags: IocbFlags, iocb: &Iocb) -> Result<u64> {
    /// RWF_HIPRI, DSYNC, SYNC: nothing is kept back from the device by what is done at once.
    const KNOWN: u32 = 7;
    if !(if writes { file.writable() } else { file.readable() }) {
        return Err(Errno::EBADF);
    }
    // The class of a priority: real time (for root), best effort, idle.
    if flags.contains(IocbFlags::IOPRIO) && iocb.command >> 16 >> 13 > 3 {
        return Err(Errno::EINVAL);
    }
    if iocb.rw_flags & !KNOWN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    match u64::try_from(iocb.offset) {
        Ok(offset) => Ok(offset),
        Err(_) if !file.seekable() => Ok(0),
        Err(_) => Err(Errno::EINVAL),
    }
}

fn poll(a: &Args, context: &Arc<Context>, file: HeldFile, ticket: Ticket, iocb: &Iocb) -> Result<()> {
    if u16::try_from(iocb.buffer).is_err() || iocb.offset != 0 || iocb.len != 0 || iocb.rw_flags != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = PollEvents::from_bits_retain(iocb.buffer as u32);
    let process = a.thread.process.clone();
    context.poll(|request| Armed::new(process, file, wanted, request), ticket);
    Ok(())
}

fn sys_io_cancel(a: &Args, id: u64, iocb: UserPtr, _result: UserPtr) -> Result<u64> {
    if iocb.add(8).read::<u32>()? != 0 {
        return Err(Errno::EINVAL);
    }
    let context = CONTEXTS.find(a.thread.process.pid, id)?;
    context.cancel(iocb.0)?;
    // Its event tells.
    Err(Errno::EINPROGRESS)
}

/// How long to wait. Unlike other calls this one takes any time, and a negative one never ends.
fn timeout(at: UserPtr) -> Result<Timeout> {
    if at.is_null() {
        return Ok(Timeout::never());
    }
    let t: Timespec = at.read()?;
    let ns = i128::from(t.sec) * 1_000_000_000 + i128::from(t.nsec);
    Ok(u64::try_from(ns).map_or(Timeout::never(), Timeout::after))
}

fn events(a: &Args, id: u64, least: i64, most: i64, to: UserPtr, timeout: Timeout) -> Result<u64> {
    let context = CONTEXTS.find(a.thread.process.pid, id)?;
    let (Ok(least), Ok(most)) = (usize::try_from(least), usize::try_from(most)) else {
        return Err(Errno::EINVAL);
    };
    if least > most {
        return Err(Errno::EINVAL);
    }
    context.wait(least, most, to, timeout)
}

fn sys_io_getevents(
    a: &Args,
    id: u64,
    least: i64,
    most: i64,
    to: UserPtr,
    timeout_at: UserPtr,
) -> Result<u64> {
    let timeout = timeout(timeout_at)?;
    // It never goes on after a signal.
    events(a, id, least, most, to, timeout)
        .map_err(|e| if e == Errno::ERESTARTSYS { Errno::EINTR } else { e })
}

pod_struct! {
    /// `struct __aio_sigset`.
    pub struct AioSigset {
        /// Address of the mask.
        pub mask: u64,
        /// Its size.
        pub size: u64,
    }
}

fn sys_io_pgetevents(
    a: &Args,
    id: u64,
    least: i64,
    most: i64,
    to: UserPtr,
    timeout_at: UserPtr,
    mask: UserPtr,
) -> Result<u64> {
    let timeout = timeout(timeout_at)?;
    let mask = if mask.is_null() { AioSigset::default() } else { mask.read()? };
    with_mask(a, UserPtr(mask.mask), mask.size as usize, || {
        events(a, id, least, most, to, timeout)
            .map_err(|e| if e == Errno::ERESTARTSYS { Errno::ERESTARTNOHAND } else { e })
    })
}
