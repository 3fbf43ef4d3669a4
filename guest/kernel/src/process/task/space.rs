//! Address spaces of the domain, and threads as the scheduler sees them.
//!
//! Key types: [`Space`] (one host process: memory, vCPUs, runnable threads), [`Spaces`] (all of them).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::sync::{Once, SpinLock};

use super::Thread;
use crate::core::part::Part;
use crate::core::sched::{self};

/// One address space.
pub type Space = sched::Space<Thread>;
/// What a vCPU runs when no thread of its space is runnable.
pub type IdleThread = sched::IdleThread<Thread>;

/// The address spaces of the domain.
#[derive(Default)]
pub struct Spaces {
    /// Live host processes by host pid, except PID 1.
    pub hosts: SpinLock<BTreeMap<i32, Arc<Space>>>,
    /// Those that have no host process yet (exec from a vfork child): PID 1 makes them in order.
    pub requests: SpinLock<Vec<Arc<Space>>>,
    init: Once<Arc<Space>>,
}

/// The domain's.
pub static SPACES: Part<Spaces> = Part::new();

impl Spaces {
    /// The space of the domain's host PID 1, which runs no guest program. Set once at boot.
    pub fn init(&self) -> Arc<Space> {
        match self.init.get() {
            Some(s) => s.clone(),
            None => panic!("the space of PID 1 before boot"),
        }
    }

    /// See [`Self::init`].
    pub(crate) fn set_init(&self, space: Arc<Space>) {
        assert!(self.init.set(space).is_ok(), "the space of PID 1 set twice");
    }

    /// First thing on a new vCPU of `space`. With the first one its host process is entered in the table, so PID 1 knows
    /// every process that can end by itself.
    pub fn vcpu_started(&self, space: &Arc<Space>) {
        if let Some(pid) = space.vcpu_started() {
            self.hosts.lock().insert(pid, space.clone());
        }
    }
}

/// The space of this host process.
pub fn current_space() -> Arc<Space> {
    sched::current_space()
}

/// Lets other runnable threads of this space run; the current one stays runnable.
pub fn yield_now() {
    sched::yield_now::<Thread>();
}
