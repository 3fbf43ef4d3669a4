//! The keeper: the process that holds the running domains and outlives the supervisor (`docs/supervisor.md`).
//!
//! [`run`] is all of it: one thread, one wait for the fleet's domains, the listening socket and the supervisor's
//! connection. It decides nothing; what it is asked is in `protocol.rs`, `serve.rs` does it, `journal` keeps what
//! domains print, `peer.rs` is the connection. How a domain ended goes to disk (`exit.json`) as soon as the supervisor
//! has been told, and stays there until that has written it down itself.
//!
//! Boundary: it takes orders only from its socket (mode 0600, in a directory of mode 0700); what a domain prints is
//! bytes to it. A keeper without domains and without a supervisor ends.

mod adopt;
pub(crate) mod config;
mod events;
mod exec;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub(crate) mod log;
mod network;
mod peer;
pub(crate) mod protocol;
mod records;
mod serve;
mod spares;
mod start;
mod storage;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use doppel_domain::{Fleet, Key, SessionKey};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::keeper::config::socket;
use crate::keeper::config::write_exit;

pub use config::KeeperConfig;
use log::Journal;
use peer::Peer;
use protocol::{Exit, Limits, Message, Notification, Usage};

/// How long a keeper that has nothing to keep waits for a supervisor.
const LINGER: Duration = Duration::from_secs(5);

/// How long it waits when the host is short of something.
const SHORTAGE: Duration = Duration::from_millis(10);

/// What the keeper knows of a domain.
#[derive(Debug)]
struct Domain {
    run: u64,
    key: Key,
    /// Since when it runs; none while it is being started.
    started_at: Option<String>,
    paused: bool,
    exit: Option<Exit>,
    journal: Arc<Mutex<Journal>>,
    tap: Tap,
    /// Number of the call that started it, until it is answered.
    starting: Option<u64>,
    /// It runs, and its storage service has not begun yet: warnings and stages of its start, of which is told then.
    unserved: Option<(Vec<String>, serve::Stages)>,
    /// It is being ended because its storage service will not serve it.
    failed: Option<String>,
    /// This run of it began with a wake.
    woke: bool,
    /// Call that waits for it to stand still, or to go on.
    pausing: Option<u64>,
    /// Call that waits for its limits, and what they will be.
    limiting: Option<(Option<u64>, Limits)>,
    /// Calls that wait until its memory is counted.
    counting: Vec<u64>,
    /// Calls that wait until what is on a disk of it is kept.
    keeping: Vec<u64>,
    input: serve::Input,
    /// The supervisor wanted its end.
    killed: bool,
    limits: Limits,
    /// For page-seconds: memory at the last count, and when that was.
    sample: Option<(u64, Instant)>,
    page_seconds: f64,
    /// What its log is limited to.
    log: protocol::Log,
    /// Most calls the domain has ever claimed to have served.
    calls: u64,
    /// Its part in the network while it runs.
    network: Option<doppel_net::Attachment>,
    /// Its volumes while it runs.
    storage: Option<storage::Storage>,
    /// Its layer while it runs, if it has one.
    layer: Option<doppel_layers::Lock>,
    /// The most that was counted of what it sent and received; none: it never had a network.
    traffic: Option<doppel_net::Traffic>,
    /// It is being hibernated, and keeps its connections.
    keeps_network: bool,
}

impl Domain {
    /// One of which nothing has happened yet.
    fn new(
        run: u64,
        key: Key,
        journal: Arc<Mutex<Journal>>,
        tap: Tap,
        log: protocol::Log,
        limits: Limits,
    ) -> Self {
        Self {
            run,
            key,
            started_at: None,
            paused: false,
            exit: None,
            journal,
            tap,
            starting: None,
            unserved: None,
            failed: None,
            woke: false,
            pausing: None,
            limiting: None,
            counting: Vec::new(),
            keeping: Vec::new(),
            input: serve::Input::default(),
            killed: false,
            limits,
            sample: None,
            page_seconds: 0.0,
            log,
            calls: 0,
            network: None,
            storage: None,
            layer: None,
            traffic: None,
            keeps_network: false,
        }
    }
}

/// What followed domains and further programs have printed since the last turn: news, the bytes that follow them, and what
/// is safe when these have been sent.
type Outbox = Arc<Mutex<Vec<(Notification, Vec<u8>, Option<exec::Mark>)>>>;
/// Most bytes of a line of a log.
const PIECE: usize = 16 << 10;

/// Whether somebody follows a domain.
#[derive(Clone, Debug, Default)]
struct Tap(Arc<std::sync::atomic::AtomicBool>);

/// Takes a domain's output from the fleet.
struct Sink {
    id: String,
    journal: Arc<Mutex<Journal>>,
    tap: Tap,
    outbox: Outbox,
}

impl doppel_domain::Sink for Sink {
    fn put(&mut self, stream: doppel_domain::Stream, at: u32, bytes: &[u8]) -> io::Result<usize> {
        let stream = protocol::Stream::from(stream);
        let mut journal = locked(&self.journal);
        let mut end = at;
        for piece in bytes.chunks(PIECE) {
            end = end.wrapping_add(u32::try_from(piece.len()).unwrap_or_default());
            // The domain is told that it was taken when it is in the log, or known to be missing there.
            let line = journal.add(stream, end, piece);
            if self.tap.0.load(std::sync::atomic::Ordering::Relaxed) {
                let news = Notification::Printed { id: self.id.clone(), line: line.clone() };
                locked(&self.outbox).push((news, Vec::new(), None));
            }
        }
        Ok(bytes.len())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Whatever is in these is whole at any moment.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The keeper.
struct Keeper {
    config: KeeperConfig,
    fleet: Fleet,
    domains: HashMap<String, Domain>,
    keys: HashMap<Key, String>,
    execs: HashMap<String, exec::Exec>,
    sessions: HashMap<SessionKey, String>,
    /// There is a supervisor that has said which programs it knows.
    greeted: exec::Greeted,
    /// Calls that wait for the end of a freeze.
    freezes: HashMap<Key, u64>,
    outbox: Outbox,
    peer: Option<Peer>,
    spares: spares::Spares,
    images: doppel_domain::Images,
    /// The network service, from the first domain on that wants it.
    network: Option<doppel_net::Manager>,
    storage: storage::Service,
    sleepers: network::asleep::Sleepers,
    /// A descriptor to give up when there are no others.
    held_back: Option<File>,
}

/// What a wait was for.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    /// The peer sent something.
    readable: bool,
    /// Somebody connected.
    connected: bool,
    /// The network service has written something down.
    logged: bool,
    /// There is news for hibernated domains.
    rung: bool,
    /// There is news for domains that wait to be served by the storage service.
    served: bool,
}

/// Keeps domains until there are none and no supervisor. Says "ready" on standard output when it can be reached.
///
/// # Errors
/// If there is a keeper already, or the host fails us; domains that run end then.
pub fn run(config: KeeperConfig) -> io::Result<()> {
    // Fails if we lead a session already, which is as good.
    let _ = rustix::process::setsid();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&config.runtime)?;
    let lock =
        File::options().create(true).truncate(false).write(true).open(config::lock(&config.runtime))?;
    adopt::wait_for(&lock).map_err(|_| {
        io::Error::new(io::ErrorKind::AlreadyExists, format!("{} has a keeper", config.runtime.display()))
    })?;
    let path = socket(&config.runtime);
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    let mut fleet = Fleet::new().map_err(io::Error::other)?;
    fleet.count_usage();
    let mut keeper = Keeper {
        storage: storage::Service::new(&config),
        config,
        fleet,
        domains: HashMap::new(),
        keys: HashMap::new(),
        execs: HashMap::new(),
        sessions: HashMap::new(),
        greeted: exec::Greeted::default(),
        freezes: HashMap::new(),
        outbox: Outbox::default(),
        peer: None,
        spares: spares::Spares::new(),
        images: doppel_domain::Images::default(),
        network: None,
        sleepers: network::asleep::Sleepers::default(),
        held_back: None,
    };
    keeper.adopt();
    let mut out = io::stdout();
    // Whoever started us may be gone; the next one finds the socket.
    let _ = out.write_all(b"ready\n").and_then(|()| out.flush());
    let result = keeper.keep(&listener);
    // First the name, so that nobody connects to a keeper that ends.
    let removed = fs::remove_file(&path);
    drop(keeper);
    drop(lock);
    result.and(removed)
}

impl Keeper {
    fn keep(&mut self, listener: &UnixListener) -> io::Result<()> {
        let mut idle_since = None;
        loop {
            if self.held_back.is_none() {
                self.held_back = File::open("/dev/null").ok();
            }
            // How the others ended is on disk.
            let idle = self.peer.is_none()
                && self.sleepers.is_empty()
                && self.domains.values().all(|d| d.exit.is_some());
            let since = idle.then(|| *idle_since.get_or_insert_with(Instant::now));
            idle_since = since;
            let left = LINGER.saturating_sub(since.map(|s| s.elapsed()).unwrap_or_default());
            if idle && left.is_zero() {
                return Ok(());
            }
            let wait = match (self.fleet.is_busy(), idle) {
                (true, _) => Some(Duration::ZERO),
                (_, true) => Some(left),
                _ => None,
            };
            let wait = wait.into_iter().chain(self.spares.due()).min();
            let Ready { readable, connected, logged, rung, served } = self.wait(listener, wait)?;
            if rung {
                self.rung();
            }
            if served {
                self.look_who_is_served();
            }
            if connected {
                self.accept(listener);
            }
            if readable {
                self.hear();
            }
            if logged {
                self.tell_network_log();
            }
            let events = self.fleet.turn(Some(Duration::ZERO)).map_err(io::Error::other)?;
            for event in events {
                self.happened(event);
            }
            self.spares.tend(&mut self.fleet, &self.config, &self.images);
            self.send_printed();
            self.flush();
        }
    }

    /// Sends what can be sent.
    fn flush(&mut self) {
        let Some(peer) = &mut self.peer else { return };
        if peer.flush() {
            let safe = peer.safe();
            self.execs_sent(safe);
        } else {
            self.forget_peer();
        }
    }

    /// The connection is lost.
    fn forget_peer(&mut self) {
        self.peer = None;
        self.greeted.set(false);
    }

    /// Waits until there is something to do.
    fn wait(&self, listener: &UnixListener, wait: Option<Duration>) -> io::Result<Ready> {
        let mut fds = vec![PollFd::new(&self.fleet, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        let log = self.network.as_ref().map(|network| {
            fds.push(PollFd::new(network.logs(), PollFlags::IN));
            fds.len() - 1
        });
        let peer = self.peer.as_ref().map(|_| fds.len());
        if let Some(peer) = &self.peer {
            let out = if peer.has_more() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::from_borrowed_fd(peer.as_fd(), PollFlags::IN | out));
        }
        let [bell, storage] = [self.sleepers.bell(), self.storage.bell()].map(|bell| {
            fds.push(PollFd::from_borrowed_fd(bell?, PollFlags::IN));
            Some(fds.len() - 1)
        });
        let wait = wait.and_then(|w| Timespec::try_from(w).ok());
        match rustix::event::poll(&mut fds, wait.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            // The host has no memory for it now; domains do not end for that.
            Err(rustix::io::Errno::NOMEM | rustix::io::Errno::AGAIN) => {
                std::thread::sleep(SHORTAGE);
                return Ok(Ready::default());
            }
            Err(e) => return Err(e.into()),
        }
        let is = |i: Option<usize>, f: PollFlags| {
            i.is_some_and(|i| fds.get(i).is_some_and(|p| p.revents().intersects(f)))
        };
        Ok(Ready {
            readable: is(peer, PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            connected: is(Some(1), PollFlags::IN),
            logged: is(log, PollFlags::IN),
            rung: is(bell, PollFlags::IN),
            served: is(storage, PollFlags::IN),
        })
    }

    fn accept(&mut self, listener: &UnixListener) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            // Out of descriptors: one is held back for the supervisor, who can end domains.
            Err(_) => {
                self.held_back = None;
                let accepted = listener.accept();
                if accepted.is_err() {
                    // Whoever waits there is heard when there are some.
                    std::thread::sleep(SHORTAGE);
                }
                let Ok((stream, _)) = accepted else { return };
                stream
            }
        };
        // The newest supervisor is the one there is: the other is dead or about to be.
        match Peer::new(stream) {
            Ok(peer) => {
                self.forget_peer();
                self.peer = Some(peer);
                self.freezes.clear();
                for domain in self.domains.values_mut() {
                    domain.forget_calls();
                }
            }
            Err(error) => tracing::warn!("a connection failed: {error}"),
        }
    }

    fn hear(&mut self) {
        let Some(peer) = &mut self.peer else { return };
        let (calls, alive) = peer.read();
        for call in calls {
            self.answer(call);
        }
        if !alive {
            self.forget_peer();
        }
    }

    /// Says something to a supervisor that has greeted. What happens before that, its greeting is answered with.
    fn say(&mut self, word: &Message) {
        if let Some(peer) = self.peer.as_mut().filter(|_| self.greeted.get()) {
            peer.say(word);
        }
    }

    fn send_printed(&mut self) {
        let printed = std::mem::take(&mut *locked(&self.outbox));
        for (news, bytes, mark) in printed {
            let Some(peer) = self.peer.as_mut().filter(|_| self.greeted.get()) else { return };
            peer.print(news, &bytes, mark);
        }
    }

    /// Tells how a domain ended, and writes it down.
    fn ended(&mut self, exit: Exit) {
        let mut kept = None;
        if let Some(domain) = self.domains.get_mut(&exit.id) {
            domain.exit = Some(exit.clone());
            // Its ports are free before anybody hears of its end, unless it sleeps.
            domain.storage = None;
            domain.layer = None;
            kept = domain.network.take().filter(|_| exit.asleep && domain.keeps_network);
        }
        self.send_printed();
        self.say(&Message::Notification(Notification::Ended(Box::new(exit.clone()))));
        if let Some(attachment) = kept {
            self.keep_network(&exit.id, attachment, false);
        }
        // Whoever waits for the end need not wait for the disk. The supervisor writes it down as well.
        self.flush();
        if let Err(error) = write_exit(&self.config.store, &exit) {
            // It is still known here until the supervisor has it.
            tracing::error!("cannot write how domain {} ended: {error}", exit.id);
        }
        if let Some(domain) = self.domains.get(&exit.id) {
            self.fleet.bury(domain.key);
        }
    }
}

impl Domain {
    /// The connection on which these were asked is gone.
    fn forget_calls(&mut self) {
        self.starting = None;
        self.pausing = None;
        if let Some((call, _)) = &mut self.limiting {
            *call = None;
        }
        self.counting.clear();
        self.keeping.clear();
        self.input.forget_calls();
        self.tap.0.store(false, std::sync::atomic::Ordering::Relaxed);
    }
}

impl From<doppel_domain::Usage> for Usage {
    fn from(u: doppel_domain::Usage) -> Self {
        Self {
            memory_bytes: u.memory_bytes,
            memory_peak_bytes: u.memory_peak_bytes,
            oom_kills: u.oom_kills,
            cpu_seconds: u.cpu_us.map(|us| us as f64 / 1e6),
            pids: u.tasks,
            io_read_bytes: u.io_read_bytes,
            io_write_bytes: u.io_write_bytes,
            ..Self::default()
        }
    }
}
