//! Hibernated domains that have a network: the service domain holds their connections, and their ports take callers. When
//! something comes for one, the supervisor is told, who wakes it.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use doppel_net::{Attachment, Bells, Manager, Part, Sleeper};

use crate::keeper::Keeper;
use crate::keeper::config::{KeeperConfig, records};
use crate::keeper::protocol::{Message, Notification};

#[derive(Debug)]
struct Asleep {
    sleeper: Sleeper,
    /// The supervisor was told that it is wanted.
    called: bool,
}

/// Those that sleep, by id.
#[derive(Debug, Default)]
pub(in crate::keeper) struct Sleepers {
    asleep: HashMap<String, Asleep>,
    /// Rung by the service domain when there is news for one of them.
    bells: Option<Bells>,
}

impl Sleepers {
    pub fn is_empty(&self) -> bool {
        self.asleep.is_empty()
    }

    /// Readable when there is news for one of them.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bells.as_ref().map(AsFd::as_fd)
    }

    /// The part in the network of one that sleeps.
    pub fn attachment(&self, id: &str) -> Option<&Attachment> {
        self.asleep.get(id).map(|a| a.sleeper.attachment())
    }

    /// One that wakes takes its part in the network with it, if it has kept it; and whether its channel is the one it had.
    pub fn take(&mut self, id: &str) -> Option<(Attachment, bool)> {
        self.asleep.remove(id).map(|a| a.sleeper.wake())
    }
}

impl Keeper {
    /// A domain sleeps, or could not be woken: then it was `called` and is not again.
    pub(in crate::keeper) fn keep_network(&mut self, id: &str, attachment: Attachment, called: bool) {
        let kept = self.hear_bells().and_then(|()| attachment.hibernate());
        match kept {
            Ok(sleeper) => drop(self.sleepers.asleep.insert(id.to_owned(), Asleep { sleeper, called })),
            Err(e) => tracing::warn!("the connections of hibernated domain {id} end: {e}"),
        }
        self.write_asleep(id);
        self.tell_called(false);
    }

    /// Writes down what a hibernated domain has of the network, as it is by now.
    pub(in crate::keeper) fn write_asleep(&self, id: &str) {
        let Some(part) = self.sleepers.attachment(id).and_then(Attachment::part) else { return };
        let (dir, file) = (directory(&self.config), file(&self.config, id));
        let new = file.with_extension("new");
        let written = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .and_then(|()| std::fs::write(&new, serde_json::to_vec(&part)?))
            .and_then(|()| std::fs::rename(&new, file));
        if let Err(e) = written {
            tracing::warn!("a successor of this keeper will not keep the connections of domain {id}: {e}");
        }
    }

    /// A domain does not sleep any more.
    pub(in crate::keeper) fn forget_asleep(&self, id: &str) {
        match std::fs::remove_file(file(&self.config, id)) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                tracing::warn!("what is written down of hibernated domain {id} stays: {e}");
            }
            // The last one takes the directory with it; one that is not empty stays.
            Ok(()) => drop(std::fs::remove_dir(directory(&self.config))),
            _ => {}
        }
    }

    /// Takes over what hibernated domains have of the network; of those that wake just now, it is theirs already.
    pub(in crate::keeper) fn adopt_asleep(&mut self) {
        let entries = std::fs::read_dir(directory(&self.config)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        for id in names.filter(|name| !name.contains('.')).collect::<Vec<_>>() {
            if self.sleepers.asleep.contains_key(&id) {
                // It was just being hibernated.
                continue;
            }
            if self.domains.get(&id).is_some_and(|d| d.exit.is_none()) {
                self.forget_asleep(&id);
                continue;
            }
            let part = std::fs::read(file(&self.config, &id))
                .and_then(|text| Ok(serde_json::from_slice::<Part>(&text)?));
            if let Err(e) = part.and_then(|part| self.resume_asleep(&id, part)) {
                tracing::warn!("the connections of hibernated domain {id} end: {e}");
                self.forget_asleep(&id);
            }
        }
    }

    /// Goes on with a hibernated domain's part in the network.
    pub(in crate::keeper) fn resume_asleep(&mut self, id: &str, part: Part) -> io::Result<()> {
        let sleeper = self.manager()?.resume_asleep(part)?;
        self.hear_bells()?;
        self.sleepers.asleep.insert(id.to_owned(), Asleep { sleeper, called: false });
        self.write_asleep(id);
        Ok(())
    }

    fn hear_bells(&mut self) -> io::Result<()> {
        if self.sleepers.bells.is_none() {
            self.sleepers.bells = self.network.as_ref().map(Manager::bells).transpose()?;
        }
        Ok(())
    }

    /// The service domain has rung.
    pub(in crate::keeper) fn rung(&mut self) {
        if let Some(bells) = &self.sleepers.bells {
            bells.heard();
        }
        self.tell_called(false);
    }

    /// Tells the supervisor which of them are wanted; a new supervisor, of those too of which another was told.
    pub(in crate::keeper) fn tell_called(&mut self, anew: bool) {
        let mut wanted = Vec::new();
        for (id, one) in &mut self.sleepers.asleep {
            if (anew || !one.called) && one.sleeper.is_called() {
                one.called = true;
                wanted.push(id.clone());
            }
        }
        for id in wanted {
            self.say(&Message::Notification(Notification::Called { id }));
        }
    }
}

/// Where they are written down.
fn directory(config: &KeeperConfig) -> PathBuf {
    records(&config.runtime).join("asleep")
}

fn file(config: &KeeperConfig, id: &str) -> PathBuf {
    directory(config).join(id)
}
