//! `poll(2)` and `ppoll(2)`, and the wait over many files they share with select.

use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;
use doppel_machine::user::{UserPtr, bytes_of_mut};

use crate::core::sched::{PollEvents, PollTable, park};
use crate::objects::ipc::timeout::Timeout;
use crate::objects::vfs::fdtable::FileRef;
use crate::personality::Support::Full;
use crate::personality::events::mask::with_mask;
use crate::personality::{Args, Syscall, call};
use crate::process::task::current_ref;
use crate::process::task::{Process, Resource, current};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::POLL, sys_poll(UserPtr, u32, i32), Full, ""),
    call!(nr::PPOLL, sys_ppoll(UserPtr, u32, UserPtr, UserPtr, usize), Full, ""),
];

pod_struct! {
    /// `struct pollfd`.
    pub struct PollFd {
        /// Descriptor; negative entries are skipped.
        pub fd: i32,
        /// Requested events.
        pub events: u16,
        /// Returned events.
        pub revents: u16,
    }
}

impl PollFd {
    fn wanted(&self) -> PollEvents {
        PollEvents::from_bits_retain(u32::from(self.events))
    }
}

/// Offset of `revents`.
const REVENTS: u64 = 6;

/// Calls `scan` until it returns a count above zero, a signal arrives (ERESTARTNOHAND) or the timeout is over
/// (0). The first call gets a table to register with.
pub(super) fn wait_scan(
    timeout: Timeout,
    mut scan: impl FnMut(Option<&mut PollTable>) -> Result<usize>,
) -> Result<usize> {
    if timeout.poll {
        return scan(None);
    }
    let me = current();
    let mut table = PollTable::new(me.clone());
    let mut n = scan(Some(&mut table))?;
    while n == 0 {
        if me.interrupted() {
            return Err(Errno::ERESTARTNOHAND);
        }
        let in_time = park(&*me, timeout.deadline);
        n = scan(None)?;
        if !in_time {
            break;
        }
    }
    Ok(n)
}

/// Reads the array, waits, writes `revents` back.
fn do_poll(process: &Process, at: UserPtr, nfds: u64, timeout: Timeout) -> Result<u64> {
    if nfds > process.rlimit(Resource::Nofile) {
        return Err(Errno::EINVAL);
    }
    let n = usize::try_from(nfds).map_err(|_| Errno::EINVAL)?;
    let mut fds: Vec<PollFd> = Vec::new();
    fds.try_reserve_exact(n).map_err(|_| Errno::ENOMEM)?;
    let thread = current_ref();
    let mut files: Vec<Option<FileRef<'_>>> = Vec::new();
    files.try_reserve_exact(n).map_err(|_| Errno::ENOMEM)?;
    for i in 0..nfds {
        let mut p = PollFd::default();
        at.add(i * 8).read_bytes(bytes_of_mut(&mut p))?;
        // O_PATH descriptors are as closed ones.
        files.push(thread.file(p.fd).ok());
        fds.push(p);
    }
    let ready = wait_scan(timeout, |mut table| {
        let mut ready = 0;
        let first = table.is_some() || timeout.poll;
        for (p, f) in fds.iter_mut().zip(&files) {
            // As on Linux, what was closed meanwhile is looked up again; what it named is kept.
            let now = match f {
                Some(f) if !first && !f.unshared() => &thread.file(p.fd).ok(),
                _ => f,
            };
            let ev = match now {
                Some(f) => {
                    // Once something is ready nobody will sleep: no need to register.
                    let t = if ready == 0 { table.as_deref_mut() } else { None };
                    f.poll(t) & (p.wanted() | PollEvents::ALWAYS)
                }
                None if p.fd < 0 => PollEvents::empty(),
                None => PollEvents::NVAL,
            };
            p.revents = ev.bits() as u16;
            ready += usize::from(!ev.is_empty());
        }
        Ok(ready)
    })?;
    for (i, p) in (0..).zip(&fds) {
        at.add(i * 8 + REVENTS).write(&p.revents)?;
    }
    Ok(ready as u64)
}

/// Poll that restart_syscall can continue.
fn restartable(at: UserPtr, nfds: u64, timeout: Timeout) -> Result<u64> {
    let me = current();
    match do_poll(&me.process, at, nfds, timeout) {
        Err(Errno::ERESTARTNOHAND) => {
            *me.restart.lock() = Some(alloc::boxed::Box::new(move || restartable(at, nfds, timeout)));
            Err(Errno::ERESTART_RESTARTBLOCK)
        }
        r => r,
    }
}

fn sys_poll(_: &Args, fds: UserPtr, nfds: u32, timeout: i32) -> Result<u64> {
    restartable(fds, u64::from(nfds), Timeout::millis(timeout))
}

fn sys_ppoll(
    args: &Args,
    fds: UserPtr,
    nfds: u32,
    user_timeout: UserPtr,
    sigmask: UserPtr,
    sigsetsize: usize,
) -> Result<u64> {
    let timeout = Timeout::timespec(user_timeout)?;
    let r =
        with_mask(args, sigmask, sigsetsize, || do_poll(&args.thread.process, fds, u64::from(nfds), timeout));
    timeout.store_timespec(user_timeout);
    r
}
