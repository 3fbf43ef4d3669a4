//! How long the tasks of a control group have waited for a CPU although they could run.

use std::collections::HashMap;
use std::time::Instant;

use crate::cgroup::View;

/// Most tasks that are looked at: so many show whether somebody waits.
const MOST: usize = 12;

/// The host's counts of a task (Documentation/scheduler/sched-stats.rst), in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    ran: u64,
    waited: u64,
}

/// What was read of a group's tasks last, and when.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    tasks: HashMap<u32, Counts>,
    last: Option<Instant>,
}

impl Waiting {
    /// How many CPUs tasks waited for since it was read last; none at the first time.
    pub fn read(&mut self, group: &View) -> f64 {
        let now = Instant::now();
        let since = self.last.replace(now).map_or(0, |last| (now - last).as_nanos() as u64);
        let old = std::mem::take(&mut self.tasks);
        let mut sum: u64 = 0;
        for task in group.tasks().into_iter().take(MOST) {
            let Some(counts) = counts(task) else { continue };
            self.tasks.insert(task, counts);
            sum += match old.get(&task) {
                // Waiting is counted when it is over.
                Some(old) if *old == counts && is_runnable(task) => since,
                Some(old) => counts.waited.saturating_sub(old.waited).min(since),
                None => 0,
            };
        }
        sum as f64 / since.max(1) as f64
    }
}

fn counts(task: u32) -> Option<Counts> {
    let text = std::fs::read_to_string(format!("/proc/{task}/schedstat")).ok()?;
    let mut words = text.split(' ').map_while(|word| word.parse().ok());
    Some(Counts { ran: words.next()?, waited: words.next()? })
}

/// Its state, which follows its name in brackets (proc(5)).
fn is_runnable(task: u32) -> bool {
    let runs = |text: String| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'));
    // One that is gone does not.
    std::fs::read_to_string(format!("/proc/{task}/stat")).is_ok_and(runs)
}
