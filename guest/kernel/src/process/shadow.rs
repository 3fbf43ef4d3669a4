//! Shadows: copies of a domain's processes that keep their memory as it was at a freeze, while the domain goes on.
//!
//! A shadow is a host process that was forked, so copy-on-write, from one of the domain while it stood still. It runs
//! nothing and owns nothing: it waits until the host has saved what it holds, and ends. Arena and page file are shared
//! and not kept by it; the host has saved them before (docs/freezer.md).
//!
//! Key types: [`Shadows`], which PID 1 looks after; `Space::shadow`, by which it asks a space for one.

use crate::process::task::SPACES;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};

use doppel_abi_machine::{NO_SHADOWS, event};
use doppel_machine::cpu::{self, ThreadObject, Vcpu};
use doppel_machine::sync::SpinLock;
use doppel_machine::task::Task;
use doppel_machine::{boot, frozen, host};

use crate::core::part::Part;
use crate::core::sched::settle;
use crate::core::time;
use crate::process::task::Space;

/// How often PID 1 looks again while a domain comes to a standstill, in nanoseconds.
pub(crate) const LOOK_AGAIN_NS: u64 = 500_000;
/// How long a shadow stays at most, in nanoseconds: should the host never say that it is done.
const STAY_NS: u64 = 120_000_000_000;

/// The shadows of a domain.
#[derive(Default)]
pub struct Shadows {
    /// [`doppel_abi_machine::VirtualRegisters::shadows_end`] when the newest were asked for: another value ends them.
    round: AtomicU32,
    living: SpinLock<Vec<Shadow>>,
}

/// The domain's.
pub static SHADOWS: Part<Shadows> = Part::new();

struct Shadow {
    round: u32,
    /// Host pid of the process it is a copy of.
    of: i32,
    vcpu: &'static Vcpu,
}

/// What the only vCPU of a shadow runs.
struct Still {
    task: Task,
    round: u32,
}

impl ThreadObject for Still {
    fn task(&self) -> &Task {
        &self.task
    }
}

// Whether a space is to leave a shadow (`Space::shadow`).
const NOTHING: u32 = 0;
const WANTED: u32 = 1;
const UNDER_WAY: u32 = 2;

impl Shadows {
    /// Has every space leave a shadow, and tells the host. Runs on PID 1 while the domain stands still.
    pub fn cast(&self) {
        let v = boot::vregs();
        let round = v.shadows_end.load(Ordering::SeqCst);
        self.round.store(round, Ordering::SeqCst);
        let spaces: Vec<Arc<Space>> = SPACES.hosts.lock().values().cloned().collect();
        for s in &spaces {
            s.shadow.store(WANTED, Ordering::SeqCst);
            if !s.rouse_one() {
                s.shadow.store(NOTHING, Ordering::SeqCst);
            }
        }
        let answered = settle(&v.event_seq, LOOK_AGAIN_NS, u64::MAX, |_| {
            let done = |s: &Arc<Space>| s.shadow.load(Ordering::SeqCst) == NOTHING && s.stands_still();
            let ends = v.pending.load(Ordering::SeqCst) & event::SHUTDOWN != 0;
            if spaces.iter().all(done) { Some(true) } else { ends.then_some(false) }
        });
        let pairs: Vec<(i32, i32)> =
            self.living.lock().iter().filter(|s| s.round == round).map(|s| (s.of, s.vcpu.tid())).collect();
        let complete = answered && pairs.len() == spaces.len() && frozen::list_shadows(&pairs);
        let answer = if complete { pairs.len() as u32 + 1 } else { NO_SHADOWS };
        v.shadows.store(answer, Ordering::SeqCst);
    }

    /// Whether the host process that has ended was a shadow; what it had is free then.
    pub fn ended(&self, pid: i32) -> bool {
        let mut living = self.living.lock();
        let Some(i) = living.iter().position(|s| s.vcpu.tid() == pid) else { return false };
        let shadow = living.swap_remove(i);
        drop(living);
        cpu::recycle(shadow.vcpu);
        true
    }

    /// Whether there are some, or may be.
    pub fn any(&self) -> bool {
        !self.living.lock().is_empty()
    }

    /// In a clone: they stayed behind.
    pub fn forget(&self) {
        for s in core::mem::take(&mut *self.living.lock()) {
            cpu::recycle(s.vcpu);
        }
    }
}

/// Leaves a shadow of `space`, whose vCPU this is, if one is wanted. If the host has no room for one more process,
/// PID 1 misses it.
pub(crate) fn leave(space: &Arc<Space>) {
    let (wish, shadows) = (&space.shadow, SHADOWS.get());
    if wish.compare_exchange(WANTED, UNDER_WAY, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        return;
    }
    let round = shadows.round.load(Ordering::SeqCst);
    if let Ok(vcpu) = cpu::spawn_space(Arc::new(Still { task: Task::idle(), round }), false) {
        let of = space.host_pid.load(Ordering::SeqCst);
        shadows.living.lock().push(Shadow { round, of, vcpu });
    }
    wish.store(NOTHING, Ordering::SeqCst);
}

/// Of a shadow's thread object: when it was left.
pub(crate) fn round_of(object: &(dyn Any + Send + Sync)) -> Option<u32> {
    object.downcast_ref::<Still>().map(|s| s.round)
}

/// What a shadow does: nothing, until the host needs it no longer.
pub(crate) fn stay(round: u32) -> ! {
    let end = &boot::vregs().shadows_end;
    let until = time::monotonic_ns() + STAY_NS;
    while end.load(Ordering::SeqCst) == round && time::monotonic_ns() < until {
        host::futex_wait(end, round, Some(time::to_host_monotonic(until)));
    }
    host::exit_process(0);
}
