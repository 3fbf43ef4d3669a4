//! Submitting requests, and waiting for completions.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_machine::user::UserPtr;
use doppel_machine::{arena, pod_struct};

use super::steps::{self, complete};
use super::{at_once, waits};
use crate::core::sched::wait_until;
use crate::core::time::Timespec;
use crate::objects::ipc::timeout::Timeout;
use crate::objects::vfs::File;
use crate::personality::Args;
use crate::personality::args::{Bits, RawFd};
use crate::personality::events::mask::with_mask;
use crate::process::async_io::result::failed;
use crate::process::async_io::uring::Uring;
use crate::process::async_io::uring::layout::{Cqe, SetupFlags};
use crate::process::async_io::uring::request::Request;
use crate::{Errno, Result};

/// IORING_OP_LINK_TIMEOUT, which belongs to the request before it.
const LINK_TIMEOUT: u8 = 15;

bitflags::bitflags! {
    /// `IORING_ENTER_` flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EnterFlags: u32 {
        /// Waits for completions.
        const GETEVENTS = 1;
        /// Wakes the kernel's thread.
        const SQ_WAKEUP = 2;
        /// Waits for room among the requests.
        const SQ_WAIT = 4;
        /// The last argument is a structure.
        const EXT_ARG = 8;
        /// The timeout is a time.
        const ABS_TIMER = 32;
    }
}

pod_struct! {
    /// `struct io_uring_getevents_arg`.
    pub struct EventsArg {
        /// Address of a signal mask.
        pub mask: u64,
        /// Its size.
        pub mask_size: u32,
        /// How long a wait may go on for more than one, in µs.
        pub min_wait: u32,
        /// Address of a timeout.
        pub timeout: u64,
    }
}

/// The instance behind an open file; EOPNOTSUPP if it is none.
pub(super) fn instance(file: &File) -> Result<Arc<Uring>> {
    let any: Arc<dyn core::any::Any + Send + Sync> = file.ops().clone();
    any.downcast::<Uring>().map_err(|_| Errno::EOPNOTSUPP)
}

pub(super) fn sys_io_uring_enter(
    a: &Args,
    RawFd(fd): RawFd,
    count: u32,
    least: u32,
    flags: Bits<EnterFlags>,
    argument: UserPtr,
    size: usize,
) -> Result<u64> {
    let flags = flags.checked()?;
    let ring = instance(&*a.thread.file(fd)?)?;
    if ring.disabled.load(Ordering::SeqCst) {
        return Err(Errno::EBADFD);
    }
    check_issuer(a, &ring)?;
    let polled = ring.flags.contains(SetupFlags::SQPOLL);
    let done = if polled {
        if flags.contains(EnterFlags::SQ_WAKEUP) {
            submit(a, &ring, u32::MAX)?;
        }
        count
    } else {
        submit(a, &ring, count)?
    };
    if !flags.contains(EnterFlags::GETEVENTS) {
        work(a, &ring)?;
        return Ok(done.into());
    }
    let waited = wait(a, &ring, least, flags, argument, size);
    // What came when this thread was about to leave.
    ring.pass_work(&a.thread.process);
    match waited {
        Err(e) if done == 0 => Err(e),
        _ => Ok(done.into()),
    }
}

/// Whether the caller may work with an instance that one thread submits to: EEXIST if it is another.
pub(super) fn check_issuer(a: &Args, ring: &Uring) -> Result<()> {
    if !ring.flags.contains(SetupFlags::SINGLE_ISSUER) {
        return Ok(());
    }
    let me = a.thread.tid();
    match ring.issuer.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst) {
        Err(other) if other != me => Err(Errno::EEXIST),
        _ => Ok(()),
    }
}

/// Takes up to `count` requests from the ring and begins them; gives how many.
fn submit(a: &Args, ring: &Arc<Uring>, count: u32) -> Result<u32> {
    let count = count.min(ring.rings.submitted());
    if count == 0 {
        return Ok(0);
    }
    let _alone = ring.working.lock();
    let mut chain = Chain::default();
    let mut done = 0;
    while done < count {
        // Requests that wait are kernel memory: a program that has used that up gets no more.
        if arena::low() {
            break;
        }
        done += 1;
        let Some(sqe) = ring.rings.take()? else { break };
        if chain.all.is_empty()
            && !ring.is_draining()
            && let Some(result) = at_once::serve(a, ring, &sqe)
        {
            let cqe = Cqe { user_data: sqe.user_data, result: result as i32, flags: 0 };
            ring.post(cqe, false)?;
            waits::count_completions(ring);
            continue;
        }
        let request = Request::new(ring, &a.thread.process, sqe);
        let right = steps::check(&request);
        let stop = right.is_err() && !ring.flags.contains(SetupFlags::SUBMIT_ALL);
        chain.add(a, request, right)?;
        if stop {
            break;
        }
    }
    chain.end(a)?;
    drain(a, ring)?;
    if done == 0 { Err(Errno::EAGAIN) } else { Ok(done) }
}

/// Requests that begin one after the other.
#[derive(Default)]
struct Chain {
    all: Vec<Arc<Request>>,
    /// Why none of them begins.
    wrong: Option<(u64, Errno)>,
}

impl Chain {
    fn add(&mut self, a: &Args, request: Arc<Request>, right: Result<()>) -> Result<()> {
        // A limit limits one that has none.
        let second =
            |last: &Arc<Request>| last.sqe.opcode == LINK_TIMEOUT && request.sqe.opcode == LINK_TIMEOUT;
        let right = if self.all.last().is_some_and(second) { Err(Errno::EINVAL) } else { right };
        if let Err(e) = right
            && self.wrong.is_none()
        {
            self.wrong = Some((request.number, e));
        }
        let more = request.sqe.is_linked();
        self.all.push(request);
        if more { Ok(()) } else { self.end(a) }
    }

    /// The chain is whole: its first request begins.
    fn end(&mut self, a: &Args) -> Result<()> {
        let all = core::mem::take(&mut self.all);
        if let Some((number, error)) = self.wrong.take() {
            for r in all {
                let why = if r.number == number { error } else { Errno::ECANCELED };
                r.count();
                complete(&r, failed(why), 0)?;
            }
            return Ok(());
        }
        // A chain of which one waits for all before it does so as a whole, and so does what comes behind it.
        if let Some(first) = all.first() {
            let drains = all.iter().any(|r| r.drains.load(Ordering::SeqCst));
            let behind = first.ring.drain_next.swap(drains && all.len() > 1, Ordering::SeqCst);
            first.drains.store(drains || behind, Ordering::SeqCst);
        }
        let mut last: Option<Arc<Request>> = None;
        let mut first = None;
        for r in all {
            match &last {
                Some(before) if r.sqe.opcode == LINK_TIMEOUT => {
                    *r.limited.lock() = Arc::downgrade(before);
                    *before.limit.lock() = Some(r);
                    continue;
                }
                Some(before) => *before.next.lock() = Some(r.clone()),
                None => first = Some(r.clone()),
            }
            last = Some(r);
        }
        first.map_or(Ok(()), |r| begin(a, &r))
    }
}

/// Begins a request, unless it has to wait for those before it.
fn begin(a: &Args, request: &Arc<Request>) -> Result<()> {
    let ring = &request.ring;
    let waits = {
        let mut drained = ring.drained.lock();
        let waits = !drained.is_empty()
            || request.drains.load(Ordering::SeqCst) && ring.begun.load(Ordering::SeqCst) > 0;
        if waits {
            drained.push_back(request.clone());
        }
        waits
    };
    if waits { Ok(()) } else { steps::start(a, request) }
}

/// Begins what waited for others to complete.
fn drain(a: &Args, ring: &Arc<Uring>) -> Result<()> {
    while !ring.drained.is_empty() {
        let next = {
            let mut drained = ring.drained.lock();
            let idle = ring.begun.load(Ordering::SeqCst) == 0;
            let may = drained.front().is_some_and(|r| idle || !r.drains.load(Ordering::SeqCst));
            if may { drained.pop_front() } else { None }
        };
        match next {
            Some(request) => steps::start(a, &request)?,
            None => break,
        }
    }
    Ok(())
}

/// Goes on with requests that can.
fn work(a: &Args, ring: &Arc<Uring>) -> Result<()> {
    let me = &*a.thread.process;
    if ring.has_work(me) || !ring.drained.is_empty() {
        let _alone = ring.working.lock();
        while let Some(request) = ring.next_ready(me, |_| true) {
            request.taken_up();
            steps::go_on(a, &request)?;
        }
        drain(a, ring)?;
    }
    ring.rings.flush()
}

fn wait(
    a: &Args,
    ring: &Arc<Uring>,
    least: u32,
    flags: EnterFlags,
    argument: UserPtr,
    size: usize,
) -> Result<u64> {
    let (mask, mask_size, timeout) = if flags.contains(EnterFlags::EXT_ARG) {
        if size != size_of::<EventsArg>() {
            return Err(Errno::EINVAL);
        }
        let given: EventsArg = argument.read()?;
        let timeout = until(UserPtr(given.timeout), flags.contains(EnterFlags::ABS_TIMER))?;
        (UserPtr(given.mask), given.mask_size as usize, timeout)
    } else {
        (argument, size, Timeout::never())
    };
    let least = least.min(ring.rings.room());
    with_mask(a, mask, mask_size, || {
        loop {
            work(a, ring)?;
            if ring.rings.waiting() >= least {
                return Ok(0);
            }
            let ready = || (ring.has_work(&a.thread.process) || ring.rings.waiting() >= least).then_some(());
            wait_until(&ring.entered, timeout.deadline, ready).map_err(|e| match e {
                Errno::ETIMEDOUT => Errno::ETIME,
                Errno::ERESTARTSYS => Errno::ERESTARTNOHAND,
                e => e,
            })?;
        }
    })
}

fn until(at: UserPtr, absolute: bool) -> Result<Timeout> {
    if !absolute || at.is_null() {
        return Timeout::timespec(at);
    }
    Ok(Timeout { deadline: Some(at.read::<Timespec>()?.to_ns()?), poll: false })
}
