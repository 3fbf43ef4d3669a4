//! How long the tasks of a control group have waited for a CPU although they could run.

use std::collections::HashMap;

use crate::cgroup::View;

/// Most tasks that are looked at: so many show whether somebody waits.
const MOST: usize = 64;

/// What was read of a group's tasks, in nanoseconds of waiting by task.
#[derive(Debug, Default)]
pub(super) struct Waiting(HashMap<u32, u64>);

impl Waiting {
    /// Nanoseconds waited since it was read last; none at the first time.
    pub fn read(&mut self, group: &View) -> Option<u64> {
        let first = self.0.is_empty();
        let now: HashMap<u32, u64> =
            group.tasks().into_iter().take(MOST).filter_map(|task| Some((task, waited(task)?))).collect();
        let sum = now.iter().map(|(task, ns)| ns.saturating_sub(*self.0.get(task).unwrap_or(ns))).sum();
        self.0 = now;
        (!first).then_some(sum)
    }
}

/// The second word of its schedstat (Documentation/scheduler/sched-stats.rst).
fn waited(task: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{task}/schedstat")).ok()?;
    text.split(' ').nth(1)?.parse().ok()
}
