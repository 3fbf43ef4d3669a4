//! Telling a caller what happens, and letting it give up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Digest, Error, Result};

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// The manifest is known.
    Resolved {
        /// Its digest.
        manifest: &'a Digest,
        /// How many layers the image has.
        layers: usize,
    },
    /// A blob is going to be transferred.
    Begin {
        /// Which one.
        blob: &'a Digest,
        /// Its size.
        size: u64,
        /// How much of it is there from an earlier try.
        have: u64,
    },
    /// More of a blob has been transferred.
    Bytes {
        /// Which one.
        blob: &'a Digest,
        /// How much in all.
        done: u64,
    },
    /// A blob is complete.
    Done {
        /// Which one.
        blob: &'a Digest,
        /// Whether it was there already.
        existed: bool,
    },
    /// The connection broke; the transfer goes on.
    Retry {
        /// Which blob.
        blob: &'a Digest,
        /// What happened.
        why: &'a str,
    },
    /// A layer is put over those before it.
    Apply {
        /// Which one.
        layer: &'a Digest,
    },
    /// The root image is being written.
    Write,
}

/// Told what happens, by several threads at once.
pub trait Progress: Sync {
    /// Something happened. Must return soon.
    fn event(&self, event: Event<'_>);
}

impl<F: Fn(Event<'_>) + Sync> Progress for F {
    fn event(&self, event: Event<'_>) {
        self(event);
    }
}

#[derive(Default)]
struct Shared {
    given_up: AtomicBool,
    agents: Mutex<Vec<ureq::Agent>>,
}

/// Ends an operation from another thread, also one that waits for the network. Clones are the same token.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Shared>);

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}

impl Cancel {
    /// Gives up: the operation returns [`Error::Cancelled`] soon.
    pub fn cancel(&self) {
        self.0.given_up.store(true, Ordering::SeqCst);
        let agents = std::mem::take(&mut *self.0.agents.lock().unwrap_or_else(PoisonError::into_inner));
        for agent in agents {
            agent.shutdown();
        }
    }

    /// Whether somebody gave up.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.given_up.load(Ordering::SeqCst)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Connections to break when somebody gives up.
    pub(crate) fn watch(&self, agent: &ureq::Agent) {
        self.0.agents.lock().unwrap_or_else(PoisonError::into_inner).push(agent.clone());
        if self.is_cancelled() {
            self.cancel();
        }
    }
}
