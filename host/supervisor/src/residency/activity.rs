//! Domains of which somebody wants something: those that hibernate wake for it, and those that are used stay.

use std::sync::Arc;

use doppel_api::{Code, DomainState, Problem, WakeReason};

use crate::core::Core;
use crate::domains::Entry;
use crate::jobs::whole;
use crate::locked;

/// Somebody uses a domain: it does not hibernate by itself meanwhile.
#[derive(Debug)]
pub(crate) struct Busy {
    core: Arc<Core>,
    entry: Arc<Entry>,
}

impl Busy {
    fn begin(core: &Arc<Core>, entry: &Arc<Entry>) -> Self {
        locked(&entry.live).users += 1;
        Self { core: core.clone(), entry: entry.clone() }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut live = locked(&self.entry.live);
        live.users -= 1;
        if let Some(residence) = &mut live.residence {
            residence.touch(self.core.gate.now());
        }
    }
}

impl Core {
    /// Has a domain run of which something is wanted, if it hibernates; whoever asks says himself what else it has to be. It stays as
    /// long as what is given back.
    pub async fn awake(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<Busy, Problem> {
        let busy = Busy::begin(self, entry);
        loop {
            let hibernating = locked(&entry.live).hibernating;
            if hibernating {
                // Until it does, or will not.
                drop(entry.turn.lock().await);
            } else if entry.state() != DomainState::Hibernated {
                return Ok(busy);
            }
            if entry.state() == DomainState::Hibernated {
                match whole(self.clone().wake(entry.clone(), WakeReason::Call)).await {
                    // Somebody else woke it meanwhile.
                    Err(problem)
                        if problem.code == Code::WrongState && entry.state() != DomainState::Hibernated => {}
                    woken => drop(woken?),
                }
            }
        }
    }

    /// Whether somebody uses it: has it print, runs programs in it, or is about to.
    pub fn is_used(&self, entry: &Entry) -> bool {
        let mut live = locked(&entry.live);
        live.users > 0 || live.followers.any() || self.execs.domains().contains(&entry.id)
    }
}
