//! Domains made ready before they are wanted: for a root image that was used of late one whose guest kernel has booted and
//! waits. The next start of the image that asks for nothing special takes it, and is spared the host's part of a start.
//!
//! A spare has run no instruction of any program, and serves one domain only. It is made when nothing else is being
//! started, and goes when the supervisor's time for it is over.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use doppel_domain::{DomainConfig, Event, Fleet, Key, Output, Start, StorageLink};

use super::config::KeeperConfig;
use super::records;
use super::storage::Channel;

/// How long nothing must have been started or have ended before one is made: it would be in the way.
const QUIET: Duration = Duration::from_millis(4);
/// Most images that have one.
const MOST: usize = 8;

#[derive(Debug)]
struct Spare {
    /// Until when it is kept.
    until: Instant,
    key: Option<Key>,
    ready: bool,
    /// Its channel to the storage service, which serves it when it is known what it has of it.
    channel: Option<Channel>,
}

/// One that was taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub key: Key,
    pub channel: Option<Channel>,
}

/// A channel to the storage service, as the domain is given it and as the service is. Without one it can become what has no
/// volumes and no layer.
fn channel() -> Option<(StorageLink, Channel)> {
    let both = || {
        let (memory, doorbell) = doppel_storage::channel()?;
        let ours = (memory.try_clone()?, doorbell.try_clone()?);
        Ok::<_, std::io::Error>((
            StorageLink { memory: memory.into(), doorbell: doorbell.into(), nodes: None, disks: None },
            ours,
        ))
    };
    both().inspect_err(|e| tracing::warn!("a domain is made ready without a channel for its files: {e}")).ok()
}

/// All of them, by image.
#[derive(Debug)]
pub(super) struct Spares {
    all: HashMap<PathBuf, Spare>,
    /// Those that are being ended.
    leaving: HashSet<Key>,
    /// When something was started or ended.
    stirred: Instant,
}

impl Spares {
    pub fn new() -> Self {
        Self { all: HashMap::new(), leaving: HashSet::new(), stirred: Instant::now() }
    }

    /// Takes the one that can become this domain.
    pub fn take(&mut self, fleet: &Fleet, wanted: &Start) -> Option<Taken> {
        let Start::Boot(wanted) = wanted else { return None };
        let spare = self.all.get_mut(&wanted.image).filter(|spare| spare.ready)?;
        let key = spare.key.filter(|key| fleet.suits(*key, wanted))?;
        (spare.key, spare.ready) = (None, false);
        Some(Taken { key, channel: spare.channel.take() })
    }

    /// A domain of this image was started: for so long the next one may be wanted. Only images of the store, whose
    /// files do not change, have any.
    pub fn used(&mut self, image: &Path, keep: Duration) {
        self.stir();
        let named = image.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"sha256-"));
        if keep.is_zero() || !named || (self.all.len() >= MOST && !self.all.contains_key(image)) {
            return;
        }
        let until = Instant::now() + keep;
        let spare = self.all.entry(image.to_owned()).or_insert(Spare {
            until,
            key: None,
            ready: false,
            channel: None,
        });
        spare.until = until;
    }

    /// Something was started or has ended.
    pub fn stir(&mut self) {
        self.stirred = Instant::now();
    }

    /// When [`Self::tend`] has something to do, if it has.
    pub fn due(&self) -> Option<Duration> {
        let missing = self.all.values().any(|spare| spare.key.is_none()).then_some(self.stirred + QUIET);
        let over = self.all.values().map(|spare| spare.until).min();
        let next = missing.into_iter().chain(over).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Ends those that were not wanted, and makes those that are missing.
    pub fn tend(&mut self, fleet: &mut Fleet, keeper: &KeeperConfig) {
        let now = Instant::now();
        let (over, kept): (HashMap<_, _>, HashMap<_, _>) =
            self.all.drain().partition(|(_, spare)| spare.until <= now);
        self.all = kept;
        for key in over.into_values().filter_map(|spare| spare.key) {
            self.give_up(fleet, key);
        }
        if now < self.stirred + QUIET {
            return;
        }
        for (image, spare) in self.all.iter_mut().filter(|(_, spare)| spare.key.is_none()) {
            let mut config = DomainConfig::new(image.clone(), vec!["held".into()]);
            config.store = Some(keeper.store.clone());
            // Nobody's, so that a successor of this keeper ends it.
            config.keep = Some(records::keep(keeper, None));
            config.account = true;
            config.hold = true;
            (config.storage, spare.channel) = channel().unzip();
            spare.key = Some(fleet.start(Start::Boot(Box::new(config)), Output::Kept));
        }
    }

    /// Ends one that is not wanted.
    pub fn give_up(&mut self, fleet: &mut Fleet, key: Key) {
        self.leaving.insert(key);
        if let Err(error) = fleet.kill(key) {
            tracing::warn!("a domain made ready and not wanted does not end: {error}");
        }
    }

    /// Takes note of an event; false if it is about none of these.
    pub fn note(&mut self, key: Key, event: &Event) -> bool {
        let over = matches!(event, Event::Failed { .. } | Event::Ended(_));
        if self.leaving.contains(&key) {
            if over {
                self.leaving.remove(&key);
            }
            return true;
        }
        let Some((image, spare)) = self.all.iter_mut().find(|(_, spare)| spare.key == Some(key)) else {
            return false;
        };
        match event {
            Event::Held(_) => spare.ready = true,
            Event::Failed { error, .. } => tracing::warn!("no domain is made ready: {error}"),
            Event::Ended(_) => tracing::warn!("a domain that was ready has ended"),
            _ => {}
        }
        if over {
            // Not again before the image is used again.
            let image = image.clone();
            self.all.remove(&image);
        }
        true
    }
}
