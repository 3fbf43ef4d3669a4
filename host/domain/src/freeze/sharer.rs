//! Rounds of page sharing for the domains of a fleet, on a thread of its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::run::state::Core;

/// How long at most until it is seen that a domain is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The thread; ends by itself after this has been dropped.
#[derive(Debug, Default)]
pub(crate) struct Sharer(Option<Sender<Weak<Core>>>);

impl Sharer {
    /// Has rounds made for a domain as long as it lives.
    pub fn add(&mut self, core: &Arc<Core>) {
        if self.0.is_none() {
            let (sender, receiver) = channel();
            // Without a thread nothing is shared, which is no harm; the next domain tries again.
            let made = doppel_sys::signal::spawn_blocked("sharer", move || rounds(&receiver));
            self.0 = made.is_ok().then_some(sender);
        }
        if let Some(sender) = &self.0 {
            // The same holds if the thread has panicked.
            let _ = sender.send(Arc::downgrade(core));
        }
    }
}

fn rounds(fresh: &Receiver<Weak<Core>>) {
    let mut members: Vec<Weak<Core>> = Vec::new();
    let mut next = Instant::now() + LOOK_AGAIN;
    loop {
        match fresh.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(member) => members.push(member),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        next = Instant::now() + LOOK_AGAIN;
        members.retain(|member| {
            let Some(core) = member.upgrade() else { return false };
            if core.share_due().is_some_and(|due| due <= Instant::now()) {
                core.share_round();
            }
            // None: somebody freezes it just now.
            let due = core.share_due().unwrap_or_else(|| Instant::now() + Duration::from_millis(20));
            next = next.min(due);
            true
        });
    }
}
