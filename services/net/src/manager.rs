//! The supervisor's side: starts the service domain, attaches domains, replaces a service domain that has died.
//!
//! Everything a successor needs is kept here: channels, doorbells, rules, and the listening sockets of published ports,
//! in whose backlog connections wait meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use doppel_abi_service::net::SIZE;
use doppel_service::{Groups, Heart, Hibernated, Process, Program, Watchdog};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::WaitOptions;
use serde::{Deserialize, Serialize};

use crate::ledger::{Counts, Ledger, Traffic};
use crate::resolver;
use crate::rules::{Protocol, Rules};
use crate::serve::{DESCRIPTORS, Order, PACKET};

/// What a domain wants of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Its virtual network, by name.
    pub network: String,
    /// Its own name, by which others of the network find it; empty: by none.
    pub name: String,
    /// What it may do.
    pub rules: Rules,
    /// Ports of the host that lead to ports of the domain.
    pub published: Vec<Port>,
    /// Who answers its questions about names; none: who answers the host's.
    pub resolver: Option<SocketAddr>,
}

/// A port of the host that leads to one of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The host's address and port; port 0: any that is free.
    pub host: SocketAddr,
    /// The domain's port.
    pub port: u16,
    /// Of which protocol.
    pub protocol: Protocol,
}

/// Where a domain is in its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its IPv4 address.
    pub ip4: Ipv4Addr,
    /// Its IPv6 address.
    pub ip6: Ipv6Addr,
    /// Its published ports, with the host's of each.
    pub published: Vec<Port>,
}

/// A domain's part in the network; dropped, it has none any more.
#[derive(Debug)]
pub struct Attachment {
    manager: Arc<Shared>,
    key: u64,
    /// The channel's memory file.
    pub memory: Arc<OwnedFd>,
    /// The service's doorbell.
    pub doorbell: Arc<OwnedFd>,
    /// Its IPv4 address.
    pub ip4: Ipv4Addr,
    /// Its IPv6 address.
    pub ip6: Ipv6Addr,
    /// Its published ports, with the host's of each.
    pub published: Vec<Port>,
    counts: Counts,
}

impl Attachment {
    /// Which domain of its manager's it is, as lines of the log say.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Gives it other rules; what they do not allow any more ends.
    ///
    /// # Errors
    /// Too many of them.
    pub fn set_rules(&self, rules: Rules) -> io::Result<()> {
        let order = Order::Rules { key: self.key, rules: rules.clone() };
        let mut state = self.manager.lock();
        packet(&order)?;
        if let Some(member) = state.members.get_mut(&self.key) {
            member.wanted.rules = rules;
        }
        // One that has died is replaced, and its successor is told of all members.
        let _ = state.send(&order, &[]);
        Ok(())
    }

    /// Others of its network find it by this name from now on.
    pub fn set_name(&self, name: &str) {
        let mut state = self.manager.lock();
        if let Some(member) = state.members.get_mut(&self.key) {
            name.clone_into(&mut member.wanted.name);
        }
        // As for rules.
        let _ = state.send(&Order::Name { key: self.key, name: name.to_owned() }, &[]);
    }

    /// What it has moved so far, if the service domain is right.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.counts.read()
    }

    /// Where the domain is.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { ip4: self.ip4, ip6: self.ip6, published: self.published.clone() }
    }
}

impl Attachment {
    /// The domain is hibernated. Its connections stay with the service domain, its ports take callers, and
    /// [`Manager::bell`] is rung when there is news for it.
    ///
    /// # Errors
    /// What the host says.
    pub fn hibernate(self) -> io::Result<Sleeper> {
        let channel = Hibernated::new(&self.memory)?;
        // What is counted from now on is the run's that begins with its wake.
        self.counts.clear();
        Ok(Sleeper { attachment: self, channel })
    }
}

/// A hibernated domain's part in the network.
#[derive(Debug)]
pub struct Sleeper {
    attachment: Attachment,
    channel: Hibernated,
}

impl Sleeper {
    /// Whether somebody wants the domain to wake: something has come, or the service domain is another.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.channel.has_news()
    }

    /// What it wakes with.
    #[must_use]
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// The domain wakes.
    #[must_use]
    pub fn wake(self) -> Attachment {
        self.attachment
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut state = self.manager.lock();
        // Ports are free again when both have closed their sockets.
        let answer = state.members.remove(&self.key).is_some_and(|m| !m.sockets.is_empty());
        // A service domain that is dead has forgotten it.
        if state.send(&Order::Detach { key: self.key, answer }, &[]).is_ok() && answer {
            state.await_detached(self.key);
        }
    }
}

/// Runs one service domain.
#[derive(Debug)]
pub struct Manager(Arc<Shared>, OwnedFd);

#[derive(Debug)]
struct Shared(Mutex<State>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What it protects is whole at any moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    program: Program,
    control: OwnedFd,
    ledger: Arc<Ledger>,
    heart: Arc<Heart>,
    /// Rung when there is news for a hibernated domain.
    bell: OwnedFd,
    /// The service domain's end of the log.
    log: OwnedFd,
    members: BTreeMap<u64, Member>,
    /// The key to try next: an address rests as long as possible before it is another domain's.
    next: u64,
}

#[derive(Debug)]
struct Member {
    wanted: Wanted,
    memory: Arc<OwnedFd>,
    doorbell: Arc<OwnedFd>,
    sockets: Vec<OwnedFd>,
}

/// Keys: the last two bytes of an IPv4 address, from 3 on (1 is the host, 2 answers questions about names).
const FIRST: u64 = 3;
const LAST: u64 = 65_533;
/// Service domains that die faster than this one after the other are given a pause.
const STEADY: Duration = Duration::from_millis(50);
/// Connections that may wait at a published port; the host may allow fewer.
const BACKLOG: i32 = 4096;
/// How long a service domain is given to let go of sockets.
const LET_GO: Duration = Duration::from_millis(500);

fn ip4(key: u64) -> Ipv4Addr {
    let [.., high, low] = key.to_be_bytes();
    Ipv4Addr::new(10, 88, high, low)
}

fn ip6(key: u64) -> Ipv6Addr {
    let low = u16::try_from(key).expect("below LAST");
    Ipv6Addr::new(0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, low)
}

/// The hidden command of a program that is the service domain's process, with [`crate::serve()`] on its standard input.
pub const SERVICE: &str = "network-service";

impl Manager {
    /// Starts a service domain by the command [`SERVICE`] of the program that runs, in one of these control groups.
    ///
    /// # Errors
    /// What the host says.
    pub fn of_this_program(groups: Option<Box<dyn Groups>>) -> io::Result<Self> {
        let name = std::env::args_os().next().unwrap_or_default();
        let program = Program::new("/proc/self/exe", [&*name, OsStr::new(SERVICE)])?;
        Self::start(program.in_groups(groups))
    }

    /// Starts a service domain with this program, whose standard input becomes its control socket (`serve`). It ends when
    /// the last of this manager and its attachments is dropped.
    ///
    /// # Errors
    /// What the host says.
    pub fn start(program: Program) -> io::Result<Self> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (child, control) = spawn(&program)?;
        let (read, log) = pair(SocketFlags::NONBLOCK)?;
        let (ledger, heart) = (Ledger::new()?, Arc::new(Heart::new()?));
        heart.begin();
        let members = BTreeMap::new();
        let state = State { program, control, ledger, heart, log, bell, members, next: FIRST };
        let watchdog = state.inform(&child);
        let shared = Arc::new(Shared(Mutex::new(state)));
        let watched = Arc::downgrade(&shared);
        std::thread::Builder::new().name("network".into()).spawn(move || {
            let mut running = Some((child, watchdog));
            loop {
                let begun = Instant::now();
                // One that could not be started has ended as soon as it began.
                if let Some((child, watchdog)) = running.take() {
                    await_end(&child);
                    drop(watchdog);
                }
                if begun.elapsed() < STEADY {
                    std::thread::sleep(STEADY);
                }
                let Some(shared) = watched.upgrade() else { return };
                let next = shared.lock().replace();
                running = next
                    .inspect_err(|error| eprintln!("doppel: cannot start a network service: {error}"))
                    .ok();
            }
        })?;
        Ok(Self(shared, read))
    }

    /// The log that rules write: see [`crate::read_log`].
    #[must_use]
    pub fn log(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }

    /// An eventfd that is rung when there is news for a hibernated domain; whoever waits for it also reads it.
    ///
    /// # Errors
    /// What the host says.
    pub fn bell(&self) -> io::Result<OwnedFd> {
        self.0.lock().bell.try_clone()
    }

    /// Gives a domain its part in the network.
    ///
    /// # Errors
    /// A port that cannot be published, or what the host says.
    pub fn attach(&self, wanted: Wanted) -> io::Result<Attachment> {
        if wanted.published.len() + 2 > DESCRIPTORS {
            let text = format!("{} published ports: at most {}", wanted.published.len(), DESCRIPTORS - 2);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut published = wanted.published.clone();
        let sockets = published.iter_mut().map(publish).collect::<io::Result<_>>()?;
        let (memory, doorbell) = doppel_service::make(SIZE)?;
        let (memory, doorbell) = (Arc::new(memory), Arc::new(doorbell));
        let mut state = self.0.lock();
        let key = (state.next..=LAST)
            .chain(FIRST..state.next)
            .find(|k| !state.members.contains_key(k))
            .ok_or_else(|| io::Error::other("the virtual network has no address left"))?;
        let member = Member { wanted, memory: memory.clone(), doorbell: doorbell.clone(), sockets };
        let counts = state.ledger.entry(key);
        counts.clear();
        state.next = if key == LAST { FIRST } else { key + 1 };
        // One that has died is replaced, and its successor is told of all members.
        let _ = state.tell(key, &member);
        state.members.insert(key, member);
        let manager = self.0.clone();
        Ok(Attachment { manager, key, memory, doorbell, ip4: ip4(key), ip6: ip6(key), published, counts })
    }
}

impl State {
    fn replace(&mut self) -> io::Result<(Process, Option<Watchdog>)> {
        self.heart.begin();
        let (child, control) = spawn(&self.program)?;
        self.control = control;
        let watchdog = self.inform(&child);
        Ok((child, watchdog))
    }

    /// Tells a service domain that has just been started what it is to know. One that is not to be told is ended, and
    /// another is tried: whoever has started it waits for that.
    fn inform(&self, child: &Process) -> Option<Watchdog> {
        let begun = self.begin();
        // From here on whoever speaks to one that hangs is not kept waiting.
        let watchdog = self.watch(child);
        let told = begun.and_then(|()| self.members.iter().try_for_each(|(key, m)| self.tell(*key, m)));
        if let Err(error) = told {
            eprintln!("doppel: a network service cannot be told what to do: {error}");
            child.kill();
        }
        watchdog
    }

    /// Has a service domain watched that has been told to begin. Without a watchdog it is only not found if it hangs.
    fn watch(&self, child: &Process) -> Option<Watchdog> {
        Watchdog::new(self.heart.clone(), child.pid())
            .inspect_err(|error| eprintln!("doppel: a network service is not watched: {error}"))
            .ok()
    }

    /// What a service domain is told first.
    fn begin(&self) -> io::Result<()> {
        let files = [self.ledger.file(), self.bell.as_fd(), self.log.as_fd(), self.heart.file()];
        self.send(&Order::Begin, &files)
    }

    /// Waits until the service domain has let go of a domain's sockets; not for ever, if it does not answer.
    fn await_detached(&self, key: u64) {
        let end = Instant::now() + LET_GO;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
            let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
            if !matches!(rustix::event::poll(&mut fds, Some(&left)), Ok(1..)) {
                return;
            }
            let mut said = [0; 8];
            match rustix::net::recv(&self.control, &mut said, RecvFlags::DONTWAIT) {
                // An answer that came after its wait was over.
                Ok((8, _)) if u64::from_ne_bytes(said) != key => {}
                _ => return,
            }
        }
    }

    fn tell(&self, key: u64, member: &Member) -> io::Result<()> {
        let wanted = &member.wanted;
        let order = Order::Attach {
            key,
            network: wanted.network.clone(),
            name: wanted.name.clone(),
            ip4: ip4(key),
            ip6: ip6(key),
            rules: wanted.rules.clone(),
            ports: wanted.published.iter().map(|p| (p.port, p.protocol)).collect(),
            resolver: wanted.resolver.or_else(resolver::of_host),
        };
        let mut descriptors = vec![member.memory.as_fd(), member.doorbell.as_fd()];
        descriptors.extend(member.sockets.iter().map(AsFd::as_fd));
        self.send(&order, &descriptors)
    }

    fn send(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = packet(order)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let parts = [IoSlice::new(&bytes)];
        rustix::net::sendmsg(&self.control, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

fn packet(order: &Order) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(order)?;
    if bytes.len() > PACKET {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many rules for one domain"));
    }
    Ok(bytes)
}

/// Two ends of a socket of packets.
pub(crate) fn pair(flags: SocketFlags) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | flags;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Waits until a service domain has ended, and sees to it that one that hangs or is stopped does.
fn await_end(child: &Process) {
    let pid = child.pid();
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => {
                // Nobody who calls would be answered.
                child.kill();
            }
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            // Nothing but a child of ours can be waited for, so this is its end.
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

fn spawn(program: &Program) -> io::Result<(Process, OwnedFd)> {
    let (ours, theirs) = pair(SocketFlags::empty())?;
    Ok((program.start(theirs.as_fd())?, ours))
}

/// The host's socket for a published port, which is entered if any would do.
fn publish(port: &mut Port) -> io::Result<OwnedFd> {
    let at = port.host;
    let bound = match port.protocol {
        Protocol::Tcp => TcpListener::bind(at).map(OwnedFd::from),
        Protocol::Udp => UdpSocket::bind(at).map(OwnedFd::from),
    };
    let socket =
        bound.map_err(|e| io::Error::new(e.kind(), format!("cannot publish a port at {at}: {e}")))?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    if port.protocol == Protocol::Tcp {
        // The standard library's 128 make a thousand who call at once try again after a second.
        rustix::net::listen(&socket, BACKLOG)?;
    }
    port.host = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok(socket)
}
