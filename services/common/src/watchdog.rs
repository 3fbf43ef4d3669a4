//! Finds a service domain that hangs, and kills it: whoever waits for its end starts another.
//!
//! A step of work is short. One that does not end is judged by what the process does, never by time alone, so a healthy one
//! on a loaded host is left alone: a loop uses CPU time of its own; who is blocked sleeps and uses none; who only waits for a
//! CPU does neither.
//!
//! One that says it rests may be blocked as well, or loop. It is asked, by a bell of the watchdog's, at which a healthy one
//! takes a step: when somebody needs it who it does not attend to, and once in a while. Then it is judged by the same.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::Heartbeat;
use crate::heartbeat::BORN;

/// One that rests is asked so often though nobody needs it.
const PATROL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Between two looks at one that works.
const LOOK: Duration = Duration::from_millis(15);
/// CPU time of a step that does not end, in the host's ticks of 10 ms.
const LOOPS: u64 = 5;
/// The same of one that says it rests and has been asked: a step begins with saying so.
const LOOPS_AT_REST: u64 = 2;
/// The same of one that has not said anything yet: it is being loaded and confines itself, which takes a host that is short of memory long.
const LOOPS_AT_BIRTH: u64 = 200;
/// Looks in a row at which it slept in the middle of a step.
const SLEEPS: u32 = 4;
/// The same for a sleep that cannot be interrupted: the host fetches memory, or is to blame.
const FETCHES: u32 = 100;

/// What a process does, from `/proc/PID/task/*/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProcessStat {
    /// R, S, D, ...
    state: u8,
    /// CPU time that each of its threads has used, in ticks.
    threads: BTreeMap<u32, u64>,
}

impl ProcessStat {
    fn of(pid: Pid) -> Option<Self> {
        let (mut states, mut threads) = (Vec::new(), BTreeMap::new());
        for thread in std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?.flatten() {
            let tid = thread.file_name().to_str()?.parse().ok()?;
            // One that has ended does nothing.
            let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else { continue };
            let (state, ticks) = parse(&stat)?;
            states.push(state);
            threads.insert(tid, ticks);
        }
        Some(Self { state: together(states.into_iter()), threads })
    }

    /// The most that one of its threads has computed since then. What several do together is no loop: one takes a step, and others
    /// do what takes longer, while the one waits for a CPU.
    fn computed_since(&self, then: &Self) -> u64 {
        let since =
            |(tid, ticks): (&u32, &u64)| ticks.saturating_sub(then.threads.get(tid).copied().unwrap_or(0));
        self.threads.iter().map(since).max().unwrap_or(0)
    }
}

/// A thread's state, and its CPU time in ticks.
fn parse(stat: &str) -> Option<(u8, u64)> {
    // The name in parentheses may have anything in it.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    let mut times = fields.skip(10);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some((state, user + system))
}

/// What threads in these states do: they sleep if all of them do, so that whatever one is to do next is not under way.
fn together(states: impl Iterator<Item = u8>) -> u8 {
    states.fold(b'S', |all, state| match (all, state) {
        (b'S', state) | (b'D', state @ b'R') => state,
        (all, _) => all,
    })
}

/// A step that does not end.
#[derive(Debug, Default)]
struct Stuck {
    count: u32,
    first: Option<ProcessStat>,
    last: Option<ProcessStat>,
    sleeps: u32,
}

impl Stuck {
    /// Another look; true: it hangs.
    fn look(&mut self, count: u32, now: ProcessStat) -> bool {
        let (Some(first), Some(last), true) = (&self.first, &self.last, self.count == count) else {
            *self = Self { count, first: Some(now.clone()), last: Some(now), sleeps: 0 };
            return false;
        };
        if now.state == b'T' {
            return true;
        }
        let slept = matches!(now.state, b'S' | b'D') && now.computed_since(last) == 0;
        self.sleeps = if slept { self.sleeps + 1 } else { 0 };
        let patience = if now.state == b'S' && count != BORN { SLEEPS } else { FETCHES };
        let loops = match count {
            BORN => LOOPS_AT_BIRTH,
            _ if count.is_multiple_of(2) => LOOPS_AT_REST,
            _ => LOOPS,
        };
        let hangs = now.computed_since(first) >= loops || self.sleeps >= patience;
        self.last = Some(now);
        hangs
    }
}

/// What a supervisor has to wake a service domain with, and to see who wants it awake; for all that follow each other.
#[derive(Debug)]
pub struct Calls {
    /// An eventfd that the service domain waits for, rung by its watchdog.
    bell: OwnedFd,
    /// What else it waits for, as far as its supervisor has it.
    wanted: OwnedFd,
}

impl Calls {
    /// Without anybody who could want it.
    ///
    /// # Errors
    /// What the host says.
    pub fn new() -> io::Result<Self> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Self::with(bell)
    }

    /// With the bell that a service domain waits for already.
    ///
    /// # Errors
    /// What the host says.
    pub fn with(bell: OwnedFd) -> io::Result<Self> {
        Ok(Self { bell, wanted: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// The watchdog's bell, for the service domain.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The service domain waits for this, too.
    ///
    /// # Errors
    /// What the host says.
    pub fn add(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        // Told once for each ring or caller: what a service domain does not attend to on purpose is not told again.
        Ok(epoll::add(&self.wanted, source, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?)
    }

    /// It does not any more.
    pub fn remove(&self, source: BorrowedFd<'_>) {
        // One that could not be added is not there.
        let _ = epoll::delete(&self.wanted, source);
    }

    fn ring(&self) {
        // A counter that is full is as good as rung.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Whether somebody has wanted it since the last look.
    fn looked_for(&self) -> bool {
        let mut events = Vec::with_capacity(64);
        let mut any = false;
        while let Ok(1..) =
            epoll::wait(&self.wanted, rustix::buffer::spare_capacity(&mut events), Some(&Timespec::default()))
        {
            any = true;
            events.clear();
        }
        any
    }
}

/// Watches one process until told to end.
#[derive(Debug)]
pub struct Watchdog {
    heart: Arc<Heartbeat>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watchdog {
    /// Watches a process that has been started with this heart.
    ///
    /// # Errors
    /// What the host says.
    fn new(heart: Arc<Heartbeat>, calls: Arc<Calls>, pid: Pid) -> io::Result<Self> {
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let over = Arc::new(AtomicBool::new(false));
        let (h, o) = (heart.clone(), over.clone());
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || watch(&h, &calls, &o, &process, pid))?;
        Ok(Self { heart, over, thread: Some(thread) })
    }

    /// The same for a service called `what`. If it is not to be had that is said: the service is only not found if it hangs.
    #[must_use]
    pub fn of(what: &str, heart: &Arc<Heartbeat>, calls: &Arc<Calls>, pid: Pid) -> Option<Self> {
        Self::new(heart.clone(), calls.clone(), pid)
            .inspect_err(|error| crate::say(format_args!("a {what} is not watched: {error}")))
            .ok()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.heart.rouse();
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, the process it watched has ended.
            let _ = thread.join();
        }
    }
}

fn watch(heart: &Heartbeat, calls: &Calls, over: &AtomicBool, process: &OwnedFd, pid: Pid) {
    let mut stuck = Stuck::default();
    // What its heart said when it was asked.
    let mut asked = None;
    while !over.load(Ordering::SeqCst) {
        let count = heart.count();
        if count.is_multiple_of(2) && asked != Some(count) {
            // Who is wanted wakes by itself, and has a moment for it.
            if sleep(heart, count, calls, process) || ends_within(process, LOOK) {
                return;
            }
            if heart.count() == count && !over.load(Ordering::SeqCst) {
                asked = Some(count);
                calls.ring();
            }
            continue;
        }
        let Some(now) = ProcessStat::of(pid) else { return };
        let state = now.state as char;
        if heart.count() == count && stuck.look(count, now) {
            crate::say(format_args!("a service domain hangs (process {pid:?}, {state}) and is killed"));
            let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
            return;
        }
        if ends_within(process, LOOK) {
            return;
        }
    }
}

/// Sleeps until somebody wants the service domain, it works again, or it is time for a patrol; true: it has ended.
fn sleep(heart: &Heartbeat, count: u32, calls: &Calls, process: &OwnedFd) -> bool {
    if calls.looked_for() || !heart.sleep(count) {
        return false;
    }
    let mut fds = [
        PollFd::new(process, PollFlags::IN),
        PollFd::from_borrowed_fd(heart.alarm(), PollFlags::IN),
        PollFd::new(&calls.wanted, PollFlags::IN),
    ];
    // A signal ends the wait early, and the next look comes sooner.
    let _ = rustix::event::poll(&mut fds, Some(&PATROL));
    fds[0].revents().contains(PollFlags::IN)
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
        all.iter().any(|&(count, state, ticks)| stuck.look(count, stat(state, &[ticks])))
    }

    fn stat(state: u8, ticks: &[u64]) -> ProcessStat {
        ProcessStat { state, threads: (0..).zip(ticks.iter().copied()).collect() }
    }

    #[test]
    fn threads_do_not_loop_together() {
        let mut stuck = Stuck::default();
        assert!(!stuck.look(3, stat(b'R', &[100, 0, 0])));
        assert!(!stuck.look(3, stat(b'R', &[101, 4, 4])));
        assert!(stuck.look(3, stat(b'R', &[101, 5, 4])));
        // One that was not there before has computed since.
        assert!(!stuck.look(5, stat(b'R', &[101])));
        assert!(stuck.look(5, stat(b'R', &[101, 5])));
    }

    #[test]
    fn a_loop_is_found_by_its_own_time() {
        assert!(!looks(&[(3, b'R', 100), (3, b'R', 104)]));
        assert!(looks(&[(3, b'R', 100), (3, b'R', 105)]));
        assert!(!looks(&[(3, b'R', 100), (5, b'R', 105), (7, b'R', 110)]), "it gets on");
        assert!(
            !looks(&[(4, b'R', 100), (4, b'R', 101)]) && looks(&[(4, b'R', 100), (4, b'R', 102)]),
            "at rest"
        );
    }

    #[test]
    fn who_is_being_loaded_has_longer() {
        assert!(
            !looks(&[(BORN, b'R', 0), (BORN, b'R', 199)]) && looks(&[(BORN, b'R', 0), (BORN, b'R', 200)])
        );
        assert!(!looks(&[(BORN, b'S', 5); 50]) && looks(&[(BORN, b'S', 5); 101]));
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
    fn who_is_stopped_hangs() {
        assert!(looks(&[(3, b'R', 100), (3, b'T', 100)]) && looks(&[(4, b'S', 100), (4, b'T', 100)]));
    }

    #[test]
    fn threads_sleep_if_all_of_them_do() {
        for (states, all) in [("S", b'S'), ("SRS", b'R'), ("SDS", b'D'), ("DSR", b'R'), ("RD", b'R')] {
            assert_eq!(together(states.bytes()), all, "{states}");
        }
    }

    #[test]
    fn what_the_host_says_of_a_process() {
        let line = "42 (a) b (c) S 1 42 42 0 -1 4194560 10 0 0 0 7 5 0 0 20 0 1 0 100 0 0";
        assert_eq!(parse(line), Some((b'S', 12)));
        assert!(ProcessStat::of(rustix::process::getpid()).is_some());
    }
}
