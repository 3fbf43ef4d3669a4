//! A service that cannot begin, or cannot serve a domain: who has not been served yet is told why, within a bounded time.
//!
//! A process says when it serves. Three in a row that ended before they said so are no accident: domains that were not served before fail
//! then, and no new ones are taken, until a process begins. Those that were served wait for it. It is tried again ever less often, up to
//! once in two seconds.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::{Attachment, Member, Shared};
use crate::said::Said;

/// Processes that end faster than this one after the other are given a pause.
const STEADY: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(2);
/// As many that cannot begin are no accident.
const TRIES: u32 = 3;
/// How long it may take until a domain is served: the host may be busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks whether it is.
const GLANCE: Duration = Duration::from_micros(200);

/// Whether the process serves, and why not.
#[derive(Debug, Default)]
pub(super) struct Failing {
    /// It has said that it does.
    begun: bool,
    /// Processes in a row that ended before.
    failed: u32,
    /// Why the last one ended, as it said itself.
    said: Option<String>,
    /// Why none can begin.
    cause: Option<String>,
}

impl Failing {
    /// Another process is started.
    pub fn starts(&mut self) {
        (self.begun, self.said) = (false, None);
    }

    /// It serves.
    fn begins(&mut self) {
        *self = Self { begun: true, ..Self::default() };
    }

    /// It has ended, and this is known of that; gives how long to wait before the next, and why no process can begin, if that is known.
    fn ended(&mut self, why: Option<String>, after: Duration) -> (Duration, Option<String>) {
        let said = self.said.take();
        if std::mem::take(&mut self.begun) {
            if let Some(why) = said {
                doppel_service::say(format_args!("a storage service has ended and is replaced: {why}"));
            }
            return (if after < STEADY { STEADY } else { Duration::ZERO }, None);
        }
        let why = said.or(why).unwrap_or_else(|| "it ended".to_owned());
        self.failed = self.failed.saturating_add(1);
        if self.failed < TRIES {
            return (STEADY, None);
        }
        // A log does not grow by it without bound.
        if self.failed == TRIES || self.failed.is_power_of_two() {
            let n = self.failed;
            doppel_service::say(format_args!("a storage service cannot begin, {n} times in a row: {why}"));
        }
        self.cause = Some(why.clone());
        let longer = STEADY * (1 << (self.failed - TRIES).min(8));
        (longer.min(LONGEST), Some(why))
    }

    /// An error if no process can begin.
    pub fn check(&self) -> io::Result<()> {
        match &self.cause {
            Some(cause) => Err(cannot_begin(cause)),
            None => Ok(()),
        }
    }
}

fn cannot_begin(cause: &str) -> io::Error {
    io::Error::other(format!("the storage service cannot begin: {cause}"))
}

impl Member {
    /// A process serves it, or one has: as its channel says, which it could write itself.
    fn is_served(&self) -> bool {
        self.before.is_none_or(|before| doppel_service::epoch(self.memory.as_fd()).is_ok_and(|e| e != before))
    }
}

impl Shared {
    /// Does what a process says.
    pub(super) fn heard(&self, said: Said, file: Option<OwnedFd>) {
        let mut state = self.lock();
        match said {
            Said::Pin { key, node } => file.into_iter().for_each(|file| state.pin(key, node, file)),
            Said::Unpin { key, node } => state.unpin(key, node),
            Said::Switched { key, volume } => {
                if let Some(member) = state.members.get_mut(&key) {
                    member.switching.remove(&volume);
                }
                drop(state);
                self.changed.notify_all();
            }
            Said::Begun => {
                state.failing.begins();
                drop(state);
                self.tell_of_change();
            }
            Said::Refused { key, why } => {
                if let Some(member) = state.members.get_mut(&key) {
                    member.failure = Some(format!("the storage service cannot serve it: {why}"));
                }
                drop(state);
                self.tell_of_change();
            }
            Said::Ends { why } => state.failing.said = Some(why),
        }
    }

    /// Whoever waits looks again.
    fn tell_of_change(&self) {
        self.changed.notify_all();
        // A counter that is full is as good as rung.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// A process has ended, so long after its start. Waits before the next; false: none is wanted.
    pub(super) fn pause(&self, why: Option<String>, after: Duration) -> bool {
        let mut state = self.lock();
        if state.over {
            return false;
        }
        let (pause, cause) = state.failing.ended(why, after);
        if let Some(cause) = cause {
            (state.process, state.control) = (None, None);
            for member in state.members.values_mut().filter(|m| m.failure.is_none() && !m.is_served()) {
                member.failure = Some(cannot_begin(&cause).to_string());
            }
            self.tell_of_change();
        }
        let waited = self.changed.wait_timeout_while(state, pause, |state| !state.over);
        !waited.unwrap_or_else(PoisonError::into_inner).0.over
    }
}

impl Attachment {
    /// Whether the service has begun; not when it is being replaced.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.shared.lock().failing.begun
    }

    fn is_served(&self) -> bool {
        let state = self.shared.lock();
        state.failing.begun && state.members.get(&self.key).is_some_and(Member::is_served)
    }

    /// Why the service will not serve the domain, if that is so.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.lock().members.get(&self.key)?.failure.clone()
    }

    /// Waits until the service serves the domain.
    ///
    /// # Errors
    /// Why it does not.
    pub fn wait_served(&self) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(why) = self.failure() {
                return Err(io::Error::other(why));
            }
            if self.is_served() {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let text = format!("the storage service has not begun within {} s", PATIENCE.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            std::thread::sleep(GLANCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_cannot_begin_is_tried_less_and_less_often() {
        let mut failing = Failing::default();
        let mut ended = |text: &str| failing.ended(Some(text.to_owned()), Duration::ZERO);
        assert_eq!(ended("a"), (STEADY, None));
        assert_eq!(ended("a"), (STEADY, None));
        assert_eq!(ended("b"), (STEADY, Some("b".to_owned())));
        assert_eq!(ended("b").0, STEADY * 2);
        assert_eq!(ended("b").0, STEADY * 4);
        for _ in 0..1000 {
            assert!(ended("b").0 <= LONGEST);
        }
        assert!(failing.check().unwrap_err().to_string().ends_with("cannot begin: b"));
        failing.begins();
        failing.check().unwrap();
        assert_eq!(failing.ended(None, STEADY), (Duration::ZERO, None));
        assert_eq!(failing.ended(None, Duration::ZERO), (STEADY, None));
    }

    #[test]
    fn what_it_said_counts_for_more_than_how_it_ended() {
        let said = Some("no filter".to_owned());
        let mut failing = Failing { failed: TRIES - 1, said, ..Failing::default() };
        assert_eq!(failing.ended(Some("exit 1".to_owned()), STEADY).1, Some("no filter".to_owned()));
    }
}
