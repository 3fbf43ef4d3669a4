//! Domains made ready before they are wanted: for a root image that was used of late one whose guest kernel has booted and
//! waits, for a frozen image a clone with its memory in place. The next start of the image that asks for nothing special takes
//! it, and is spared the host's part of a start.
//!
//! A spare has run no instruction of any program, and serves one domain only. It is made when nothing else is being
//! started, and goes when the supervisor's time for it is over.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use doppel_domain::{DomainConfig, Event, Fleet, Images, Key, Output, Start, StorageLink};

use super::config::KeeperConfig;
use super::records;
use super::storage::Channel;

/// How long nothing must have been started or have ended before one is made: it would be in the way.
const QUIET: Duration = Duration::from_millis(4);
/// Most images that have one.
const MOST: usize = 8;

/// What a spare is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// A root image.
    Root(PathBuf),
    /// A frozen image; which of its clones it becomes, and whether these have layers.
    Frozen { image: PathBuf, index: u32, layer: bool },
}

impl Source {
    /// Of what can become this domain.
    fn of(wanted: &Start) -> Option<Self> {
        match wanted {
            Start::Boot(config) => Some(Self::Root(config.image.clone())),
            Start::Clone { image, index, config, .. } => {
                let (image, layer) = (image.clone(), config.layer.is_some());
                Some(Self::Frozen { image, index: *index, layer })
            }
            Start::Resume(..) | Start::Wake(..) => None,
        }
    }

    /// Whether its file does not change while it is there: frozen images do not, and of root images those of the store.
    fn is_fixed(&self) -> bool {
        match self {
            Self::Root(image) => {
                image.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"sha256-"))
            }
            Self::Frozen { .. } => true,
        }
    }

    /// Whether it is from this frozen image.
    fn is_of(&self, frozen: &Path) -> bool {
        matches!(self, Self::Frozen { image, .. } if image == frozen)
    }

    /// How one is started, and the channel that its storage service gets.
    fn start(&self, keeper: &KeeperConfig, images: &Images) -> (Start, Option<Channel>) {
        let mut config = match self {
            Self::Root(image) => DomainConfig::new(image.clone(), vec!["held".into()]),
            Self::Frozen { .. } => DomainConfig::default(),
        };
        config.store = Some(keeper.store.clone());
        // Nobody's, so that a successor of this keeper ends it.
        config.keep = Some(records::keep(keeper, None));
        config.account = true;
        config.hold = true;
        let mut ours = None;
        // A clone has files of a service or none, as its image says.
        if !matches!(self, Self::Frozen { layer: false, .. }) {
            (config.storage, ours) = channel().unzip();
        }
        let start = match self {
            Self::Root(_) => Start::Boot(Box::new(config)),
            Self::Frozen { image, index, .. } => {
                let (image, index, images) = (image.clone(), *index, images.clone());
                Start::Clone { image, index, images, config: Box::new(config) }
            }
        };
        (start, ours)
    }
}

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

/// All of them, by what they are made from.
#[derive(Debug)]
pub(super) struct Spares {
    all: HashMap<Source, Spare>,
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
        let spare = self.all.get_mut(&Source::of(wanted)?).filter(|spare| spare.ready)?;
        let key = spare.key.filter(|key| fleet.suits(*key, wanted))?;
        (spare.key, spare.ready) = (None, false);
        Some(Taken { key, channel: spare.channel.take() })
    }

    /// A domain is started in this way: for so long the next one may be wanted.
    pub fn used(&mut self, start: &Start, keep: Duration) {
        self.stir();
        let Some(source) = Source::of(start).filter(Source::is_fixed) else { return };
        if keep.is_zero() || (self.all.len() >= MOST && !self.all.contains_key(&source)) {
            return;
        }
        let until = Instant::now() + keep;
        let spare = self.all.entry(source).or_insert(Spare { until, key: None, ready: false, channel: None });
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
    pub fn tend(&mut self, fleet: &mut Fleet, keeper: &KeeperConfig, images: &Images) {
        let now = Instant::now();
        self.give_up_all(fleet, |_, spare| spare.until <= now);
        if now < self.stirred + QUIET {
            return;
        }
        for (source, spare) in self.all.iter_mut().filter(|(_, spare)| spare.key.is_none()) {
            let (start, ours) = source.start(keeper, images);
            spare.channel = ours;
            spare.key = Some(fleet.start(start, Output::Kept));
        }
    }

    /// A frozen image is to go, which they would keep; whether there were any.
    pub fn forget(&mut self, fleet: &mut Fleet, frozen: &Path) -> bool {
        self.give_up_all(fleet, |source, _| source.is_of(frozen))
    }

    fn give_up_all(&mut self, fleet: &mut Fleet, which: impl Fn(&Source, &Spare) -> bool) -> bool {
        let (over, kept): (HashMap<_, _>, HashMap<_, _>) =
            self.all.drain().partition(|(source, spare)| which(source, spare));
        self.all = kept;
        let any = !over.is_empty();
        for key in over.into_values().filter_map(|spare| spare.key) {
            self.give_up(fleet, key);
        }
        any
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
        let Some((source, spare)) = self.all.iter_mut().find(|(_, spare)| spare.key == Some(key)) else {
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
            let source = source.clone();
            self.all.remove(&source);
        }
        true
    }
}
