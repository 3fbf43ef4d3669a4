//! Hibernated domains that have a network: the service domain holds their connections, and their ports take callers. When
//! something comes for one, the supervisor is told, who wakes it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use doppel_net::{Attachment, Manager, Sleeper};

use super::Keeper;
use super::protocol::{News, Word};

#[derive(Debug)]
struct Asleep {
    sleeper: Sleeper,
    /// The supervisor was told that it is wanted.
    called: bool,
}

/// Those that sleep, by id.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    asleep: HashMap<String, Asleep>,
    /// Rung by the service domain when there is news for one of them.
    bell: Option<OwnedFd>,
}

impl Sleepers {
    pub fn is_empty(&self) -> bool {
        self.asleep.is_empty()
    }

    /// Readable when there is news for one of them.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(AsFd::as_fd)
    }

    /// The part in the network of one that sleeps.
    pub fn attachment(&self, id: &str) -> Option<&Attachment> {
        self.asleep.get(id).map(|a| a.sleeper.attachment())
    }

    /// One that wakes takes its part in the network with it, if it has kept it.
    pub fn take(&mut self, id: &str) -> Option<Attachment> {
        self.asleep.remove(id).map(|a| a.sleeper.wake())
    }
}

impl Keeper {
    /// A domain sleeps, or could not be woken: then it was `called` and is not again.
    pub(super) fn keep_network(&mut self, id: &str, attachment: Attachment, called: bool) {
        let kept = self.bell().and_then(|()| attachment.hibernate());
        match kept {
            Ok(sleeper) => drop(self.sleepers.asleep.insert(id.to_owned(), Asleep { sleeper, called })),
            Err(e) => tracing::warn!("the connections of hibernated domain {id} end: {e}"),
        }
        self.tell_called(false);
    }

    fn bell(&mut self) -> std::io::Result<()> {
        if self.sleepers.bell.is_none() {
            self.sleepers.bell = self.network.as_ref().map(Manager::bell).transpose()?;
        }
        Ok(())
    }

    /// The service domain has rung.
    pub(super) fn rung(&mut self) {
        if let Some(bell) = &self.sleepers.bell {
            // Nothing to read is as good.
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
        self.tell_called(false);
    }

    /// Tells the supervisor which of them are wanted; a new supervisor, of those too of which another was told.
    pub(super) fn tell_called(&mut self, anew: bool) {
        let mut wanted = Vec::new();
        for (id, one) in &mut self.sleepers.asleep {
            if (anew || !one.called) && one.sleeper.is_called() {
                one.called = true;
                wanted.push(id.clone());
            }
        }
        for id in wanted {
            self.say(&Word::News(News::Called { id }));
        }
    }
}
