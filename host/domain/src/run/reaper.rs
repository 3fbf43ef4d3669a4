//! Takes ended domains apart: waits for their processes, frees memory, removes control groups and names.
//!
//! All of that takes milliseconds a domain, mostly in the host kernel. It is done by a thread of its own, and a little
//! later, so that it does not delay those that start or answer at the same time.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Domain;

/// How long an ended domain waits for others, so that they are taken apart together.
const DELAY: Duration = Duration::from_millis(20);
/// So many do not wait.
const MANY: usize = 256;

/// The thread, made beforehand: domains end when the host has no thread left, too. Ends, when dropped, after the last
/// domain is gone.
#[derive(Debug)]
pub(crate) struct Reaper(Option<(Sender<Domain>, JoinHandle<()>)>);

impl Reaper {
    /// Makes the thread.
    ///
    /// # Errors
    /// What the host says.
    pub fn new() -> io::Result<Self> {
        let (sender, receiver) = channel();
        let thread = doppel_sys::signal::spawn_blocked("reaper", move || reap(&receiver))?;
        Ok(Self(Some((sender, thread))))
    }

    /// Hands a domain over.
    pub fn take(&mut self, domain: Domain) {
        if let Some((sender, _)) = &self.0 {
            // If the thread has panicked, the domain is dropped here.
            let _ = sender.send(domain);
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            // A panic there was shown; nothing more can be done about it.
            let _ = thread.join();
        }
    }
}

fn reap(domains: &Receiver<Domain>) {
    while let Ok(first) = domains.recv() {
        let mut batch = vec![first];
        let until = Instant::now() + DELAY;
        while batch.len() < MANY {
            match domains.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(domain) => batch.push(domain),
                // In the latter case everybody waits for us.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        for domain in &batch {
            // Dropping it does so again, and waits.
            let _ = domain.kill();
        }
        drop(batch);
    }
}
