//! The service domain's process: an engine, and what the supervisor tells it over its standard input.
//!
//! That is a sequenced-packet socket; a packet is an [`Order`] as JSON, with its descriptors. Its end is the process'.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use doppel_service::Heartbeat;
use rustix::net::SendFlags;
use rustix::process::{Resource, Rlimit};
use serde::{Deserialize, Serialize};

use crate::channel::client::{Published, Settings};
use crate::channel::quota::Quota;
use crate::flow::live::FlowPage;
use crate::names::membership::Membership;
use crate::names::subnet::ServedAddresses;
use crate::rules::ledger::Ledger;
use crate::rules::policy::Log;
use crate::rules::{Rules, Transport};
use crate::service::engine::{ClientId, Engine};
use crate::service::life::Life;

/// Longest packet in bytes.
pub(crate) const PACKET: usize = 64 << 10;

/// Version of orders and channels: a manager may be of another build than the service domain it starts (an upgrade).
pub(crate) const ORDERS: u32 = 8 << 16 | doppel_abi_service::VERSION;

/// What the supervisor says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Count in this ledger, ring this bell (an eventfd) when there is news for a hibernated domain, and write what rules
    /// have written down to this log; the first order. Descriptors: the ledger's memory file, the bell, a socket, the
    /// heart's memory file, its alarm, the watchdog's bell. The version is [`ORDERS`].
    Begin { version: u32 },
    /// A domain has another name.
    Name { key: u64, name: String },
    /// A domain has other rules.
    Rules { key: u64, rules: Rules },
    /// A domain is on other networks, which are internal or not.
    Networks { key: u64, networks: Vec<Membership>, internal: bool, ip4: Ipv4Addr, ip6: Ipv6Addr },
    /// Serve a domain. Descriptors: channel, doorbell, then a bound socket for each published port.
    Attach {
        key: u64,
        networks: Vec<Membership>,
        internal: bool,
        name: String,
        ip4: Ipv4Addr,
        ip6: Ipv6Addr,
        rules: Rules,
        ports: Vec<(u16, Transport)>,
        resolver: Option<SocketAddr>,
        quota: Quota,
    },
    /// Serve it no more, and answer with the key once its sockets are closed, if asked to.
    Detach { key: u64, answer: bool },
    /// A domain is this process. Descriptor: the process.
    Runs { key: u64 },
    /// Another supervisor has taken over, and will say which domains there are. Descriptor: a pipe that ends with it.
    Resume,
    /// This domain is one of them. Answered by [`HeldDescriptors`].
    Claim { key: u64 },
    /// There are no others.
    Claimed,
    /// Say which flows a domain's sockets from this number on have. Answered by [`ToldFlows`].
    Flows { key: u64, question: u64, from: u32 },
}

/// Flows that were asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToldFlows {
    /// As the order has it.
    pub question: u64,
    pub page: FlowPage,
}

/// What a service domain has of a domain's, by its own numbers of descriptors, for a supervisor that has taken over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HeldDescriptors {
    pub key: u64,
    /// None: it does not serve that domain.
    pub descriptors: Option<Descriptors>,
}

/// As those of [`Order::Attach`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Descriptors {
    pub memory: RawFd,
    pub doorbell: RawFd,
    pub sockets: Vec<RawFd>,
}

/// A domain that is served.
struct Served {
    id: ClientId,
    /// For a supervisor that takes over.
    memory: OwnedFd,
    /// One that has taken over knows it.
    claimed: bool,
}

/// Confines this process, and serves until `control` ends. `polls`: it may poll when it has nothing to do. `outlives`: it
/// does not end with its supervisor, but when nobody needs it any more ([`Life`]).
///
/// # Errors
/// What the host says.
pub fn serve(control: BorrowedFd<'_>, polls: bool, outlives: bool) -> io::Result<()> {
    let life = outlives.then(Life::born).transpose()?;
    // A connection is a descriptor.
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let mut engine = Engine::new()?;
    if !polls {
        engine.poll_never();
    }
    // What it opens it has opened.
    doppel_service::confine(&doppel_confine::service::NETWORK, outlives)?;
    rustix::io::ioctl_fionbio(control, true)?;
    engine.watch_control(control)?;
    if let Some(life) = &life {
        engine.watch_control(life.supervisor())?;
    }
    let mut server = Server { control, engine, life, clients: HashMap::new(), ledger: None, log: None };
    loop {
        let patience = server.life.as_ref().and_then(Life::patience);
        let told = server.engine.wait(patience)?;
        if (told || patience.is_some())
            && let Some(life) = &mut server.life
            && life.is_over(server.clients.is_empty())
        {
            return Ok(());
        }
        while told
            && let Some((order, descriptors)) = match receive(control) {
                Ok(packet) => packet,
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(e) => return Err(e),
            }
        {
            server.engine.beat();
            server.follow(order, descriptors)?;
        }
        server.engine.work();
    }
}

/// An engine and what its supervisor has said.
struct Server<'a> {
    control: BorrowedFd<'a>,
    engine: Engine,
    /// None: it ends with its supervisor.
    life: Option<Life>,
    clients: HashMap<u64, Served>,
    ledger: Option<Arc<Ledger>>,
    log: Option<Arc<OwnedFd>>,
}

impl Server<'_> {
    /// Does what it is told; an error ends the process.
    fn follow(&mut self, order: Order, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        match order {
            Order::Begin { version } if version != ORDERS => {
                return Err(io::Error::other(format!("orders of version {version}, not {ORDERS}")));
            }
            Order::Begin { .. } => self.begin(descriptors)?,
            Order::Name { key, name } => {
                if let Some(served) = self.clients.get(&key) {
                    self.engine.set_name(served.id, name);
                }
            }
            Order::Rules { key, rules } => {
                if let Some(served) = self.clients.get(&key) {
                    self.engine.set_rules(served.id, rules);
                }
            }
            Order::Networks { key, networks, internal, ip4, ip6 } => {
                if let Some(served) = self.clients.get(&key) {
                    self.engine.set_networks(served.id, networks.into(), internal, (ip4, ip6));
                }
            }
            Order::Attach { key, networks, internal, name, ip4, ip6, rules, ports, resolver, quota } => {
                let mut descriptors = descriptors.into_iter();
                let (Some(memory), Some(doorbell)) = (descriptors.next(), descriptors.next()) else {
                    return Err(io::Error::other("an order to attach without a channel"));
                };
                let Some(counts) = self.ledger.as_ref().map(|l| l.entry(key)) else {
                    return Err(io::Error::other("an order to attach before there is a ledger"));
                };
                let published = ports
                    .into_iter()
                    .zip(descriptors)
                    .map(|((port, protocol), socket)| Published { port, protocol, socket })
                    .collect();
                let log = self.log.clone().map(|to| Log { to, key });
                let settings = Settings {
                    networks: networks.into(),
                    internal,
                    name,
                    ip4,
                    ip6,
                    served: ServedAddresses::default(),
                    rules,
                    published,
                    resolver,
                    counts,
                    log,
                    quota,
                };
                let id = self.engine.attach(&memory, doorbell, settings)?;
                self.clients.insert(key, Served { id, memory, claimed: true });
            }
            Order::Runs { key } => {
                if let (Some(life), Some(process)) = (&mut self.life, descriptors.into_iter().next()) {
                    life.runs(key, process)?;
                }
            }
            Order::Resume => self.resume(descriptors)?,
            Order::Claim { key } => self.claim(key)?,
            Order::Claimed => {
                let others = self.clients.iter().filter(|(_, s)| !s.claimed).map(|(key, _)| *key);
                for key in others.collect::<Vec<_>>() {
                    self.detach(key);
                }
            }
            Order::Flows { key, question, from } => self.tell_flows(key, question, from)?,
            Order::Detach { key, answer } => {
                self.detach(key);
                if answer {
                    // Who waits no more does without.
                    let _ = rustix::net::send(self.control, &key.to_ne_bytes(), SendFlags::NOSIGNAL);
                }
            }
        }
        Ok(())
    }

    /// The first order: takes the descriptors of [`Order::Begin`].
    fn begin(&mut self, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let mut descriptors = descriptors.into_iter();
        self.ledger = descriptors.next().map(Ledger::open).transpose()?;
        let bell = descriptors.next().ok_or_else(|| io::Error::other("no bell"))?;
        self.engine.set_bell(bell);
        self.log = descriptors.next().map(Arc::new);
        let heart = descriptors.next().ok_or_else(|| io::Error::other("no heart"))?;
        let alarm = descriptors.next().ok_or_else(|| io::Error::other("no alarm"))?;
        self.engine.set_heart(Heartbeat::open(heart, alarm)?);
        self.engine.watch_bell(descriptors.next().ok_or_else(|| io::Error::other("no bell to hear"))?)
    }

    /// Another supervisor has taken over; none of its domains is known yet.
    fn resume(&mut self, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let (Some(life), Some(supervisor)) = (&mut self.life, descriptors.into_iter().next()) else {
            return Err(io::Error::other("an order to go on that cannot be followed"));
        };
        self.engine.watch_control(supervisor.as_fd())?;
        life.taken_over(supervisor);
        self.clients.values_mut().for_each(|served| served.claimed = false);
        Ok(())
    }

    /// Says what there is of a domain's.
    fn claim(&mut self, key: u64) -> io::Result<()> {
        let descriptors = self.clients.get_mut(&key).and_then(|served| {
            served.claimed = true;
            let (doorbell, sockets) = self.engine.held(served.id)?;
            Some(Descriptors { memory: served.memory.as_raw_fd(), doorbell, sockets })
        });
        let answer = serde_json::to_vec(&HeldDescriptors { key, descriptors })?;
        // Who waits no more does without.
        let _ = rustix::net::send(self.control, &answer, SendFlags::NOSIGNAL);
        Ok(())
    }

    /// Says which flows a domain has.
    fn tell_flows(&self, key: u64, question: u64, from: u32) -> io::Result<()> {
        let page =
            self.clients.get(&key).map(|served| self.engine.flows(served.id, from)).unwrap_or_default();
        let answer = serde_json::to_vec(&ToldFlows { question, page })?;
        // Who waits no more does without.
        let _ = rustix::net::send(self.control, &answer, SendFlags::NOSIGNAL);
        Ok(())
    }

    /// Serves a domain no more.
    fn detach(&mut self, key: u64) {
        if let Some(served) = self.clients.remove(&key) {
            self.engine.detach(served.id);
        }
        self.life.iter_mut().for_each(|life| life.left(key));
    }
}

/// The next packet; `None` if none waits.
fn receive(control: BorrowedFd<'_>) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
    let Some((bytes, descriptors)) = doppel_service::receive_packet(control, PACKET)? else {
        return Ok(None);
    };
    Ok(Some((serde_json::from_slice(&bytes)?, descriptors)))
}
