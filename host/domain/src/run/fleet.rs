//! Any number of domains on one thread.
//!
//! A [`Fleet`] waits with one `epoll` for all of them: their doorbells and their ends. Everything that takes long has
//! threads elsewhere and comes back as an [`Event`]: starting (`start_threads.rs`), stopping and letting go on, freezing,
//! counting, answering requests (a thread for each while it lasts, `workers.rs`), page sharing (`sharer.rs`), taking apart
//! (`reaper.rs`). Work per domain and [`Fleet::turn`] is bounded, so that one that floods its console cannot hold up the
//! others, and threads per domain are: what it asks for itself is served one after the other, and not by those threads
//! that are kept for when the host has no others left.
//!
//! Per domain the process keeps two descriptors (doorbell, process), a mapping of the control area, and no thread.
//! A fleet is itself a descriptor that polls as readable when [`Fleet::turn`] has something to do, for callers with an
//! event loop of their own; they also look at [`Fleet::is_busy`].

mod orders;
mod sessions;
mod turn;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use doppel_freezer::FrozenStore;
use rustix::event::{EventfdFlags, epoll};

use crate::freeze::frozen::{FreezeReport, Resume};
use crate::freeze::sharer::sharer;
use crate::launch::start_threads;
use crate::limits::cgroup::Usage;
use crate::lock::lock;
use crate::paging::pager;
use crate::registry::Registry;
use crate::registry::adopt::Predecessors;
use crate::run::key::Key;
use crate::run::reaper::Reaper;
use crate::run::rounds::Rounds;
use crate::run::workers;
use crate::session::{Session, SessionEnd};
use crate::{Captured, Domain, DomainConfig, Error, Images, Outcome, Output};
use doppel_spec::Resources;

/// Most events of the host taken at a time.
const BATCH: usize = 256;

/// What to start.
#[derive(Clone, Debug)]
pub enum Start {
    /// A program, as [`Domain::start`].
    Boot(Box<DomainConfig>),
    /// From a frozen image, as [`Domain::resume`].
    Resume(Resume, Box<DomainConfig>),
    /// A clone of the frozen image in this file, which is opened in the background, once for all of them.
    Clone {
        /// The file.
        image: PathBuf,
        /// As in [`Resume`].
        index: u32,
        /// Those in use.
        images: Images,
        /// The rest.
        config: Box<DomainConfig>,
    },
    /// The hibernated domain whose image has this name in the store of the configuration. Opening it takes a while, and
    /// is done in the background too; [`Domain::settle_wake`] is for when it runs.
    Wake(String, Box<DomainConfig>),
}

/// What happened to a domain.
#[derive(Debug)]
pub enum Event {
    /// It runs.
    Started {
        /// Which.
        key: Key,
        /// What could not be enforced although nobody asked for it.
        warnings: Vec<String>,
    },
    /// It could not be started, and is no longer in the fleet.
    Failed {
        /// Which.
        key: Key,
        /// Why.
        error: Error,
    },
    /// A domain that was asked to hold is ready to go ([`Fleet::go`], [`Fleet::go_as`]).
    Held(Key),
    /// The first byte of its standard output was seen.
    FirstOutput(Key),
    /// There is room again after [`Fleet::input`] found too little.
    InputRoom(Key),
    /// What [`Fleet::freeze`] asked for is done.
    Frozen {
        /// Which.
        key: Key,
        /// What it cost.
        result: Result<FreezeReport, Error>,
    },
    /// What [`Fleet::keep_disk`] asked for is done.
    KeptDisk {
        /// Which.
        key: Key,
        /// Whose call it was.
        call: u64,
        /// The name in the store of what is kept.
        result: Result<String, Error>,
    },
    /// A program of it asked for it to be frozen, as it may, and was served.
    FrozeItself {
        /// Which.
        key: Key,
        /// Whether it was.
        result: Result<(), Error>,
    },
    /// What [`Fleet::pause`] asked for is done.
    Paused {
        /// Which.
        key: Key,
        /// Whether it stands still.
        result: Result<(), Error>,
    },
    /// What [`Fleet::unpause`] asked for is done: it goes on.
    Unpaused(Key),
    /// What [`Fleet::count_memory`] asked for.
    Memory {
        /// Which.
        key: Key,
        /// Bytes that are its programs' own, and bytes that they share with other clones.
        result: Result<(u64, u64), Error>,
    },
    /// What [`Fleet::set_limits`] asked for is done.
    Limited {
        /// Which.
        key: Key,
        /// Whether all of it is.
        result: Result<(), Error>,
    },
    /// Something happened to a session of it.
    Session(Key, SessionKey, SessionEvent),
    /// It has ended, all its output is out, and it is no longer in the fleet. Its processes and its name go a
    /// moment later.
    Ended(Box<Ended>),
}

/// A session of a domain in a fleet; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(u64);

/// What happened to a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// The program runs, as this process of the domain.
    Started(i32),
    /// There is room again after [`Fleet::session_input`] found too little.
    InputRoom,
    /// It has ended, all its output is out, and it is gone: how, and what was kept of its output.
    Ended(SessionEnd, Captured),
}

/// How a domain ended.
#[derive(Debug)]
pub struct Ended {
    /// Which.
    pub key: Key,
    /// Its name.
    pub name: String,
    /// How.
    pub outcome: Outcome,
    /// Its memory is in a frozen image.
    pub asleep: bool,
    /// What was kept of its output.
    pub captured: Captured,
    /// When the first byte of its standard output was seen.
    pub first_output: Option<Instant>,
    /// Bytes it printed.
    pub output_bytes: u64,
    /// What its control group has counted, if [`Fleet::count_usage`] was asked for.
    pub usage: Option<Usage>,
    /// System calls its guest kernel says it has served.
    pub calls: u64,
}

/// Results of other threads.
enum Done {
    Started(Key, Result<Box<Domain>, Error>, Vec<String>),
    /// None: it may not ask.
    Asked(Key, Option<Result<(), Error>>),
    Limited(Key, Result<Box<Resources>, Error>),
    Other(Event),
    Settled(Key, Result<(), Error>),
    Killed,
}

/// Freezes that a domain's own programs ask for, one after the other.
#[derive(Debug, Default)]
struct Asked {
    under_way: bool,
    /// It was asked for again meanwhile.
    again: bool,
    /// How long it waits after the last one failed: whoever asks in vain, and at once again, costs little and is not
    /// heard of often.
    rest: Duration,
}

/// The first of these, and the longest.
const REST: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
const EAGAIN: i32 = 11;

#[derive(Debug)]
pub(crate) struct Live {
    pub domain: Domain,
    /// It is in `ready`.
    queued: bool,
    said_held: bool,
    said_first: bool,
    sessions: BTreeMap<u64, Session>,
    asked: Asked,
}

/// Domains driven together. Dropping it ends them all and waits until nothing is left of them.
#[derive(Debug)]
pub struct Fleet {
    epoll: OwnedFd,
    pub(crate) live: HashMap<u64, Box<Live>>,
    /// Asked for, not yet running: where their output goes, and whether they were killed meanwhile.
    starting: HashMap<u64, (Output, bool)>,
    /// Ended, and to be taken apart when the caller has written down how ([`Fleet::bury`]).
    ended: HashMap<u64, Domain>,
    pub(crate) predecessors: Predecessors,
    /// Those to look at in the next turn.
    ready: VecDeque<u64>,
    /// Those that wait for our standard output or error.
    blocked: HashSet<u64>,
    next: u64,
    count_usage: bool,
    wake: Arc<OwnedFd>,
    sender: Sender<Done>,
    results: Receiver<Done>,
    sharer: Rounds,
    reaper: Reaper,
    /// Not given up between one domain and the next.
    _holder: Arc<Registry>,
}

// What an event of the host is about: a domain's key in the upper bits, one of these in the lower two. Keys begin
// with 1.
const DOORBELL: u64 = 0;
const PROCESS: u64 = 1;
/// Another thread has a result.
const WAKE: u64 = 0;
/// Our standard output or error takes bytes again.
const OURS: u64 = 1;

impl Fleet {
    /// A fleet without domains.
    ///
    /// # Errors
    /// What the host says.
    pub fn new() -> Result<Self, Error> {
        // What must go on when the host has no thread left has its own from the start.
        let threads = || Error::host("start threads");
        workers::prepare().map_err(threads())?;
        start_threads::prepare().map_err(threads())?;
        let reaper = Reaper::new().map_err(threads())?;
        let doing = || Error::os("make an event loop");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(doing())?;
        let wake =
            rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(doing())?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), flags).map_err(doing())?;
        let (sender, results) = channel();
        let holder = Registry::get()?;
        holder.listen();
        Ok(Self {
            epoll,
            live: HashMap::new(),
            starting: HashMap::new(),
            ended: HashMap::new(),
            predecessors: Predecessors::default(),
            ready: VecDeque::new(),
            blocked: HashSet::new(),
            next: 1,
            count_usage: false,
            wake: Arc::new(wake),
            sender,
            results,
            sharer: sharer(),
            reaper,
            _holder: holder,
        })
    }

    /// Tells with each [`Ended`] what its control group had counted.
    pub fn count_usage(&mut self) {
        self.count_usage = true;
    }

    /// How many domains there are, those that are being started included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.len() + self.starting.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`Self::turn`] has something to do although the fleet's descriptor may not say so.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.ready.is_empty()
    }

    fn key(&mut self) -> Key {
        self.next += 1;
        Key(self.next - 1)
    }

    /// Starts a domain in the background: [`Event::Started`] or [`Event::Failed`] comes later. It dies with this
    /// process, unless it `outlives_parent`; its configuration's `capture` is taken as set.
    pub fn start(&mut self, start: Start, output: Output) -> Key {
        let key = self.key();
        self.starting.insert(key.0, (output, false));
        let (sender, wake) = (self.sender.clone(), self.wake.clone());
        let asked = Instant::now();
        let begun = start_threads::run(Box::new(move || {
            let queue = asked.elapsed();
            let mut warnings = Vec::new();
            let mut warn = |text: &str| warnings.push(text.to_owned());
            let result = match start {
                Start::Boot(mut config) => {
                    config.capture = true;
                    Domain::start(&config, &mut warn)
                }
                Start::Resume(resume, mut config) => {
                    config.capture = true;
                    Domain::resume(resume, &config, &mut warn)
                }
                Start::Clone { image, index, images, mut config } => {
                    config.capture = true;
                    images.open(&image).and_then(|image| {
                        let from = Resume { image, index, wake: false, hold: config.hold };
                        Domain::resume(from, &config, &mut warn)
                    })
                }
                Start::Wake(name, mut config) => {
                    config.capture = true;
                    open_and_wake(&name, &config, &mut warn)
                }
            };
            let result = result.map(|mut domain| {
                domain.times.queue = queue;
                Box::new(domain)
            });
            // Without a fleet nobody wants it.
            let _ = sender.send(Done::Started(key, result, warnings));
            ring(&wake);
        }));
        if let Err(error) = begun {
            let failed = Err(Error::host("start threads")(error));
            // We are the other end.
            let _ = self.sender.send(Done::Started(key, failed, Vec::new()));
            ring(&self.wake);
        }
        key
    }

    /// Takes on a domain that was started otherwise; it should have been with `capture`.
    ///
    /// # Errors
    /// What the host says; the domain is ended then.
    pub fn add(&mut self, domain: Domain, output: Output) -> Result<Key, Error> {
        let key = self.key();
        self.enlist(key, domain, output)?;
        Ok(key)
    }

    fn enlist(&mut self, key: Key, mut domain: Domain, output: Output) -> Result<(), Error> {
        domain.set_output(output);
        let watch = |fd: BorrowedFd<'_>, what: u64, flags: epoll::EventFlags| {
            let data = epoll::EventData::new_u64(key.0 << 2 | what);
            epoll::add(&self.epoll, fd, data, flags).map_err(Error::os("watch a domain"))
        };
        // The doorbell is never read: every ring of it is an event.
        watch(domain.doorbell.as_fd(), DOORBELL, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        watch(domain.core.child.pidfd.as_fd(), PROCESS, epoll::EventFlags::IN | epoll::EventFlags::ONESHOT)?;
        if lock(&domain.core.share).is_some() {
            self.sharer.add(&domain.core);
        }
        pager::look_after(&domain.core);
        // What happened before it was watched is seen now.
        self.ready.push_back(key.0);
        let live = Live {
            domain,
            queued: true,
            said_held: false,
            said_first: false,
            sessions: BTreeMap::new(),
            asked: Asked::default(),
        };
        self.live.insert(key.0, Box::new(live));
        Ok(())
    }

    /// A domain that runs; none once it has ended.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Domain> {
        self.live.get(&key.0).map(|l| &l.domain)
    }

    /// Sends its output elsewhere from now on.
    pub fn redirect(&mut self, key: Key, output: Output) {
        if let Some(live) = self.live.get_mut(&key.0) {
            live.domain.set_output(output);
            self.mark(key.0);
        }
    }

    /// Gives the program input; how much of it there was room for. [`Event::InputRoom`] says when there is more.
    pub fn input(&mut self, key: Key, bytes: &[u8]) -> usize {
        let Some(live) = self.live.get_mut(&key.0) else { return 0 };
        let Domain { console, core, .. } = &mut live.domain;
        let taken = console.push_input(&core.map, bytes);
        if taken < bytes.len() {
            self.mark(key.0);
        }
        taken
    }

    /// Bytes of input that the program was given, modulo 2^32, by all who have run its domain.
    #[must_use]
    pub fn given(&self, key: Key) -> u32 {
        self.live.get(&key.0).map_or(0, |live| live.domain.console.given())
    }

    /// Says that no more input will come.
    pub fn end_input(&mut self, key: Key) {
        if let Some(live) = self.live.get_mut(&key.0) {
            let Domain { console, core, .. } = &mut live.domain;
            console.end_input(&core.map);
        }
    }

    /// Its sink takes bytes again.
    pub fn unblock(&mut self, key: Key) {
        self.mark(key.0);
    }
}

impl Live {
    /// Moves what its sessions have to move; true if there is more to do right away.
    fn look_at_sessions(&mut self, key: Key, events: &mut Vec<Event>) -> bool {
        let mut more = false;
        self.sessions.retain(|&number, session| {
            if session.told {
                return true;
            }
            let step = session.step();
            more |= step.more;
            let mut tell = |what| events.push(Event::Session(key, SessionKey(number), what));
            if let Some(pid) = step.started {
                tell(SessionEvent::Started(pid));
            }
            if step.input_room {
                tell(SessionEvent::InputRoom);
            }
            if let Some(end) = step.end {
                tell(SessionEvent::Ended(end, session.take_captured()));
            }
            session.told = step.end.is_some();
            session.kept || !session.told
        });
        more
    }
}

impl AsFd for Fleet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Those that are just being started as well.
        while !self.starting.is_empty() {
            let Ok(done) = self.results.recv() else { break };
            self.done(done, &mut Vec::new());
        }
        let live = self.live.drain().map(|(_, live)| live.domain);
        for domain in live.chain(self.ended.drain().map(|(_, domain)| domain)) {
            let _ = domain.kill();
            self.reaper.take(domain);
        }
        // Dropped next, the reaper waits until they are gone.
    }
}

fn open_and_wake(name: &str, config: &DomainConfig, warn: &mut dyn FnMut(&str)) -> Result<Domain, Error> {
    let Some(store) = &config.store else {
        return Err(Error::Misuse("a hibernated domain is woken from a store"));
    };
    let image = Arc::new(FrozenStore::new(store).open_to_wake(name, true)?);
    Domain::resume(Resume { image, index: 0, wake: true, hold: false }, config, warn)
}

fn ring(wake: &OwnedFd) {
    // A counter at its maximum has rung already.
    let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
}
