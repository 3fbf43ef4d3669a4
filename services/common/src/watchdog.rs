//! Finds a service domain that hangs, and kills it: whoever waits for its end starts another.
//!
//! A step of work is short. One that does not end is judged by what the process does, never by time alone, so a healthy one
//! on a loaded host is left alone: a loop uses CPU time of its own; who is blocked sleeps and uses none; who only waits for a
//! CPU does neither.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::Heart;

/// Between two looks at one that works.
const LOOK: Duration = Duration::from_millis(15);
/// CPU time of a step that does not end, in the host's ticks of 10 ms.
const LOOPS: u64 = 5;
/// Looks in a row at which it slept in the middle of a step.
const SLEEPS: u32 = 4;
/// The same for a sleep that cannot be interrupted: the host fetches memory, or is to blame.
const FETCHES: u32 = 100;

/// What a process does, from `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Doing {
    /// R, S, D, ...
    state: u8,
    /// CPU time it has used, in ticks.
    ticks: u64,
}

impl Doing {
    fn of(pid: Pid) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name in parentheses may have anything in it.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = *fields.next()?.as_bytes().first()?;
        let mut times = fields.skip(10);
        let user: u64 = times.next()?.parse().ok()?;
        let system: u64 = times.next()?.parse().ok()?;
        Some(Self { state, ticks: user + system })
    }
}

/// A step that does not end.
#[derive(Debug, Default)]
struct Stuck {
    count: u32,
    first: Option<Doing>,
    last: Option<Doing>,
    sleeps: u32,
}

impl Stuck {
    /// Another look; true: it hangs.
    fn look(&mut self, count: u32, now: Doing) -> bool {
        let (Some(first), Some(last), true) = (self.first, self.last, self.count == count) else {
            *self = Self { count, first: Some(now), last: Some(now), sleeps: 0 };
            return false;
        };
        let slept = matches!(now.state, b'S' | b'D') && now.ticks == last.ticks;
        self.sleeps = if slept { self.sleeps + 1 } else { 0 };
        self.last = Some(now);
        let patience = if now.state == b'S' { SLEEPS } else { FETCHES };
        now.ticks - first.ticks.min(now.ticks) >= LOOPS || self.sleeps >= patience
    }
}

/// Watches one process until told to end.
#[derive(Debug)]
pub struct Watchdog {
    heart: Arc<Heart>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watchdog {
    /// Watches a child of this process, which has just been started with this heart.
    ///
    /// # Errors
    /// What the host says.
    pub fn new(heart: Arc<Heart>, pid: Pid) -> io::Result<Self> {
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let over = Arc::new(AtomicBool::new(false));
        let (h, o) = (heart.clone(), over.clone());
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || watch(&h, &o, &process, pid))?;
        Ok(Self { heart, over, thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Whoever waits for another number gets one.
        self.heart.begin();
        self.heart.rouse();
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, the process it watched has ended.
            let _ = thread.join();
        }
    }
}

fn watch(heart: &Heart, over: &AtomicBool, process: &OwnedFd, pid: Pid) {
    let mut stuck = Stuck::default();
    while !over.load(Ordering::SeqCst) {
        let count = heart.count();
        if count.is_multiple_of(2) {
            let Some(before) = Doing::of(pid) else { return };
            heart.wait(count);
            let Some(after) = Doing::of(pid) else { return };
            // Who rests uses nothing.
            if heart.count() != count || after.ticks - before.ticks.min(after.ticks) < LOOPS {
                continue;
            }
        }
        let Some(now) = Doing::of(pid) else { return };
        // Between the two looks it may have come to rest, and then sleeping is all right.
        if heart.count() == count && (count.is_multiple_of(2) || stuck.look(count, now)) {
            eprintln!("doppel: a service domain hangs (process {pid:?}, {now:?}) and is killed");
            let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
            return;
        }
        if ends_within(process, LOOK) {
            return;
        }
    }
}

/// Waits so long, or until the process has ended: whoever replaces it waits for this thread.
fn ends_within(process: &OwnedFd, time: Duration) -> bool {
    let time = Timespec::try_from(time).expect("a moment");
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    // A signal ends the wait early, and the next look comes sooner.
    matches!(rustix::event::poll(&mut fds, Some(&time)), Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(all: &[(u32, u8, u64)]) -> bool {
        let mut stuck = Stuck::default();
        all.iter().any(|&(count, state, ticks)| stuck.look(count, Doing { state, ticks }))
    }

    #[test]
    fn a_loop_is_found_by_its_own_time() {
        assert!(!looks(&[(3, b'R', 100), (3, b'R', 104)]));
        assert!(looks(&[(3, b'R', 100), (3, b'R', 105)]));
        assert!(!looks(&[(3, b'R', 100), (5, b'R', 105), (7, b'R', 110)]), "it gets on");
    }

    #[test]
    fn who_waits_for_a_cpu_is_left_alone() {
        assert!(!looks(&[(3, b'R', 100); 1000]));
    }

    #[test]
    fn who_sleeps_in_the_middle_of_work_hangs() {
        assert!(looks(&[(3, b'S', 100); 5]));
        assert!(!looks(&[(3, b'S', 100), (3, b'S', 100), (3, b'R', 100), (3, b'S', 100), (3, b'S', 100)]));
        assert!(!looks(&[(3, b'D', 100); 50]) && looks(&[(3, b'D', 100); 101]));
    }

    #[test]
    fn what_the_host_says_of_a_process() {
        let line = "42 (a) b (c) S 1 42 42 0 -1 4194560 10 0 0 0 7 5 0 0 20 0 1 0 100 0 0";
        assert_eq!(Doing::parse(line), Some(Doing { state: b'S', ticks: 12 }));
        assert!(Doing::of(rustix::process::getpid()).is_some());
    }
}
