//! How a request begins, goes on and completes.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::{calls, data, sockets, waits};
use crate::core::sched::PollEvents;
use crate::core::subject::Cred;
use crate::memory::mend_missed;
use crate::personality::Args;
use crate::process::async_io::held::HeldFile;
use crate::process::async_io::result::failed;
use crate::process::async_io::uring::Uring;
use crate::process::async_io::uring::layout::{Cqe, CqeFlags, SetupFlags, SqeFlags};
use crate::process::async_io::uring::request::Request;
use crate::process::task::current_ref;
use crate::{Errno, Result};

/// How far a request has come.
pub(super) enum Step {
    /// It has completed with this result.
    Done(i64),
    /// As [`Self::Done`], with flags.
    With(i64, u32),
    /// It waits for what it is armed for.
    Waits,
}

/// What serves an operation.
type Serve = fn(&Args, &Arc<Request>) -> Result<Step>;

/// The function that serves an operation (`IORING_OP_`), if there is one.
pub(super) fn server(opcode: u8) -> Option<Serve> {
    Some(match opcode {
        0 => |_, _| Ok(Step::Done(0)),
        1 | 2 | 4 | 5 | 22 | 23 => data::transfer,
        3 => data::sync,
        6 => waits::poll,
        7 => waits::stop_poll,
        9 | 26 => sockets::send,
        10 | 27 => sockets::receive,
        11 => waits::timeout,
        12 => waits::change_timeout,
        13 => sockets::accept,
        14 => waits::cancel,
        15 => waits::link_timeout,
        16 => sockets::connect,
        20 => super::register::update_by_request,
        31 => data::provide,
        32 => data::withdraw,
        40 => waits::message,
        n if calls::is_one(n) => calls::serve,
        _ => return None,
    })
}

/// Whether a request can be what it says.
pub(super) fn check(request: &Request) -> Result<()> {
    let sqe = &request.sqe;
    server(sqe.opcode).ok_or(Errno::EINVAL)?;
    let flags = SqeFlags::from_bits(sqe.flags).ok_or(Errno::EINVAL)?;
    if flags.contains(SqeFlags::BUFFER_SELECT) && !matches!(sqe.opcode, 1 | 22 | 10 | 27) {
        return Err(Errno::EOPNOTSUPP);
    }
    // Devices that are polled do nothing else.
    if request.ring.flags.contains(SetupFlags::IOPOLL)
        && !matches!(sqe.opcode, 0 | 1 | 2 | 4 | 5 | 20 | 22 | 23 | 31 | 32 | 40)
    {
        return Err(Errno::EINVAL);
    }
    // The class of a priority: none, real time, best effort, idle.
    if matches!(sqe.opcode, 1 | 2 | 4 | 5 | 22 | 23) && sqe.ioprio >> 13 > 3 {
        return Err(Errno::EINVAL);
    }
    if sqe.personality != 0 {
        identity(request)?;
    }
    Ok(())
}

/// The registered identity that a request has.
fn identity(request: &Request) -> Result<Arc<Cred>> {
    let place = usize::from(request.sqe.personality).checked_sub(1).ok_or(Errno::EINVAL)?;
    request.ring.identities.lock().get(place).cloned().flatten().ok_or(Errno::EINVAL)
}

/// The file of a request, which it keeps.
pub(super) fn file(a: &Args, request: &Request) -> Result<Arc<HeldFile>> {
    if let Some(file) = request.file() {
        return Ok(file);
    }
    let fd = request.sqe.fd;
    let file = if request.sqe.flags().contains(SqeFlags::FIXED_FILE) {
        request.ring.file_at(fd)?
    } else {
        Arc::new(HeldFile::new(a.thread.file(fd)?.clone()))
    };
    *request.file.lock() = Some(file.clone());
    Ok(file)
}

/// Arms a request for its file, once; the events that hold.
pub(super) fn armed(request: &Request, file: &HeldFile, wanted: PollEvents) -> PollEvents {
    if request.is_armed() {
        file.poll(None) & (wanted | PollEvents::ALWAYS)
    } else {
        request.arm(file, wanted)
    }
}

/// Begins a request.
pub(super) fn start(a: &Args, request: &Arc<Request>) -> Result<()> {
    request.count();
    request.started.store(true, Ordering::SeqCst);
    step(a, request)?;
    let limit = request.limit.lock().clone();
    if let Some(limit) = limit {
        limit.count();
        limit.started.store(true, Ordering::SeqCst);
        if request.is_over() { complete(&limit, failed(Errno::ECANCELED), 0)? } else { step(a, &limit)? }
    }
    Ok(())
}

/// Goes on with what a worker can: who has no descriptors begins nothing, and gives none.
pub fn go_on_without_program(ring: &Arc<Uring>) {
    let args = Args { thread: current_ref(), raw: [0; 6] };
    let me = args.thread.process.clone();
    let _alone = ring.working.lock();
    let can = |r: &Request| {
        r.started.load(Ordering::SeqCst) && matches!(r.sqe.opcode, 1..=6 | 11 | 15 | 16 | 22 | 23 | 26 | 27)
    };
    while let Some(request) = ring.next_ready(&me, can) {
        request.taken_up();
        // Without memory for a completion the domain ends.
        if step(&args, &request).is_err() {
            return;
        }
    }
}

/// Goes on with a request that was woken, or begins one whose turn has come.
pub(super) fn go_on(a: &Args, request: &Arc<Request>) -> Result<()> {
    if request.is_over() {
        Ok(())
    } else if request.started.load(Ordering::SeqCst) {
        step(a, request)
    } else {
        start(a, request)
    }
}

fn step(a: &Args, request: &Arc<Request>) -> Result<()> {
    let found = request.found.lock().take();
    if let Some(result) = found {
        return complete(request, result, 0);
    }
    if request.is_orphan() {
        return complete(request, failed(Errno::ECANCELED), 0);
    }
    let serve = server(request.sqe.opcode).ok_or(Errno::EINVAL)?;
    let own = match request.sqe.personality {
        0 => None,
        _ => Some((a.thread.cred(), identity(request)?)),
    };
    if let Some((_, other)) = &own {
        a.thread.cred.set(other.clone());
    }
    let step = loop {
        match serve(a, request) {
            // Memory that can be brought back is no error.
            Err(Errno::EFAULT) if mend_missed(&a.thread.space().mm) => {}
            Err(Errno::ERESTARTSYS) => break Step::Done(failed(Errno::EINTR)),
            Err(e) => break Step::Done(failed(e)),
            Ok(step) => break step,
        }
    };
    if let Some((own, _)) = own {
        a.thread.cred.set(own);
    }
    match step {
        Step::Done(result) => complete(request, result, 0),
        Step::With(result, flags) => complete(request, result, flags),
        Step::Waits => {
            request.ring.wait_for(request);
            Ok(())
        }
    }
}

/// Tells of a completion of a request that goes on.
pub(super) fn tell_more(request: &Request, result: i64, flags: u32) -> Result<()> {
    request.tell(result, flags | CqeFlags::MORE.bits())
}

/// Whether a result keeps linked requests from beginning.
fn breaks(request: &Request, result: i64) -> bool {
    let sqe = &request.sqe;
    match sqe.opcode {
        // All bytes, or it is a failure.
        4 | 5 | 22 | 23 => result != i64::from(sqe.len),
        11 => result != 0 && sqe.op_flags & waits::ETIME_SUCCESS == 0,
        _ => result < 0,
    }
}

/// A request has completed: its program is told, and those that waited for it begin or are cancelled.
pub(super) fn complete(request: &Request, result: i64, flags: u32) -> Result<()> {
    if !request.claim() {
        return Ok(());
    }
    finish(request, result, flags)
}

/// As [`complete`], of a request that has been claimed.
pub(super) fn finish(request: &Request, result: i64, flags: u32) -> Result<()> {
    request.disarm();
    request.ring.forget(request);
    let file = request.file.lock().take();
    drop(file);
    // One that has not begun is told of where it would begin.
    let limit = request.limit.lock().take_if(|limit| limit.started.load(Ordering::SeqCst));
    if let Some(limit) = limit {
        complete(&limit, failed(Errno::ECANCELED), 0)?;
    }
    let silent = request.sqe.flags().contains(SqeFlags::CQE_SKIP_SUCCESS) && result >= 0;
    if !silent {
        request.tell(result, flags)?;
    }
    let mut next = request.next.lock().take();
    let goes_on = !breaks(request, result) || request.sqe.flags().contains(SqeFlags::HARDLINK);
    let begins = next.take_if(|_| goes_on);
    if let Some(first) = &begins {
        // What waits for all before it waits for this one, too.
        first.count();
    }
    request.ring.begun.fetch_sub(1, Ordering::SeqCst);
    waits::count_completions(&request.ring);
    if let Some(first) = begins {
        first.wake_up();
    }
    while let Some(request) = next {
        next = request.next.lock().take();
        let limit = request.limit.lock().take();
        for one in [Some(request), limit].into_iter().flatten() {
            one.claim();
            let cqe = Cqe { user_data: one.sqe.user_data, result: failed(Errno::ECANCELED) as i32, flags: 0 };
            one.ring.post(cqe, true)?;
        }
    }
    Ok(())
}
