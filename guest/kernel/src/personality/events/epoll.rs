//! System calls of `epoll(7)`.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::{UserPtr, bytes_of};

use crate::core::numbers::numbers;
use crate::core::sched::PollEvents;
use crate::objects::ipc::epoll::{Epoll, EpollEvent, of};
use crate::objects::ipc::timeout::Timeout;
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, Number, RawFd};
use crate::personality::events::anon;
use crate::personality::events::mask::with_mask;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::EPOLL_CREATE, sys_epoll_create(i32), Full, ""),
    call!(nr::EPOLL_CREATE1, sys_epoll_create1(Bits<OpenFlags>), Full, ""),
    call!(nr::EPOLL_CTL, sys_epoll_ctl(RawFd, Number<Change>, RawFd, UserPtr), Full, ""),
    call!(nr::EPOLL_WAIT, sys_epoll_wait(RawFd, UserPtr, i32, i32), Full, ""),
    call!(nr::EPOLL_PWAIT, sys_epoll_pwait(RawFd, UserPtr, i32, i32, UserPtr, usize), Full, ""),
    call!(nr::EPOLL_PWAIT2, sys_epoll_pwait2(RawFd, UserPtr, i32, UserPtr, UserPtr, usize), Full, ""),
];

numbers! {
    /// Operations of `epoll_ctl(2)`.
    enum Change {
        Add = 1,
        Delete = 2,
        Modify = 3,
    }
}

/// Size of an event in user memory.
const EVENT_SIZE: u64 = 12;

fn create(args: &Args, cloexec: OpenFlags) -> Result<u64> {
    anon::new_fd(args, Arc::new(Epoll::default()), "eventpoll", OpenFlags::RDWR | cloexec)
}

fn sys_epoll_create(args: &Args, size: i32) -> Result<u64> {
    if size <= 0 { Err(Errno::EINVAL) } else { create(args, OpenFlags::empty()) }
}

fn sys_epoll_create1(args: &Args, flags: Bits<OpenFlags>) -> Result<u64> {
    create(args, flags.of(OpenFlags::CLOEXEC)?)
}

fn sys_epoll_ctl(
    args: &Args,
    RawFd(epfd): RawFd,
    op: Number<Change>,
    RawFd(fd): RawFd,
    user_event: UserPtr,
) -> Result<u64> {
    let op = op.get();
    let event =
        if op == Ok(Change::Delete) { EpollEvent::default() } else { user_event.read::<EpollEvent>()? };
    let ep_file = args.thread.file(epfd)?;
    let file = args.thread.file(fd)?;
    if !file.ops().pollable() {
        return Err(Errno::EPERM);
    }
    let epoll = of(&ep_file).ok_or(Errno::EINVAL)?;
    if ep_file.id == file.id {
        return Err(Errno::EINVAL);
    }
    if op == Ok(Change::Modify) && event.events().contains(PollEvents::EXCLUSIVE) {
        return Err(Errno::EINVAL);
    }
    match op? {
        Change::Add => epoll.add(fd, &file, event)?,
        Change::Modify => epoll.modify(fd, &file, event)?,
        Change::Delete => epoll.remove(fd, file.id)?,
    }
    Ok(0)
}

fn wait(args: &Args, epfd: i32, user_events: UserPtr, max: i32, timeout: Timeout) -> Result<u64> {
    let max = usize::try_from(max).map_err(|_| Errno::EINVAL)?;
    if max == 0 || max > i32::MAX as usize / EVENT_SIZE as usize {
        return Err(Errno::EINVAL);
    }
    let file = args.thread.file(epfd)?;
    let epoll = of(&file).ok_or(Errno::EINVAL)?;
    let events = epoll.wait(max, timeout)?;
    let mut at = user_events;
    for e in &events {
        at.write_bytes(bytes_of(e))?;
        at = at.add(EVENT_SIZE);
    }
    Ok(events.len() as u64)
}

fn sys_epoll_wait(args: &Args, RawFd(epfd): RawFd, events: UserPtr, max: i32, timeout: i32) -> Result<u64> {
    wait(args, epfd, events, max, Timeout::millis(timeout))
}

fn sys_epoll_pwait(
    args: &Args,
    RawFd(epfd): RawFd,
    events: UserPtr,
    max: i32,
    timeout: i32,
    sigmask: UserPtr,
    sigsetsize: usize,
) -> Result<u64> {
    with_mask(args, sigmask, sigsetsize, || wait(args, epfd, events, max, Timeout::millis(timeout)))
}

fn sys_epoll_pwait2(
    args: &Args,
    RawFd(epfd): RawFd,
    events: UserPtr,
    max: i32,
    user_timeout: UserPtr,
    sigmask: UserPtr,
    sigsetsize: usize,
) -> Result<u64> {
    let timeout = Timeout::timespec(user_timeout)?;
    with_mask(args, sigmask, sigsetsize, || wait(args, epfd, events, max, timeout))
}
