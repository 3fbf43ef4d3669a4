//! How long the tasks of a control group have waited for a CPU although they could run.

use std::collections::HashMap;
use std::time::Instant;

use crate::limits::cgroup::View;
use crate::limits::short_file::brief;

/// Most tasks that are looked at: so many show whether somebody waits.
const MOST: usize = 12;

/// Waits as short as this on average, in nanoseconds, are those of whoever shares a CPU and runs briefly; who lacks CPU time
/// waits for slices of others, some milliseconds each.
const SHORT: u64 = 1_000_000;

/// The host's counts of a task (Documentation/scheduler/sched-stats.rst), times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    ran: u64,
    waited: u64,
    /// How often it was given a CPU.
    turns: u64,
}

impl Counts {
    /// How long it waited since then, short waits aside.
    fn waited_since(&self, old: &Self) -> u64 {
        let waited = self.waited.saturating_sub(old.waited);
        let turns = self.turns.saturating_sub(old.turns);
        if waited > turns.saturating_mul(SHORT) { waited } else { 0 }
    }
}

/// What was read of a task last.
#[derive(Clone, Copy, Debug)]
struct Task {
    counts: Counts,
    /// It was seen waiting, for so long that is not reckoned yet.
    waits: Option<u64>,
    /// Its last wait was none of the short ones.
    is_long: bool,
    /// What was reckoned of a wait that is not over, which the host counts when it is.
    ahead: u64,
}

impl Task {
    fn new(counts: Counts) -> Self {
        Self { counts, waits: None, is_long: false, ahead: 0 }
    }

    /// Reads it again some time later; how long it waited.
    fn read(&mut self, counts: Counts, since: u64, is_runnable: impl FnOnce() -> bool) -> u64 {
        if counts != self.counts {
            let waited = counts.waited_since(&self.counts);
            let is_long = if counts.waited == self.counts.waited { self.is_long } else { waited > 0 };
            let ahead = self.ahead;
            *self = Self { is_long, ..Self::new(counts) };
            return waited.saturating_sub(ahead);
        }
        if !is_runnable() {
            self.waits = None;
            return 0;
        }
        let waits = match self.waits {
            // It may have begun just now.
            None if !self.is_long => {
                self.waits = Some(since);
                return 0;
            }
            waits => waits.unwrap_or(0) + since,
        };
        self.waits = Some(0);
        self.ahead += waits;
        waits
    }
}

/// What was read of a group's tasks last, and when.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    tasks: HashMap<u32, Task>,
    last: Option<Instant>,
}

impl Waiting {
    /// How many CPUs tasks waited for since it was read last; none at the first time.
    pub fn read(&mut self, group: &View) -> f64 {
        let now = Instant::now();
        let since = self.last.replace(now).map_or(0, |last| (now - last).as_nanos() as u64);
        let mut old = std::mem::take(&mut self.tasks);
        let mut sum: u64 = 0;
        for id in group.tasks().into_iter().take(MOST) {
            let Some(counts) = counts(id) else { continue };
            let task = match old.remove(&id) {
                Some(mut task) => {
                    sum += task.read(counts, since, || is_runnable(id));
                    task
                }
                None => Task::new(counts),
            };
            self.tasks.insert(id, task);
        }
        sum as f64 / since.max(1) as f64
    }
}

fn counts(task: u32) -> Option<Counts> {
    let text = brief(format!("/proc/{task}/schedstat"))?;
    let mut words = text.split_whitespace().map_while(|word| word.parse().ok());
    Some(Counts { ran: words.next()?, waited: words.next()?, turns: words.next()? })
}

/// Its state, which follows its name in brackets (proc(5)).
fn is_runnable(task: u32) -> bool {
    let runs = |text: String| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'));
    // One that is gone does not.
    brief(format!("/proc/{task}/stat")).is_some_and(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: u64 = 20 * SHORT;

    fn counts(ran: u64, waited: u64, turns: u64) -> Counts {
        Counts { ran, waited, turns }
    }

    #[test]
    fn short_waits_are_no_lack() {
        let waited = |waited, turns: u64| {
            Task::new(counts(0, 5, 7)).read(counts(9, 5 + waited, 7 + turns), LOOK, || true)
        };
        assert_eq!(waited(100 * SHORT, 1000), 0);
        assert_eq!(waited(100 * SHORT, 10), 100 * SHORT);
        assert_eq!(waited(0, 0), 0);
        // One that sleeps most of the time, and waits whenever it is looked at.
        let mut task = Task::new(counts(0, 0, 0));
        assert_eq!(task.read(counts(0, 0, 0), LOOK, || true), 0);
        assert_eq!(task.read(counts(1, 9, 1), LOOK, || true), 0);
    }

    /// A slice of 4 ms, then a wait of 76: the host counts the wait when it is over.
    #[test]
    fn a_long_wait_is_reckoned_once() {
        let mut task = Task::new(counts(0, 0, 0));
        let (mut sum, mut cycle) = (0, counts(0, 0, 0));
        for look in 0..37 {
            if look % 4 == 0 {
                cycle = counts(cycle.ran + 4 * SHORT, cycle.waited + 76 * SHORT, cycle.turns + 1);
            }
            sum += task.read(cycle, LOOK, || true);
        }
        assert_eq!(sum, 10 * 76 * SHORT);
    }

    #[test]
    fn a_task_that_sleeps_does_not_wait() {
        let mut task = Task::new(counts(0, 0, 0));
        assert_eq!((0..9).map(|_| task.read(counts(0, 0, 0), LOOK, || false)).sum::<u64>(), 0);
    }
}
