//! What becomes of one domain's pages while it has a target.
//!
//! A round: look what is in memory ([`doppel_freezer::resident`]); if that is more than the target, list as much of it for the
//! guest kernel, which moves it to the swap region and maps it from there; then have the host's kernel write the region out,
//! and drop what is written and nobody has touched meanwhile. So the pages that a program uses stay, or come back at once
//! from the page cache: a clock whose hand unmaps pages instead of clearing a bit (docs/adr/017). No step waits for a domain.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use doppel_abi_machine::frozen::Segment;
use doppel_abi_machine::{event, fd, swap};
use doppel_freezer::resident::{Run, resident};
use doppel_freezer::scan::processes::processes;

use super::region;
use crate::io::ring::{post, registers};
use crate::limits::cgroup::View;
use crate::lock::lock;
use crate::run::state::Core;

/// How often it is looked while there is something to do, and while there is nothing.
const OFTEN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(4);
/// How often the control group's figure is read when there was nothing to do.
const WATCH: Duration = Duration::from_secs(1);
/// How often it is seen whether the guest kernel is done with a list.
const ASK: Duration = Duration::from_millis(5);
/// How long it may take: its processes may have no time to run.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is written and dropped at a time.
const FLUSH: u64 = 32 << 20;
/// How long pages stay in the page cache at least after they were moved out.
const GRACE: Duration = Duration::from_millis(150);
/// By how much the control group's figure has to change for another look when there was nothing to do.
const STIR: u64 = 1 << 20;
/// Times that the region is gone through after a round: what is being written stays until the next.
const FLUSHES: u32 = 6;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Look what is in memory.
    Look,
    /// The guest kernel has a list.
    Asked { since: Instant },
    /// The region is gone through.
    Flush { at: u64 },
}

/// One domain's paging.
#[derive(Debug)]
pub(crate) struct Paging {
    /// None: nothing is to leave memory.
    target: Option<u64>,
    due: Instant,
    interval: Duration,
    step: Step,
    round: u32,
    /// Where the hand of the clock stands: process and address.
    hand: (i32, u64),
    flushes: u32,
    /// What was in use before the last round, and how much of that was listed.
    last: (u64, u64),
    /// The control group's figure when there was nothing to do.
    calm: Option<u64>,
}

/// What a domain has in memory.
struct InUse {
    total: u64,
    runs: Vec<(i32, Run)>,
}

impl Paging {
    /// Of a domain with a region and this target.
    pub fn new(target: Option<u64>) -> Self {
        Self {
            target: target.filter(|t| *t > 0),
            due: Instant::now(),
            interval: OFTEN,
            step: Step::Look,
            round: 0,
            hand: (0, 0),
            flushes: 0,
            last: (0, 0),
            calm: None,
        }
    }

    /// When there is something to do; none without a target.
    pub fn due(&self) -> Option<Instant> {
        self.target.map(|_| self.due)
    }

    /// Sets another target.
    pub fn aim(&mut self, target: Option<u64>) {
        let target = target.filter(|t| *t > 0);
        if target != self.target {
            (self.target, self.interval, self.calm) = (target, OFTEN, None);
            if matches!(self.step, Step::Look) {
                self.due = Instant::now();
            }
        }
    }

    /// Does the next step. What fails is tried again later: a domain that ends, or stands still.
    fn go_on(&mut self, core: &Core) {
        let now = Instant::now();
        let Ok(Some(file)) = region::of(core.child.pid) else {
            self.due = now + SELDOM;
            return;
        };
        match self.step {
            Step::Look => self.look(core, &file, now),
            Step::Asked { since } => {
                let done = registers(&core.map).swap_done.load(Ordering::Acquire) == self.round;
                if done || now > since + PATIENCE {
                    (self.step, self.flushes) = (Step::Flush { at: 0 }, FLUSHES);
                }
                self.due = now + if done { Duration::ZERO } else { ASK };
            }
            Step::Flush { at } => match region::flush(&file, at, FLUSH) {
                Ok(Some(at)) => self.step = Step::Flush { at },
                // A disk that is full or broken: what is in memory stays there.
                Ok(None) | Err(_) => {
                    self.flushes = self.flushes.saturating_sub(1);
                    (self.step, self.due) = (Step::Look, now + GRACE.max(self.interval));
                }
            },
        }
    }

    fn look(&mut self, core: &Core, file: &File, now: Instant) {
        let Some(target) = self.target else { return };
        let counted = core.group.as_ref().and_then(View::charged);
        // Without a group it is looked each time.
        let unchanged = self.calm.zip(counted).is_some_and(|(then, now)| now.abs_diff(then) < STIR);
        if unchanged && self.flushes == 0 || core.stands_still() {
            self.interval = (self.interval * 2).min(WATCH);
            self.due = now + self.interval;
            return;
        }
        if !unchanged && self.calm.is_some() {
            self.interval = OFTEN;
        }
        self.calm = None;
        let Some(in_use) = self.in_use(core, file) else {
            self.due = now + SELDOM;
            return;
        };
        // A little less, so that what is touched next does not begin another round at once.
        let aim = target - target / 16;
        let list = match in_use.total > target {
            true => choose(&in_use.runs, in_use.total - aim, &mut self.hand),
            false => Vec::new(),
        };
        if list.is_empty() || !self.ask(core, file, &list) {
            self.interval = (self.interval * 2).min(SELDOM);
            if self.flushes > 0 {
                (self.step, self.due) = (Step::Flush { at: 0 }, now);
            } else {
                (self.calm, self.due) = (counted, now + self.interval);
            }
            return;
        }
        // If most of what was moved out is back, moving it again is no use: less often then.
        let (before, moved) = self.last;
        let back = moved.saturating_sub(before.saturating_sub(in_use.total));
        self.interval = if back > moved / 2 { (self.interval * 2).min(SELDOM) } else { OFTEN };
        self.last = (in_use.total, list.iter().map(|s| s.len).sum());
        (self.step, self.due) = (Step::Asked { since: now }, now + ASK);
    }

    /// Gives the guest kernel a list; false if the region does not take it.
    fn ask(&mut self, core: &Core, file: &File, list: &[Segment]) -> bool {
        let mut bytes = vec![0; swap::ENTRIES as usize];
        bytes[..8].copy_from_slice(&(list.len() as u64).to_le_bytes());
        for s in list {
            bytes.extend(s.space.to_le_bytes());
            bytes.extend(s.file.to_le_bytes());
            for word in [s.addr, s.len, s.offset] {
                bytes.extend(word.to_le_bytes());
            }
        }
        let written = region::size_of(file).and_then(|size| file.write_all_at(&bytes, size));
        if written.is_err() {
            return false;
        }
        let registers = registers(&core.map);
        // A predecessor of this process may have counted further.
        self.round = registers.swap_done.load(Ordering::Acquire).wrapping_add(1);
        registers.swap_round.store(self.round, Ordering::Release);
        post(&core.map, event::SWAP);
        true
    }

    /// What is in memory; none if the domain is just ending.
    fn in_use(&self, core: &Core, file: &File) -> Option<InUse> {
        let swap = file.metadata().ok()?.ino();
        let mut total = 0;
        for number in [fd::ARENA, fd::PAGEFILE] {
            let memory = std::fs::metadata(format!("/proc/{}/fd/{number}", core.child.pid)).ok()?;
            total += memory.blocks() * 512;
        }
        let mut all = processes(core.child.pid).ok()?;
        all.sort_unstable();
        let mut runs = Vec::new();
        for (inner, pid) in all {
            // One that has ended meanwhile has nothing.
            let Ok(one) = resident(pid, swap) else { continue };
            total += one.bytes;
            runs.extend(one.runs.into_iter().map(|run| (inner, run)));
        }
        Some(InUse { total, runs })
    }
}

/// As many bytes of `runs` as are wanted, from where the hand stands, which goes on.
fn choose(runs: &[(i32, Run)], want: u64, hand: &mut (i32, u64)) -> Vec<Segment> {
    let runs = cut(runs, *hand);
    let from = runs.partition_point(|(space, run)| (*space, run.addr) < *hand);
    let mut list: Vec<Segment> = Vec::new();
    let mut left = want;
    for &(space, run) in runs[from..].iter().chain(&runs[..from]) {
        if left == 0 || list.len() as u64 == swap::MOST {
            break;
        }
        let len = run.len.min(left.next_multiple_of(doppel_abi_machine::layout::PAGE));
        let offset = if run.own { swap::OWN } else { swap::SHOWN };
        list.push(Segment { space, file: 0, addr: run.addr, len, offset });
        *hand = (space, run.addr + len);
        left = left.saturating_sub(len);
    }
    // What lies before the hand was taken last: the guest kernel has each process' part in one piece.
    list.sort_unstable_by_key(|s| (s.space, s.addr));
    list
}

/// The runs, with the one cut in two in which the hand stands.
fn cut(runs: &[(i32, Run)], hand: (i32, u64)) -> Vec<(i32, Run)> {
    let mut all = Vec::with_capacity(runs.len() + 1);
    for &(space, run) in runs {
        let before = hand.1.saturating_sub(run.addr);
        if space == hand.0 && before > 0 && before < run.len {
            all.push((space, Run { len: before, ..run }));
            all.push((space, Run { addr: hand.1, len: run.len - before, ..run }));
        } else {
            all.push((space, run));
        }
    }
    all
}

impl Core {
    /// When paging has something to do; none if it has no region, or no target.
    pub fn paging_due(&self) -> Option<Instant> {
        lock(&self.paging).as_ref()?.due()
    }

    /// One step of paging.
    pub fn page(&self) {
        if let Some(paging) = lock(&self.paging).as_mut() {
            paging.go_on(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn the_hand_goes_round_and_takes_what_is_wanted() {
        let run =
            |addr: u64, pages: u64| Run { addr: addr * PAGE, len: pages * PAGE, own: addr.is_multiple_of(2) };
        let runs = [(3, run(2, 4)), (3, run(9, 1)), (7, run(2, 8))];
        let mut hand = (0, 0);
        let mut take = |pages: u64| -> Vec<(i32, u64, u64, u64)> {
            let list = choose(&runs, pages * PAGE, &mut hand);
            list.iter().map(|s| (s.space, s.addr / PAGE, s.len / PAGE, s.offset)).collect()
        };
        assert_eq!(take(5), [(3, 2, 4, swap::OWN), (3, 9, 1, swap::SHOWN)]);
        assert_eq!(take(2), [(7, 2, 2, swap::OWN)]);
        // It goes on in the middle of a run.
        assert_eq!(take(7), [(3, 2, 1, swap::OWN), (7, 4, 6, swap::OWN)]);
        assert_eq!(take(100).iter().map(|s| s.2).sum::<u64>(), 13);
        assert_eq!(take(0), []);
    }
}
