//! What the scheduler needs to know of what it runs.
//!
//! Key types: [`Runnable`] (a thread as the scheduler sees it), [`Entity`] (the fields of a thread that are the
//! scheduler's), [`Memory`] (what a space holds), [`Outside`] (a source of wake-ups outside of the domain).
//! Boundary: the scheduler is generic over them and names no type of the layers above.

use alloc::sync::{Arc, Weak};
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use doppel_abi_machine::frozen::Segment;
use doppel_algo::park::ParkWord;
use doppel_machine::cpu::{self, CurrentRef, ThreadObject};
use doppel_machine::sync::SpinLock;

use super::runqueue::Space;
use super::wait::Wake;

/// A thread that can be scheduled.
pub trait Runnable: ThreadObject + Wake + Sized {
    /// The memory of the space it runs in.
    type Memory: Memory;
    /// Where it may be woken from besides the domain.
    type Outside: Outside;

    /// Its fields that are the scheduler's.
    fn entity(&self) -> &Entity<Self>;

    /// Whether a wait of it should give up: a signal is pending, or it must end or stop.
    fn is_interrupted(&self) -> bool;

    /// It goes on or begins to run on this vCPU, at `now` (domain monotonic nanoseconds).
    fn runs(&self, now: u64);

    /// The current thread leaves its vCPU, or sleeps on it, at `now`.
    fn stops(&self, now: u64);

    /// The current thread runs for the last time.
    fn ends(&self);

    /// Asks for a host process for `space`, which has none and in which a thread wants to go on.
    fn start_host(space: Arc<Space<Self>>);

    /// Something to do on a vCPU of `space` while all of its vCPUs stand still.
    fn while_still(space: &Arc<Space<Self>>);
}

/// The memory of a space.
pub trait Memory: Send + Sync + 'static {
    /// Maps these pages from the share file. Runs on a vCPU of the space, which stands still.
    fn share(&self, list: &[Segment]);
}

/// A source of wake-ups outside of the domain: a service.
pub trait Outside: Copy + Send + Sync + 'static {
    /// The right to be woken by it.
    type Watch: Watch;

    /// Of these sources, by bits, the one that the next wait is most likely for, and its bit.
    fn of(sources: u8) -> Option<(Self, u8)>;

    /// Hands over what was held back for these sources until the thread waits.
    fn release(sources: u8);

    /// Whether it has news, for a thread that spins.
    fn rings(self) -> bool;

    /// Takes the news.
    fn look_in_place(self);

    /// The right to be woken by it; none if another vCPU has it.
    fn watch(self) -> Option<Self::Watch>;
}

/// See [`Outside::Watch`].
pub trait Watch {
    /// Sleeps until `word` is not `seen` any more, there are news, or the deadline (of the host's clock) passes.
    fn sleep(&self, word: &AtomicU32, seen: u32, deadline: Option<u64>);
}

/// The scheduler's fields of a thread.
pub struct Entity<R: Runnable> {
    pub(super) me: Weak<R>,
    /// The space it runs in.
    space: SpinLock<Arc<Space<R>>>,
    /// Number of its space.
    space_id: AtomicU64,
    pub(super) park: ParkWord,
    /// Whether its next wait may spin (`doppel_algo::park::Window`).
    pub(super) spin_window: AtomicU32,
    /// The slot of the vCPU it sleeps on, while it waits in place.
    pub(super) slot: AtomicU32,
    /// Whether a thread of its own space woke it last.
    pub(super) woken_by_own: AtomicBool,
    /// Which [`Outside`]s it has used since it last waited for them.
    pub(super) outside: AtomicU8,
    /// Whether it is about to wait when it wakes another thread of its space (`doppel_algo::park::Handover`).
    pub(super) handover: AtomicU32,
    /// When it last woke one (domain monotonic), 0 once it has waited.
    pub(super) woke_at: AtomicU64,
    pub(super) timed_out: AtomicBool,
    /// What it does just now must not wait.
    pub(super) hurries: AtomicBool,
}

impl<R: Runnable> Entity<R> {
    /// Of the new thread `me`, which will run in `space`.
    pub fn new(me: Weak<R>, space: Arc<Space<R>>) -> Self {
        Self {
            me,
            space_id: AtomicU64::new(space.id),
            space: SpinLock::new(space),
            park: ParkWord::default(),
            spin_window: AtomicU32::new(0),
            slot: AtomicU32::new(0),
            woken_by_own: AtomicBool::new(false),
            outside: AtomicU8::new(0),
            handover: AtomicU32::new(0),
            woke_at: AtomicU64::new(0),
            timed_out: AtomicBool::new(false),
            hurries: AtomicBool::new(false),
        }
    }

    /// The thread; none while it is being dropped.
    pub fn me(&self) -> Option<Arc<R>> {
        self.me.upgrade()
    }

    /// The space it runs in.
    pub fn space(&self) -> Arc<Space<R>> {
        self.space.lock().clone()
    }

    /// Looks at the space it runs in, which costs less than taking a reference to it. Lock order: before the space's own.
    #[inline]
    pub fn with_space<T>(&self, f: impl FnOnce(&Space<R>) -> T) -> T {
        f(&self.space.lock())
    }

    /// Number of the space it runs in.
    pub fn space_id(&self) -> u64 {
        self.space_id.load(Ordering::Relaxed)
    }

    /// Moves the thread to another space (exec): it continues there when next resumed.
    pub fn set_space(&self, space: Arc<Space<R>>) {
        self.space_id.store(space.id, Ordering::Relaxed);
        *self.space.lock() = space;
    }

    /// Whether it waits.
    pub fn waits(&self) -> bool {
        self.park.waits()
    }
}

/// The current thread; panics on an idle vCPU.
pub(super) fn current<R: Runnable>() -> Arc<R> {
    let t: Arc<dyn Any + Send + Sync> = cpu::current();
    match t.downcast() {
        Ok(t) => t,
        Err(_) => panic!("no current thread on an idle vCPU"),
    }
}

/// The current thread, borrowed, if this is no idle vCPU.
pub(super) fn current_ref<R: Runnable>() -> Option<CurrentRef<R>> {
    cpu::current_as()
}

/// Runs `next` instead of the current task. All switches go through here.
pub(super) fn switch_to<R: Runnable>(next: Arc<dyn ThreadObject>) {
    if cpu::is_current(&next) {
        return;
    }
    let now = crate::core::time::monotonic_ns();
    if let Some(t) = current_ref::<R>() {
        t.stops(now);
        t.entity().learn_handover(now);
    }
    // Not before the vCPU that ran it last has said that it stopped.
    cpu::switch_to(next, |object| {
        let object: &dyn Any = object;
        if let Some(t) = object.downcast_ref::<R>() {
            t.runs(now);
        }
    });
}
