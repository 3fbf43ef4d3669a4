//! Operations that wait for files and times, and those that end such waits.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_machine::user::UserPtr;

use super::enter::instance;
use super::steps::{Step, armed, file, finish, tell_more};
use crate::core::sched::PollEvents;
use crate::core::time::{Timespec, monotonic_ns, realtime_ns};
use crate::personality::Args;
use crate::process::async_io::result::failed;
use crate::process::async_io::uring::Uring;
use crate::process::async_io::uring::layout::Cqe;
use crate::process::async_io::uring::request::Request;
use crate::{Errno, Result};

/// `IORING_TIMEOUT_` flags.
const ABS: u32 = 1;
const UPDATE: u32 = 2;
const BOOTTIME: u32 = 4;
const REALTIME: u32 = 8;
const LINK_UPDATE: u32 = 16;
pub(super) const ETIME_SUCCESS: u32 = 32;
/// IORING_POLL_ADD_MULTI.
const MULTI: u32 = 1;

/// Operations that a poll's removal and a timeout's may end.
const POLL_ADD: u8 = 6;
const TIMEOUT: u8 = 11;
const LINK_TIMEOUT: u8 = 15;

/// IORING_OP_POLL_ADD.
pub(super) fn poll(a: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    if sqe.off != 0 || sqe.addr != 0 || sqe.len & !MULTI != 0 {
        return Err(Errno::EINVAL);
    }
    let file = file(a, request)?;
    if !file.ops().pollable() {
        // As poll(2) does, which finds such files always ready.
        return Ok(Step::Done(i64::from((file.poll(None).bits()) & sqe.op_flags)));
    }
    let wanted = PollEvents::from_bits_truncate(sqe.op_flags) - PollEvents::EPOLL_FLAGS;
    let told = request.take_told();
    let events = if told.is_empty() { armed(request, &file, wanted) } else { told };
    if events.is_empty() {
        return Ok(Step::Waits);
    }
    if sqe.len & MULTI == 0 {
        return Ok(Step::Done(i64::from(events.bits())));
    }
    tell_more(request, i64::from(events.bits()), 0)?;
    Ok(Step::Waits)
}

/// Takes a request back, and tells its program.
fn take_back(request: &Request) -> Result<bool> {
    let first = request.claim();
    if first {
        finish(request, failed(Errno::ECANCELED), 0)?;
    }
    Ok(first)
}

/// IORING_OP_POLL_REMOVE.
pub(super) fn stop_poll(_: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    if sqe.len != 0 || sqe.off != 0 || sqe.op_flags != 0 {
        return Err(Errno::EINVAL);
    }
    let meant = |r: &Request| r.sqe.opcode == POLL_ADD && r.sqe.user_data == sqe.addr;
    let found = request.ring.waiting(meant).into_iter().next().ok_or(Errno::ENOENT)?;
    if take_back(&found)? { Ok(Step::Done(0)) } else { Err(Errno::EALREADY) }
}

/// When a timeout ends, on the domain's clock.
fn deadline(at: UserPtr, flags: u32) -> Result<u64> {
    let t: Timespec = at.read()?;
    let ns = t.to_ns()?;
    let now = monotonic_ns();
    Ok(match (flags & ABS != 0, flags & REALTIME != 0) {
        (false, _) => now.saturating_add(ns),
        (true, false) => ns,
        (true, true) => now.saturating_add(ns.saturating_sub(realtime_ns())),
    })
}

/// IORING_OP_TIMEOUT.
pub(super) fn timeout(_: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    if request.expired.load(Ordering::SeqCst) {
        return Err(Errno::ETIME);
    }
    if request.is_timed() {
        return Ok(Step::Waits);
    }
    let flags = sqe.op_flags;
    if flags & !(ABS | BOOTTIME | REALTIME | ETIME_SUCCESS) != 0
        || flags & BOOTTIME != 0 && flags & REALTIME != 0
        || sqe.len != 1
        || sqe.off > u32::MAX.into()
        || sqe.buffer != 0
        || sqe.file_index != 0
    {
        return Err(Errno::EINVAL);
    }
    let at = deadline(UserPtr(sqe.addr), flags)?;
    if sqe.off != 0 {
        let target = request.ring.completed.load(Ordering::SeqCst) + sqe.off;
        request.target.store(target, Ordering::SeqCst);
        request.ring.counting.store(true, Ordering::SeqCst);
    }
    request.arm_timer(at);
    Ok(Step::Waits)
}

/// Fulfils timeouts that count completions.
pub(super) fn count_completions(ring: &Uring) {
    if !ring.counting.load(Ordering::SeqCst) {
        return;
    }
    let now = ring.completed.load(Ordering::SeqCst);
    let counts = ring.waiting(|r| r.target.load(Ordering::SeqCst) != 0);
    if counts.is_empty() {
        ring.counting.store(false, Ordering::SeqCst);
    }
    for r in counts.into_iter().filter(|r| r.target.load(Ordering::SeqCst) <= now) {
        *r.found.lock() = Some(0);
        r.wake_up();
    }
}

/// IORING_OP_TIMEOUT_REMOVE, and its updates.
pub(super) fn change_timeout(_: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    let flags = sqe.op_flags;
    if sqe.buffer != 0 || sqe.len != 0 || sqe.file_index != 0 {
        return Err(Errno::EINVAL);
    }
    let opcode = if flags & LINK_UPDATE != 0 { LINK_TIMEOUT } else { TIMEOUT };
    let meant = |r: &Request| r.sqe.opcode == opcode && r.sqe.user_data == sqe.addr;
    if flags & (UPDATE | LINK_UPDATE) != 0 {
        if flags & !(UPDATE | LINK_UPDATE | ABS | BOOTTIME | REALTIME) != 0 {
            return Err(Errno::EINVAL);
        }
        let at = deadline(UserPtr(sqe.off), flags)?;
        let found = request.ring.waiting(meant).into_iter().next().ok_or(Errno::ENOENT)?;
        if found.expired.load(Ordering::SeqCst) {
            return Err(Errno::EALREADY);
        }
        found.arm_timer(at);
        return Ok(Step::Done(0));
    }
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let found = request.ring.waiting(meant).into_iter().next().ok_or(Errno::ENOENT)?;
    if found.expired.load(Ordering::SeqCst) || !take_back(&found)? {
        return Err(Errno::EBUSY);
    }
    Ok(Step::Done(0))
}

/// IORING_OP_LINK_TIMEOUT, of the request that it limits.
pub(super) fn link_timeout(_: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    let limited = request.limited.lock().upgrade();
    if request.expired.load(Ordering::SeqCst) {
        let Some(limited) = limited else { return Err(Errno::ECANCELED) };
        // First the one whose time is over, then this one: whoever completes the other would take this one back.
        let mine = limited.limit.lock().take();
        drop(mine);
        return if take_back(&limited)? { Err(Errno::ETIME) } else { Err(Errno::ECANCELED) };
    }
    if request.is_timed() {
        return Ok(Step::Waits);
    }
    if limited.is_none() || sqe.op_flags & !(ABS | BOOTTIME | REALTIME | ETIME_SUCCESS) != 0 || sqe.len != 1 {
        return Err(Errno::EINVAL);
    }
    request.arm_timer(deadline(UserPtr(sqe.addr), sqe.op_flags)?);
    Ok(Step::Waits)
}

/// `IORING_ASYNC_CANCEL_` flags.
mod cancels {
    pub const ALL: u32 = 1;
    pub const FD: u32 = 2;
    pub const ANY: u32 = 4;
    pub const FD_FIXED: u32 = 8;
    pub const USERDATA: u32 = 16;
    pub const OP: u32 = 32;
}

/// Takes back requests as IORING_OP_ASYNC_CANCEL and IORING_REGISTER_SYNC_CANCEL name them.
fn cancel_matching(
    a: &Args,
    ring: &Arc<Uring>,
    (user_data, fd, flags, opcode): (u64, i32, u32, u8),
    but: u64,
) -> Result<u64> {
    use cancels::{ALL, ANY, FD, FD_FIXED, OP, USERDATA};
    if flags & !(ALL | FD | ANY | FD_FIXED | USERDATA | OP) != 0
        || flags & ANY != 0 && flags & (FD | USERDATA | OP) != 0
    {
        return Err(Errno::EINVAL);
    }
    let file = match flags & FD {
        0 => None,
        _ if flags & FD_FIXED != 0 => Some(ring.file_at(fd)?.id),
        _ => Some(a.thread.file(fd)?.id),
    };
    let by_data = flags & (FD | ANY | OP) == 0 || flags & USERDATA != 0;
    let meant = |r: &Request| {
        r.number != but
            && r.sqe.opcode != LINK_TIMEOUT
            && (!by_data || r.sqe.user_data == user_data)
            && file.is_none_or(|id| r.file().is_some_and(|f| f.id == id))
            && (flags & OP == 0 || r.sqe.opcode == opcode)
    };
    let mut n = 0;
    for found in ring.waiting(meant) {
        // A worker that waits for a device does not stop.
        n += u64::from(take_back(&found)?);
        if n > 0 && flags & (ALL | ANY) == 0 {
            return Ok(0);
        }
    }
    if n == 0 && flags & (ALL | ANY) == 0 { Err(Errno::ENOENT) } else { Ok(n) }
}

/// IORING_OP_ASYNC_CANCEL.
pub(super) fn cancel(a: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    if sqe.off != 0 || sqe.file_index != 0 {
        return Err(Errno::EINVAL);
    }
    let whom = (sqe.addr, sqe.fd, sqe.op_flags, sqe.len as u8);
    cancel_matching(a, &request.ring, whom, request.number).map(|n| Step::Done(n.cast_signed()))
}

/// IORING_OP_MSG_RING with data: a completion in another ring.
pub(super) fn message(a: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    if sqe.addr != 0 || sqe.buffer != 0 || sqe.op_flags & !1 != 0 {
        return Err(Errno::EINVAL);
    }
    let file = file(a, request)?;
    let other = instance(&file).map_err(|_| Errno::EBADFD)?;
    if other.disabled.load(Ordering::SeqCst) {
        return Err(Errno::EBADFD);
    }
    if sqe.op_flags == 0 {
        let cqe = Cqe { user_data: sqe.off, result: sqe.len as i32, flags: 0 };
        other.post(cqe, true)?;
    }
    Ok(Step::Done(0))
}
