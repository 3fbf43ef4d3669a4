//! Which CPUs tasks may run on.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that domains may use, in order.
#[derive(Debug)]
pub(super) struct Cpus {
    numbers: Vec<usize>,
}

impl Cpus {
    /// Those of this process. None where there are more than a set can hold: no task is moved there.
    pub fn all() -> Self {
        let Ok(set) = sched_getaffinity(None) else { return Self { numbers: Vec::new() } };
        Self { numbers: (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect() }
    }

    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Those from one to before another.
    pub fn set(&self, from: usize, to: usize) -> CpuSet {
        let mut set = CpuSet::new();
        self.numbers[from..to].iter().for_each(|cpu| set.set(*cpu));
        set
    }

    /// Moves tasks to these CPUs that run on all, or where somebody of `ours` has put them. Others have chosen their CPUs
    /// themselves.
    pub fn drive(&self, tasks: &[u32], to: &CpuSet, ours: impl Fn(&CpuSet) -> bool) {
        let all = self.set(0, self.count());
        for task in tasks.iter().filter_map(|task| Pid::from_raw(i32::try_from(*task).ok()?)) {
            if sched_getaffinity(Some(task)).is_ok_and(|now| now != *to && (now == all || ours(&now))) {
                // One that is gone needs no CPU.
                let _ = sched_setaffinity(Some(task), to);
            }
        }
    }
}
