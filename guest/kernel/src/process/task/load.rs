//! Load averages, and the CPU time they are made from.

use doppel_algo::loadavg::LoadAvg;
use doppel_machine::sync::SpinLock;

use super::{Process, TASKS};
use crate::core::part::Part;
use crate::core::sched::Runnable;
use crate::core::time;
use crate::kernel;

/// CPU nanoseconds of all processes that still have an entry.
pub(crate) fn total_cpu_ns() -> u64 {
    let one = |p: &Process| crate::process::time::cpu::process_ns(p) + p.used.children().total();
    TASKS.all_processes().iter().map(|p| one(p)).sum()
}

/// Threads that run or could run, and all threads.
pub(crate) fn thread_counts() -> (usize, usize) {
    let threads = TASKS.threads.lock();
    (threads.values().filter(|t| !t.entity().waits()).count(), threads.len())
}

/// The load averages of the domain.
pub(crate) static LOAD: Part<SpinLock<LoadAvg>> = Part::new();

/// Load averages in hundredths.
pub fn load_averages() -> [u64; 3] {
    let cpu = total_cpu_ns();
    let up = time::monotonic_ns().saturating_sub(kernel().boot_ns);
    let state = LOAD.get();
    let mut l = state.lock();
    l.update(up, cpu);
    l.hundredths()
}
