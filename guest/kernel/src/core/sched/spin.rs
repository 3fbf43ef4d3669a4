//! Waiting in place: a thread that waits for another process keeps its vCPU, spins for a while if that may pay, and
//! then sleeps together with it.
//!
//! A wake-up through the host costs microseconds on both sides, a spinning thread sees it at once. Whether a thread
//! may spin follows from its last waits (`doppel_algo::park::Window`); nobody spins while the domain has more vCPUs
//! awake than CPUs, and a spinner stops as soon as that happens. Whatever its vCPU is needed for (other work of the
//! space, another thread's deadline), the thread leaves it then.
//!
//! A thread that was last woken by a thread of its own space does not wait in place: off its vCPU it can be taken
//! up by the waker's vCPU, with no host call at all.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_algo::park::Window;
use doppel_machine::host;

use super::runnable::{Entity, Outside, Runnable, Watch, current_ref};
use super::runqueue::{Space, with_vcpu};
use super::wait::Deadline;
use crate::core::time;
use crate::kernel;

/// Looks at the words a spinner watches, between two looks at the clock: a few hundred nanoseconds.
const LOOKS: u32 = 8;

/// What became of a wait in place.
pub(super) enum WaitEnd {
    /// It is over.
    Woken,
    /// The deadline has passed.
    TimedOut,
    /// The thread is marked as off its vCPU and must leave it.
    Left,
}

/// Begins the wait of `me`.
pub(super) fn wait<R: Runnable>(thread: &R, deadline: Deadline) -> WaitEnd {
    let me = thread.entity();
    let sources = me.outside.load(Ordering::Relaxed);
    if sources != 0 {
        R::Outside::release(sources);
    }
    if me.woken_by_own.load(Ordering::Relaxed) {
        return if me.park.leave() { WaitEnd::Left } else { WaitEnd::Woken };
    }
    let outside = R::Outside::of(sources).map(|(source, bit)| {
        me.outside.fetch_and(!bit, Ordering::Relaxed);
        source
    });
    with_vcpu(|space: &Arc<Space<R>>, slot| {
        if !me.park.spin() {
            return WaitEnd::Woken;
        }
        if space.has_ready() {
            return leave(me, space, false);
        }
        let window = Window::from_raw(me.spin_window.load(Ordering::Relaxed));
        let start = time::monotonic_ns();
        let mut spun = false;
        if window.is_open() && kernel().cpus.may_spin() {
            space.set.spin_begin(slot);
            let end = watch(me, space, slot, outside, (start + Window::NS).min(deadline.unwrap_or(u64::MAX)));
            let claimed = space.set.spin_end(slot);
            match end {
                End::Notified => learn(me, window.after_good_spin()),
                End::Time => learn(me, window.after_vain_spin()),
                End::Needed => {}
            }
            if claimed || end == End::Notified {
                return leave(me, space, claimed);
            }
            spun = true;
        }
        let ended = sleep(thread, space, slot, outside, deadline);
        if !spun && matches!(ended, WaitEnd::Woken) {
            learn(me, window.after_wait(time::monotonic_ns().saturating_sub(start)));
        }
        ended
    })
}

fn learn<R: Runnable>(me: &Entity<R>, window: Window) {
    me.spin_window.store(window.to_raw(), Ordering::Relaxed);
}

/// Leaves the vCPU, unless the wait is over. `claimed`: the vCPU was told of work that somebody else must take then.
fn leave<R: Runnable>(me: &Entity<R>, space: &Arc<Space<R>>, claimed: bool) -> WaitEnd {
    if me.park.give_up() {
        return WaitEnd::Left;
    }
    if claimed {
        space.taken();
    }
    WaitEnd::Woken
}

/// Why a spin ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Notified,
    /// Somebody needs the vCPU or the CPU.
    Needed,
    Time,
}

/// Spins until there is something to do or the time is over.
fn watch<R: Runnable>(
    me: &Entity<R>,
    space: &Space<R>,
    slot: u32,
    outside: Option<R::Outside>,
    until: u64,
) -> End {
    if space.has_ready() {
        return End::Needed;
    }
    loop {
        for _ in 0..LOOKS {
            if me.park.notified() {
                return End::Notified;
            }
            if !space.set.spin_goes_on(slot) {
                return End::Needed;
            }
            core::hint::spin_loop();
        }
        if let Some(source) = outside.filter(|s| s.rings()) {
            source.look_in_place();
            continue;
        }
        if !kernel().cpus.may_spin() {
            return End::Needed;
        }
        if time::monotonic_ns() >= until {
            return End::Time;
        }
    }
}

/// Sleeps on the vCPU.
fn sleep<R: Runnable>(
    thread: &R,
    space: &Arc<Space<R>>,
    slot: u32,
    outside: Option<R::Outside>,
    deadline: Deadline,
) -> WaitEnd {
    let me = thread.entity();
    me.slot.store(slot, Ordering::Relaxed);
    if !me.park.sleep() {
        return WaitEnd::Woken;
    }
    if let Some(t) = current_ref::<R>() {
        t.stops(time::monotonic_ns());
    }
    let watch = outside.and_then(Outside::watch);
    let ended = loop {
        let others = space.first_deadline();
        let until = [deadline, others].into_iter().flatten().min();
        let ready = || me.park.notified() || space.must_stop();
        thread.task().rest(|| space.sleep_vcpu(slot, until, watch.as_ref(), ready));
        if watch.is_some()
            && let Some(source) = outside
        {
            source.look_in_place();
        }
        if me.park.notified() {
            me.park.resume();
            break WaitEnd::Woken;
        }
        if space.has_ready() || space.must_stop() {
            break leave(me, space, false);
        }
        let now = if until.is_some() { time::monotonic_ns() } else { 0 };
        if deadline.is_some_and(|d| d <= now) {
            break if me.park.resume() { WaitEnd::Woken } else { WaitEnd::TimedOut };
        }
        if others.is_some_and(|d| d <= now) {
            break leave(me, space, false);
        }
    };
    if let Some(t) = current_ref::<R>() {
        t.runs(time::monotonic_ns());
    }
    if !matches!(ended, WaitEnd::Left) {
        space.taken();
    }
    ended
}

impl<R: Runnable> Space<R> {
    /// Puts this vCPU to sleep until it is claimed, at most until `deadline`, unless there is work or `ready`. The
    /// caller looks for both again, and, if it watches, at what the service has said.
    pub(super) fn sleep_vcpu(
        &self,
        slot: u32,
        deadline: Deadline,
        watch: Option<&<R::Outside as Outside>::Watch>,
        ready: impl FnOnce() -> bool,
    ) {
        let word = self.word(slot);
        let seen = word.load(Ordering::SeqCst);
        kernel().cpus.sleep();
        // From here to the end of the sleep this vCPU holds no lock: the last one to get here with no thread left
        // may end the host process under the others.
        let all = self.set.sleep_begin(slot);
        if all && self.thread_count() == 0 {
            host::exit_process(0);
        }
        if !self.has_ready() && !ready() {
            let deadline = deadline.map(time::to_host_monotonic);
            match watch {
                None => drop(host::futex_wait(word, seen, deadline)),
                Some(w) => w.sleep(word, seen, deadline),
            }
        }
        if !self.set.sleep_end(slot) {
            kernel().cpus.wake();
        }
    }
}
