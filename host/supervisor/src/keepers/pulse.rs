//! Whether a keeper that does not answer will.
//!
//! It is asked something small now and then. One that does not answer is looked at: a process that is stopped, that computes
//! and gets nowhere, or that waits for something else for long, is killed, as its domains do not end with it and its successor
//! answers for them. One that does not get to run on a busy host is waited for.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::UnixStream;

/// Between two looks at one that does not answer.
const LOOK: Duration = Duration::from_millis(250);
/// What the host counts CPU time in.
const TICKS: u64 = 100;

/// How long a keeper may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// While it is stopped.
    stopped: Duration,
    /// Of CPU time.
    computing: Duration,
    /// While it waits for something else.
    waiting: Duration,
}

/// For an answer.
pub(crate) const ANSWER: Patience = Patience {
    stopped: Duration::from_secs(5),
    computing: Duration::from_secs(5),
    waiting: Duration::from_secs(30),
};
/// For the first one, before which it may have many domains to take over.
pub(crate) const GREETING: Patience = Patience {
    stopped: Duration::from_secs(5),
    computing: Duration::from_secs(60),
    waiting: Duration::from_secs(60),
};

/// A keeper's process, if it can be looked at.
#[derive(Debug)]
pub(crate) struct Patient(Option<(i32, OwnedFd)>);

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    state: char,
    computed: Duration,
}

impl Patient {
    /// The process at the other end of a connection.
    pub fn of(stream: &UnixStream) -> Self {
        let found = || {
            let pid = Pid::from_raw(stream.peer_cred().ok()?.pid()?)?;
            let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            Some((pid.as_raw_nonzero().get(), process))
        };
        Self(found())
    }

    /// Does something that the keeper has to answer; kills it if it will not.
    pub async fn answers<T>(
        &self,
        patience: Patience,
        answer: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let hangs = async {
            let begun = Instant::now();
            let first = self.look();
            let mut stopped = None;
            loop {
                tokio::time::sleep(LOOK).await;
                let now = self.look();
                stopped = now.filter(|seen| seen.state == 'T').and(stopped.or(Some(Instant::now())));
                let Some((first, now)) = first.zip(now) else { continue };
                let computed = now.computed.saturating_sub(first.computed);
                let for_long = stopped.map(|since| since.elapsed());
                if let Some(why) = hangs(patience, now.state, begun.elapsed(), for_long, computed) {
                    return why;
                }
            }
        };
        tokio::select! {
            answer = answer => answer,
            why = hangs => {
                if let Some((_, process)) = &self.0 {
                    pidfd_send_signal(process, Signal::KILL)?;
                }
                Err(io::Error::other(format!("it {why} and does not answer; it is killed, and followed by another")))
            }
        }
    }

    /// Of the thread that does all there is to do; none: it ends.
    fn look(&self) -> Option<Seen> {
        let (pid, _) = self.0.as_ref()?;
        parse(&std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).ok()?)
    }
}

fn parse(stat: &str) -> Option<Seen> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Seen { state, computed: Duration::from_millis((user + system) * 1000 / TICKS) })
}

/// Why a process that has not answered for so long will not.
fn hangs(
    patience: Patience,
    state: char,
    waited: Duration,
    stopped: Option<Duration>,
    computed: Duration,
) -> Option<&'static str> {
    match state {
        'T' if stopped.is_some_and(|s| s >= patience.stopped) => Some("is stopped"),
        // A debugger looks at it, or its end is on its way.
        'T' | 't' | 'Z' | 'X' => None,
        _ if computed >= patience.computing => Some("computes all the time"),
        'S' | 'D' if waited >= patience.waiting => Some("waits for something else"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hangs() {
        let s = Duration::from_secs;
        let judge = |state, waited, stopped: Option<u64>, computed| {
            hangs(ANSWER, state, s(waited), stopped.map(s), s(computed))
        };
        assert_eq!(judge('T', 9, Some(4), 0), None);
        assert_eq!(judge('T', 9, Some(5), 0), Some("is stopped"));
        assert_eq!(judge('R', 6, None, 5), Some("computes all the time"));
        assert_eq!(judge('S', 29, None, 1), None);
        assert_eq!(judge('D', 30, None, 1), Some("waits for something else"));
        // It does not get to run.
        assert_eq!(judge('R', 1000, None, 4), None);
        for state in ['t', 'Z'] {
            assert_eq!(judge(state, 1000, None, 9), None);
        }
    }

    #[test]
    fn what_a_process_does() {
        let text = "7 (a) b) T 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 9 9 9";
        assert_eq!(parse(text), Some(Seen { state: 'T', computed: Duration::from_secs(2) }));
        assert_eq!(parse("7"), None);
    }
}
