//! Wait queues and the blocking primitive.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use doppel_machine::sync::{Once, SpinLock};
use doppel_machine::wakes;

use super::events::PollEvents;
use super::runnable::{Runnable, current, current_ref};
use crate::{Errno, Result};

/// An absolute time on the domain's monotonic clock in nanoseconds; `None` waits for ever.
pub type Deadline = Option<u64>;

/// Something that can be told that a condition may have changed.
pub trait Wake: Send + Sync {
    /// Called with the events that may now hold; none if the queue does not say.
    /// Returns true if this used up an exclusive wake-up. Runs under the queue's lock: it must be short
    /// and must not touch the same queue.
    fn wake(&self, events: PollEvents) -> bool;
}

/// A thread that waits.
pub trait Waits: Wake {
    /// Whether its wait should give up: a signal is pending, or it must end or stop.
    fn interrupted(&self) -> bool;

    /// Whether what it does just now must not wait ([`without_waiting`]).
    fn hurries(&self) -> bool;

    /// Blocks it, which is the current thread, until it is woken or the deadline; false at the deadline. May return early.
    fn park(&self, deadline: Deadline) -> bool;
}

impl<R: Runnable> Waits for R {
    fn interrupted(&self) -> bool {
        self.is_interrupted()
    }

    fn hurries(&self) -> bool {
        self.entity().hurries.load(Ordering::Relaxed)
    }

    fn park(&self, deadline: Deadline) -> bool {
        super::park(self, deadline)
    }
}

/// How the layers below threads see the current one.
struct Current {
    waiter: fn() -> Arc<dyn Waits>,
    is_there: fn() -> bool,
    goes_outside: fn(u8),
    hurry: fn(bool),
}

static CURRENT: Once<Current> = Once::new();

/// Says what threads are; once, at boot.
pub fn run<R: Runnable>() {
    let goes_outside = |sources| {
        if let Some(t) = current_ref::<R>() {
            t.entity().outside.fetch_or(sources, Ordering::Relaxed);
        }
    };
    let is_there = || current_ref::<R>().is_some();
    let hurry = |on| {
        if let Some(t) = current_ref::<R>() {
            t.entity().hurries.store(on, Ordering::Relaxed);
        }
    };
    let set = CURRENT.set(Current { waiter: || current::<R>(), is_there, goes_outside, hurry });
    assert!(set.is_ok(), "threads are of one kind");
}

/// The current thread, for a wait. Panics on an idle vCPU.
pub fn waiter() -> Arc<dyn Waits> {
    match CURRENT.get() {
        Some(c) => (c.waiter)(),
        None => panic!("waiting before boot"),
    }
}

/// Whether there is a current thread, which can wait; PID 1 that serves events is none.
pub(crate) fn can_wait() -> bool {
    CURRENT.get().is_some_and(|c| (c.is_there)())
}

/// The current thread has used sources of wake-ups outside of the domain ([`super::Outside`], which numbers them by bits): what
/// it waits for next may come from there.
pub fn goes_outside(sources: u8) {
    if let Some(c) = CURRENT.get() {
        (c.goes_outside)(sources);
    }
}

/// Does something in which the current thread must not wait for others: where it would, [`wait_until`] gives EAGAIN.
pub fn without_waiting<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let hurry = |on| {
        if let Some(c) = CURRENT.get() {
            (c.hurry)(on);
        }
    };
    hurry(true);
    let r = f();
    hurry(false);
    r
}

/// Identifies one registration on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitToken(u64);

struct Waiter {
    token: WaitToken,
    exclusive: bool,
    wake: Arc<dyn Wake>,
}

#[derive(Default)]
struct Waiters {
    next: u64,
    list: Vec<Waiter>,
}

/// A list of waiters for one condition. First come, first served.
#[derive(Default)]
pub struct WaitQueue {
    inner: SpinLock<Waiters>,
    /// Length of the list, so that waking nobody takes no lock.
    count: AtomicUsize,
}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { inner: SpinLock::new(Waiters { next: 0, list: Vec::new() }), count: AtomicUsize::new(0) }
    }

    /// Adds a waiter. Exclusive waiters are woken one at a time by [`Self::wake_one`].
    pub fn add(&self, wake: Arc<dyn Wake>, exclusive: bool) -> WaitToken {
        let mut q = self.inner.lock();
        q.next += 1;
        let token = WaitToken(q.next);
        q.list.push(Waiter { token, exclusive, wake });
        self.count.store(q.list.len(), Ordering::SeqCst);
        token
    }

    /// Removes a waiter; true if it was still there.
    pub fn remove(&self, token: WaitToken) -> bool {
        let mut q = self.inner.lock();
        let Some(i) = q.list.iter().position(|w| w.token == token) else { return false };
        let w = q.list.remove(i);
        self.count.store(q.list.len(), Ordering::SeqCst);
        drop(q);
        drop(w);
        true
    }

    /// Tells every waiter; where `events` are such as one taker uses up, only the first of those that asked for that
    /// (EPOLLEXCLUSIVE).
    pub fn wake_all(&self, events: PollEvents) {
        // An end, an error or something unknown concerns all.
        let used_up = !events.is_empty() && PollEvents::USED_UP.contains(events);
        self.wake_n(if used_up { 1 } else { usize::MAX }, events);
    }

    /// Tells every non-exclusive waiter and the first `n` exclusive ones.
    pub fn wake_n(&self, mut n: usize, events: PollEvents) {
        if self.is_empty() {
            return;
        }
        let _until_unlocked = wakes::hold();
        let q = self.inner.lock();
        for w in &q.list {
            if w.exclusive {
                if n == 0 {
                    continue;
                }
                if w.wake.wake(events) {
                    n -= 1;
                }
            } else {
                w.wake.wake(events);
            }
        }
    }

    /// Tells every non-exclusive waiter and the first exclusive one.
    pub fn wake_one(&self, events: PollEvents) {
        self.wake_n(1, events);
    }

    /// Tells every waiter that something has changed, without saying what.
    pub fn notify_all(&self) {
        self.wake_all(PollEvents::empty());
    }

    /// Tells every non-exclusive waiter and the first exclusive one, without saying of what.
    pub fn notify_one(&self) {
        self.wake_one(PollEvents::empty());
    }

    /// Whether nobody waits, for a caller that changed the condition under a lock it still holds and that every
    /// waiter takes to check it: one who checked before that has registered before, one who registers later
    /// will see the change. Cheaper than [`Self::is_empty`].
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Whether nobody waits. What the caller stored before is visible to anybody who registers later: a
    /// waiter that this misses will see the new condition when it checks.
    pub fn is_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::SeqCst) == 0
    }
}

/// Blocks the current thread until `cond` returns a value, a signal arrives or the deadline passes.
///
/// `cond` is called before each sleep with this thread already registered on `queue`, so a wake-up between
/// the check and the sleep is not lost. Errors: `ERESTARTSYS` if a signal (or freeze, or exit) is pending,
/// `ETIMEDOUT` at the deadline, `EAGAIN` in [`without_waiting`]. The caller holds no lock.
pub fn wait_until<T>(
    queue: &WaitQueue,
    deadline: Deadline,
    mut cond: impl FnMut() -> Option<T>,
) -> Result<T> {
    if let Some(v) = cond() {
        return Ok(v);
    }
    let me = waiter();
    if me.hurries() {
        return Err(Errno::EAGAIN);
    }
    let token = queue.add(me.clone(), false);
    let r = loop {
        if let Some(v) = cond() {
            break Ok(v);
        }
        if me.interrupted() {
            break Err(Errno::ERESTARTSYS);
        }
        if !me.park(deadline) {
            break cond().ok_or(Errno::ETIMEDOUT);
        }
    };
    queue.remove(token);
    r
}

/// As [`wait_until`], but not disturbed by signals: only for short waits on the kernel's own progress.
pub fn wait_until_uninterruptible<T>(queue: &WaitQueue, mut cond: impl FnMut() -> Option<T>) -> T {
    if let Some(v) = cond() {
        return v;
    }
    let me = waiter();
    let token = queue.add(me.clone(), false);
    let r = loop {
        if let Some(v) = cond() {
            break v;
        }
        me.park(None);
    };
    queue.remove(token);
    r
}

/// Registrations of one waker on the queues of several files, undone on drop.
pub struct PollTable {
    wake: Arc<dyn Wake>,
    regs: Vec<(Arc<WaitQueue>, WaitToken)>,
    exclusive: bool,
}

impl PollTable {
    /// A table that registers `wake`.
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        Self { wake, regs: Vec::new(), exclusive: false }
    }

    /// A table whose registrations are exclusive (EPOLLEXCLUSIVE).
    pub fn exclusive(wake: Arc<dyn Wake>) -> Self {
        Self { wake, regs: Vec::new(), exclusive: true }
    }

    /// Registers on `queue`; called by `FileOps::poll`.
    pub fn add(&mut self, queue: &Arc<WaitQueue>) {
        let token = queue.add(self.wake.clone(), self.exclusive);
        self.regs.push((queue.clone(), token));
    }
}

impl Drop for PollTable {
    fn drop(&mut self) {
        for (q, t) in self.regs.drain(..) {
            q.remove(t);
        }
    }
}
