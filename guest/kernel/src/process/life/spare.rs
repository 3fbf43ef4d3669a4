//! Clean spaces kept ready for exec.
//!
//! A program that execs out of a space it shares (vfork), or out of a large one (a forked copy of a big parent),
//! goes on in another host process, made by PID 1 whose memory is empty: so the cost of exec does not depend on the
//! parent's size. Making that process takes longer than the rest of exec; a few are therefore made ahead, while
//! programs exec, and given up when they have not for a while.
//!
//! Key type: [`Spares`]. Boundary: only PID 1 makes and ends spares. The lock is a leaf.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doppel_machine::arena;
use doppel_machine::sync::SpinLock;

use crate::core::part::Part;
use crate::core::time;
use crate::core::time::Expire;
use crate::kernel;
use crate::memory::Mm;
use crate::process::task::Space;

/// Spares while programs exec.
const COUNT: usize = 2;
/// How long they are kept after the last exec.
const KEEP_NS: u64 = 1_000_000_000;

/// The clean spaces of a domain. Each counts one thread, the one that will come.
#[derive(Default)]
pub struct Spares {
    ready: SpinLock<Vec<Arc<Space>>>,
    /// One was asked for since PID 1 last looked.
    used: AtomicBool,
    /// When PID 1 last saw that.
    last_used: AtomicU64,
}

/// The domain's.
pub static SPARES: Part<Spares> = Part::new();

/// Gives the spares up when their time is over.
struct End;

impl Spares {
    /// A clean space for one thread, which [`crate::core::sched::migrate`] may enter.
    pub fn take(&self) -> Arc<Space> {
        self.used.store(true, Ordering::Relaxed);
        let ready = self.ready.lock().pop();
        ready.unwrap_or_else(Self::make)
    }

    /// Those that nobody has taken, for the freezer: one that is just being started is in no other list.
    pub fn all(&self) -> Vec<Arc<Space>> {
        self.ready.lock().clone()
    }

    fn make() -> Arc<Space> {
        let space = Space::new(Mm::default());
        space.thread_added();
        space
    }

    /// Makes up for what was taken. Runs on PID 1.
    pub fn refill(&self) {
        if !self.used.swap(false, Ordering::Relaxed) {
            return;
        }
        let now = time::monotonic_ns();
        if self.last_used.swap(now, Ordering::Relaxed) == 0 {
            kernel().timekeeper.arm(now + KEEP_NS, Arc::new(End));
        }
        while self.ready.lock().len() < COUNT && !arena::low() {
            let space = Self::make();
            // Without room for one more process on the host there are no spares.
            if super::clone::start_space(&space, true).is_err() {
                break;
            }
            self.ready.lock().push(space);
        }
    }
}

impl Expire for End {
    fn expire(self: Arc<Self>, now: u64) {
        let spares = &SPARES;
        let end = spares.last_used.load(Ordering::Relaxed) + KEEP_NS;
        if end > now {
            kernel().timekeeper.arm(end, self);
            return;
        }
        spares.last_used.store(0, Ordering::Relaxed);
        let unused = core::mem::take(&mut *spares.ready.lock());
        for space in unused {
            space.thread_removed();
        }
    }
}
