//! System calls of timer descriptors (`timerfd_create(2)`).

use doppel_abi_linux::syscalls::nr;

use crate::core::time::monotonic_ns;
use crate::objects::ipc::timerfd::{ItimerSpec, TFD_TIMER_ABSTIME, TimerFd};
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Arg::{Fd, Hex, Ptr};
use crate::personality::Support::{Full, Partial};
use crate::personality::args::Bits;
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::TIMERFD_CREATE, sys_timerfd_create(i32, Bits<OpenFlags>), Full, ""),
    call(
        nr::TIMERFD_SETTIME,
        sys_timerfd_settime,
        Partial,
        &[Fd, Hex, Ptr, Ptr],
        "TFD_TIMER_CANCEL_ON_SET is accepted; the clock is never set",
    ),
    call(nr::TIMERFD_GETTIME, sys_timerfd_gettime, Full, &[Fd, Ptr], ""),
];
const TFD_TIMER_CANCEL_ON_SET: u32 = 2;
const CLOCK_REALTIME: i32 = 0;
const CLOCK_MONOTONIC: i32 = 1;
const CLOCK_BOOTTIME: i32 = 7;
const CLOCK_REALTIME_ALARM: i32 = 8;
const CLOCK_BOOTTIME_ALARM: i32 = 9;

fn sys_timerfd_create(args: &Args, clockid: i32, flags: Bits<OpenFlags>) -> Result<u64> {
    let f = flags.of(OpenFlags::DESCRIPTOR)?;
    let realtime = match clockid {
        CLOCK_REALTIME => true,
        CLOCK_MONOTONIC | CLOCK_BOOTTIME => false,
        CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    };
    anon::new_fd(args, TimerFd::new(realtime), "timerfd", OpenFlags::RDWR | f)
}

/// Runs `f` on the timer behind descriptor argument 0.
fn with_timer<T>(args: &Args, f: impl FnOnce(&TimerFd) -> Result<T>) -> Result<T> {
    let file = args.file(0)?;
    f(file.downcast::<TimerFd>().ok_or(Errno::EINVAL)?)
}

fn sys_timerfd_settime(args: &Args) -> Result<u64> {
    let f = args.u32(1);
    if f & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let new = args.ptr(2).read::<ItimerSpec>()?;
    let old = with_timer(args, |t| t.set(f, &new))?;
    if !args.ptr(3).is_null() {
        args.ptr(3).write(&old)?;
    }
    Ok(0)
}

fn sys_timerfd_gettime(args: &Args) -> Result<u64> {
    let now = monotonic_ns();
    let v = with_timer(args, |t| {
        let mut s = t.state.lock();
        s.catch_up(now);
        Ok(s.show(now))
    })?;
    args.ptr(1).write(&v)?;
    Ok(0)
}
