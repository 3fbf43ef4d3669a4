//! The table of tasks: all processes and threads of the domain, and their numbers.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, Ordering};

use doppel_machine::sync::SpinLock;

use super::{Process, Thread};
use crate::core::namespace::pid;
use crate::core::part::Part;

pub use crate::core::namespace::pid::PID_MAX;

/// All processes and threads. Lock order: processes → threads.
#[derive(Default)]
pub struct Tasks {
    last_pid: AtomicI32,
    /// All processes, zombies included, by pid.
    pub processes: SpinLock<BTreeMap<i32, Arc<Process>>>,
    /// All threads by tid.
    pub threads: SpinLock<BTreeMap<i32, Arc<Thread>>>,
    /// The process with whose end the domain ends, besides guest pid 1: the command given to a clone. 0: none.
    pub foreground: AtomicI32,
}

/// The domain's.
pub static TASKS: Part<Tasks> = Part::new();

impl Tasks {
    /// Processes and threads made since boot.
    pub fn forks(&self) -> i32 {
        self.last_pid.load(Ordering::Relaxed)
    }

    /// A free pid or tid; `EAGAIN` when all are in use.
    pub fn alloc_pid(&self) -> crate::Result<i32> {
        let procs = self.processes.lock();
        let threads = self.threads.lock();
        // What somebody below the first PID namespace still goes by.
        let below = pid::first();
        for _ in 0..PID_MAX {
            let n = self.last_pid.fetch_add(1, Ordering::Relaxed);
            let pid = n.rem_euclid(PID_MAX - 1) + 1;
            let wrapped = n >= PID_MAX - 1;
            if wrapped && pid < 300 {
                continue;
            }
            if !procs.contains_key(&pid) && !threads.contains_key(&pid) && !below.is_taken(pid) {
                return Ok(pid);
            }
        }
        Err(crate::Errno::EAGAIN)
    }

    /// Whether nobody has this pid or tid.
    pub fn is_free(&self, pid: i32) -> bool {
        !self.processes.lock().contains_key(&pid)
            && !self.threads.lock().contains_key(&pid)
            && !pid::first().is_taken(pid)
    }

    /// How many tasks there are for a limit on them: threads, or processes if zombies make them more.
    pub fn tasks(&self) -> usize {
        let processes = self.processes.lock().len();
        self.threads.lock().len().max(processes)
    }

    /// The process with this pid (zombies included).
    pub fn process(&self, pid: i32) -> crate::Result<Arc<Process>> {
        self.processes.lock().get(&pid).cloned().ok_or(crate::Errno::ESRCH)
    }

    /// The thread with this tid.
    pub fn thread(&self, tid: i32) -> crate::Result<Arc<Thread>> {
        self.threads.lock().get(&tid).cloned().ok_or(crate::Errno::ESRCH)
    }

    /// All processes, in pid order.
    pub fn all_processes(&self) -> Vec<Arc<Process>> {
        self.processes.lock().values().cloned().collect()
    }
}

/// Pid of the domain's first guest process.
pub const fn init_pid() -> i32 {
    1
}
