//! A thread that does something for domains again and again, each at its time, as long as they live.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::run::state::Core;

/// Does for a domain what is due, and says when there is something to do again; none: it needs no more of this.
pub(crate) type Round = fn(&Core) -> Option<Instant>;

/// The thread, once there is a domain for it; ends by itself after this has been dropped.
#[derive(Debug)]
pub(crate) struct Rounds {
    name: &'static str,
    /// How long at most until it is seen that a domain is gone.
    look_again: Duration,
    round: Round,
    thread: Option<Sender<Weak<Core>>>,
}

impl Rounds {
    /// One with a thread of this name.
    pub const fn new(name: &'static str, look_again: Duration, round: Round) -> Self {
        Self { name, look_again, round, thread: None }
    }

    /// Has rounds made for a domain as long as it lives; from now on if it has them already.
    pub fn add(&mut self, core: &Arc<Core>) {
        if self.thread.is_none() {
            let (sender, receiver) = channel();
            let (look_again, round) = (self.look_again, self.round);
            // Without a thread nothing is done, which is no harm; the next domain tries again.
            let made =
                doppel_sys::signal::spawn_blocked(self.name, move || go_round(&receiver, look_again, round));
            self.thread = made.is_ok().then_some(sender);
        }
        if let Some(thread) = &self.thread {
            // The same holds if the thread has panicked.
            let _ = thread.send(Arc::downgrade(core));
        }
    }
}

fn go_round(fresh: &Receiver<Weak<Core>>, look_again: Duration, round: Round) {
    let mut members: Vec<Weak<Core>> = Vec::new();
    let mut next = Instant::now() + look_again;
    loop {
        match fresh.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(member) if !members.iter().any(|m| m.ptr_eq(&member)) => members.push(member),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        next = Instant::now() + look_again;
        members.retain(|member| {
            let due = member.upgrade().and_then(|core| round(&core));
            next = due.map_or(next, |due| next.min(due));
            due.is_some()
        });
    }
}
