//! System calls of timer descriptors (`timerfd_create(2)`).

use doppel_abi_linux::syscalls::nr;

use crate::core::time::monotonic_ns;
use crate::objects::ipc::timerfd::{ItimerSpec, TimerFd, TimerFdFlags};
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Support::{Full, Partial};
use crate::personality::args::{Bits, Number, RawFd};
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::process::time::clock::Clock;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::TIMERFD_CREATE, sys_timerfd_create(Number<Clock>, Bits<OpenFlags>), Full, ""),
    call!(
        nr::TIMERFD_SETTIME,
        sys_timerfd_settime(RawFd, Bits<TimerFdFlags>, UserPtr, UserPtr),
        Partial,
        "TFD_TIMER_CANCEL_ON_SET is accepted; the clock is never set",
    ),
    call!(nr::TIMERFD_GETTIME, sys_timerfd_gettime(RawFd, UserPtr), Full, ""),
];

fn sys_timerfd_create(args: &Args, clock: Number<Clock>, flags: Bits<OpenFlags>) -> Result<u64> {
    let f = flags.of(OpenFlags::DESCRIPTOR)?;
    let realtime = match clock.get()? {
        Clock::Realtime => true,
        Clock::Monotonic | Clock::Boottime => false,
        Clock::RealtimeAlarm | Clock::BoottimeAlarm => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    };
    anon::new_fd(args, TimerFd::new(realtime), "timerfd", OpenFlags::RDWR | f)
}

/// Runs `f` on the timer behind a descriptor.
fn with_timer<T>(args: &Args, fd: i32, f: impl FnOnce(&TimerFd) -> Result<T>) -> Result<T> {
    let file = args.thread.file(fd)?;
    f(file.downcast::<TimerFd>().ok_or(Errno::EINVAL)?)
}

fn sys_timerfd_settime(
    args: &Args,
    RawFd(fd): RawFd,
    flags: Bits<TimerFdFlags>,
    user_new: UserPtr,
    user_old: UserPtr,
) -> Result<u64> {
    let flags = flags.checked()?;
    let new = user_new.read::<ItimerSpec>()?;
    let old = with_timer(args, fd, |t| t.set(flags, &new))?;
    if !user_old.is_null() {
        user_old.write(&old)?;
    }
    Ok(0)
}

fn sys_timerfd_gettime(args: &Args, RawFd(fd): RawFd, out: UserPtr) -> Result<u64> {
    let now = monotonic_ns();
    let v = with_timer(args, fd, |t| {
        let mut s = t.state.lock();
        s.catch_up(now);
        Ok(s.show(now))
    })?;
    out.write(&v)?;
    Ok(0)
}
