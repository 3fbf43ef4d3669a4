//! One domain: its channel, its sockets, what it may do.

mod callers;
mod flows;
mod requests;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use doppel_abi_service::net::{ACCEPTED, Answer, End, Request, SOCKETS, SocketHeader};
use doppel_ring::{Entry, Ticket};
use doppel_service::{Broken, Channel};
use doppel_sys::datagram::Marks;
use rustix::io::Errno;
use socket2::Socket;

use crate::channel::quota::{Account, Quota, SocketLease};
use crate::channel::ready::ReadyQueue;
use crate::channel::room::Room;
use crate::channel::share::Share;
use crate::flow::datagram::{Datagrams, TurnContext};
use crate::flow::options::{BeforeAccept, Options};
use crate::flow::stream::{Stream, Turn};
use crate::names::directory::Directory;
use crate::names::membership::{Membership, Memberships};
use crate::names::subnet::ServedAddresses;
use crate::rules::ledger::Counts;
use crate::rules::locals::Known;
use crate::rules::policy::{Flow, Log, Policy};
use crate::rules::{Protocol, Rules, Transport};
use crate::service::burden::Burden;

/// A port of the host that leads to one of a domain.
#[derive(Debug)]
pub struct Published {
    /// The domain's port.
    pub port: u16,
    /// Of which protocol.
    pub protocol: Transport,
    /// The host's bound socket, non-blocking; it listens, if it is TCP's. The supervisor made it and has it too, so that
    /// connections and datagrams wait in it while a service domain is replaced.
    pub socket: OwnedFd,
}

/// What the supervisor says of a client.
#[derive(Debug)]
pub struct Settings {
    /// Its virtual networks; those who have one in common reach each other.
    pub networks: Memberships,
    /// It is closed to the outside: its networks are internal, or it is on none.
    pub internal: bool,
    /// Its own name there; empty: none.
    pub name: String,
    /// Its addresses there.
    pub ip4: Ipv4Addr,
    /// Its IPv6 address.
    pub ip6: Ipv6Addr,
    /// Addresses of all domains that are out of subnets; the engine's own.
    pub served: ServedAddresses,
    /// What it may do.
    pub rules: Rules,
    /// Ports of the host.
    pub published: Vec<Published>,
    /// Who answers questions about names; none: nobody.
    pub resolver: Option<SocketAddr>,
    /// Where its traffic is counted.
    pub counts: Counts,
    /// Where rules write what they let through or not.
    pub log: Option<Log>,
    /// What it may have at once.
    pub quota: Quota,
}

impl Settings {
    /// Its own name and the further ones, by network.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&Membership, &str)> {
        self.networks.called(&self.name)
    }

    /// Whether this is one of the domain's addresses.
    #[must_use]
    pub fn is_own(&self, ip: IpAddr) -> bool {
        ip == self.ip4 || ip == self.ip6 || self.networks.addresses().any(|(own, _)| own == ip)
    }

    /// The one with which it talks to this address: of the same subnet if it has one there.
    pub(crate) fn own(&self, to: IpAddr) -> IpAddr {
        let beside = self.networks.addresses().find(|(_, space)| space.subnet.has(to));
        beside.map_or_else(|| if to.is_ipv4() { self.ip4.into() } else { self.ip6.into() }, |(own, _)| own)
    }

    /// All of them, the first of each family first.
    pub(crate) fn all_own(&self) -> impl Iterator<Item = IpAddr> {
        let first = [IpAddr::V4(self.ip4), IpAddr::V6(self.ip6)];
        first.into_iter().chain(self.networks.addresses().map(|(own, _)| own))
    }
}

/// Requests heard in a turn, and answers that may wait for room.
pub(crate) const BATCH: usize = 64;
/// Requests taken at once.
const HEARD: usize = 8;

/// Sockets that move bytes in a turn.
const STREAMS: usize = 64;
/// Sockets that are held against new rules in a step: each may take as many comparisons as there are rules.
const JUDGED: usize = 8;

/// A socket of a client.
#[derive(Debug)]
pub(crate) enum Entity {
    /// A connection of the host that is being made.
    Connecting {
        socket: Socket,
        held: SocketLease,
        ticket: Ticket,
        to: SocketAddr,
        from_port: u16,
        since: Instant,
    },
    /// A connection to another domain, which that one has not taken yet.
    Joining {
        link: OwnedFd,
        held: SocketLease,
        ticket: Ticket,
        to: SocketAddr,
        from_port: u16,
        since: Instant,
    },
    /// A connection.
    Stream(Box<Stream>),
    /// Takes connections at a port.
    Listener(Listening),
    /// Sends and receives datagrams.
    Datagrams(Box<Datagrams>),
}

/// A socket that takes connections.
#[derive(Debug)]
pub(crate) struct Listening {
    pub at: End,
    /// What its connections have.
    pub options: Options,
}

/// Who waits for a connection to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Its place in the engine.
    pub client: usize,
    pub socket: u32,
    pub ticket: Ticket,
}

/// What a client wants that its engine has to do: it concerns the poll, or another client.
#[derive(Debug)]
pub(crate) enum EngineRequest {
    /// Tell me of this socket's events.
    Watch(u32),
    /// Tell me of the events of this datagram socket's way out by IPv4 or IPv6.
    WatchDatagrams { number: u32, v6: bool },
    /// A connection to another domain.
    Peer { socket: u32, ticket: Ticket, to: SocketAddr, from_port: u16 },
    /// A connection of another domain has been taken.
    SocketLease(Caller),
    /// A datagram for another domain.
    Datagram { socket: u32, to: SocketAddr, from_port: u16, marks: Marks, bytes: Box<[u8]> },
    /// A request for an echo of another domain; `new`: its first to that.
    Echo { socket: u32, to: SocketAddr, new: bool, bytes: Box<[u8]> },
}

impl EngineRequest {
    /// Whether the service does it for a client that has not been called by others (`burden`).
    pub fn is_burden(&self) -> bool {
        match self {
            Self::Watch(number) => *number < ACCEPTED,
            Self::SocketLease(_) => false,
            Self::WatchDatagrams { .. } | Self::Peer { .. } | Self::Datagram { .. } | Self::Echo { .. } => {
                true
            }
        }
    }
}

/// Names of domains, in common for all clients.
pub(crate) type Shared = Arc<Mutex<Directory>>;

/// One domain.
#[derive(Debug)]
pub(crate) struct Client {
    pub channel: Channel,
    pub settings: Settings,
    pub policy: Policy,
    pub account: Arc<Account>,
    directory: Shared,
    pub sockets: HashMap<u32, Entity>,
    /// Sockets that take what comes, by port.
    pub ports: HashMap<u16, Vec<u32>>,
    /// Numbers of accepted connections that were given back; beyond them, those from `fresh` on.
    pub free: Vec<u32>,
    pub fresh: u32,
    /// Answers for which the ring had no room, and whether a program may wait for them.
    pub answers: VecDeque<(Entry, bool)>,
    /// Sockets with something to do.
    busy: ReadyQueue,
    pub share: Share,
    /// What it burdens the service with; whether it may in this turn, and how long it has.
    pub burden: Burden,
    may_burden: bool,
    pub burdened: Duration,
    /// Nothing came of its turns: it has none for a while.
    pub paused: Option<Instant>,
    /// Sockets whose bytes wait for their rate, and those that wait as a burden; and when they go on.
    held: ReadyQueue,
    burdens: ReadyQueue,
    pub resumes: Option<Instant>,
    pub deferred: Option<Instant>,
    /// Published ports at which something may wait.
    pub callers: Vec<usize>,
    pub wishes: Vec<EngineRequest>,
    /// A socket of which something was set before it is made, and what.
    prepared: Option<(u32, Options)>,
    /// How the host's listening sockets of published ports were last made to be.
    pub listening: Vec<Option<BeforeAccept>>,
    /// Its doorbell is not rung: its engine looks at the channel.
    pub awake: bool,
}

/// The header of a socket. `number` is below [`doppel_abi_service::OBJECTS`].
pub(crate) fn socket_header(channel: &Channel, number: u32) -> &SocketHeader {
    channel.get(SOCKETS + u64::from(number) * size_of::<SocketHeader>() as u64)
}

impl Client {
    pub fn new(
        channel: Channel,
        mut settings: Settings,
        directory: Shared,
        locals: Arc<Known>,
        account: Arc<Account>,
    ) -> Self {
        let mut share = Share::default();
        share.set_rates(settings.rules.rates, Instant::now());
        let mut policy = Policy::new(std::mem::take(&mut settings.rules), settings.log.clone(), locals);
        policy.close(settings.internal);
        let callers = (0..settings.published.len()).collect();
        let listening = vec![None; settings.published.len()];
        let burden = Burden::new(settings.quota.burden_percent, Instant::now());
        Self {
            channel,
            settings,
            policy,
            account,
            directory,
            sockets: HashMap::new(),
            ports: HashMap::new(),
            free: Vec::new(),
            fresh: ACCEPTED,
            answers: VecDeque::new(),
            busy: ReadyQueue::default(),
            share,
            burden,
            may_burden: true,
            burdened: Duration::ZERO,
            paused: None,
            held: ReadyQueue::default(),
            burdens: ReadyQueue::default(),
            resumes: None,
            deferred: None,
            callers,
            wishes: Vec::new(),
            prepared: None,
            listening,
            awake: false,
        }
    }

    /// Whether it is heard when it says something.
    pub fn may_speak(&self) -> bool {
        self.paused.is_none() && self.deferred.is_none()
    }

    /// What the host has for a socket that it may be watched by; a datagram socket may have two.
    pub fn descriptor(&self, number: u32, v6: bool) -> Option<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        match self.sockets.get(&number)? {
            Entity::Connecting { socket, .. } => Some(socket.as_fd()),
            Entity::Joining { link, .. } => Some(link.as_fd()),
            Entity::Stream(s) => Some(s.link().as_fd()),
            Entity::Datagrams(d) => d.descriptor(v6),
            Entity::Listener(_) => None,
        }
    }

    /// Something happened to a socket of the host.
    pub fn happened(&mut self, number: u32, readable: bool, writable: bool, ending: bool) {
        match self.sockets.get_mut(&number) {
            Some(Entity::Stream(s)) => {
                s.readable |= readable || ending;
                s.writable |= writable || ending;
                s.ending |= ending;
                self.busy.push(number);
            }
            Some(Entity::Datagrams(d)) => {
                d.happened();
                self.busy.push(number);
            }
            Some(Entity::Connecting { .. }) if writable || readable || ending => self.connected(number),
            // Given up at the other end.
            Some(Entity::Joining { ticket, .. }) if ending => {
                let ticket = *ticket;
                self.sockets.remove(&number);
                self.done(ticket, Err(Errno::CONNREFUSED));
            }
            _ => {}
        }
    }

    /// A connection has an urgent byte.
    pub fn urged(&mut self, number: u32) {
        if let Some(Entity::Stream(s)) = self.sockets.get_mut(&number) {
            s.expect_urgent();
        }
    }

    /// One turn, of at most `budget` bytes a socket and direction, and not a whole one if it is to be `brief`.
    /// [`Turn::More`]: there is more to do. `scratch` has room for the longest datagram. What burdens the service waits if it
    /// may not be done.
    pub fn turn(
        &mut self,
        begun: Instant,
        brief: bool,
        may_burden: bool,
        budget: usize,
        scratch: &mut [u8],
    ) -> Result<Turn, Broken> {
        self.share.begin(begun, brief);
        self.may_burden = may_burden;
        self.flush()?;
        // Whoever does not take answers is not heard either, so they are bounded.
        if may_burden && self.answers.is_empty() {
            let (mut burdens, mut heard) = (false, 0);
            // By a few, as some take long.
            while heard < BATCH && !self.share.is_spent() {
                let some = self.channel.hear(HEARD.min(self.share.requests()))?;
                if some.is_empty() {
                    break;
                }
                heard += some.len();
                for entry in some {
                    let (request, ticket) = Request::decode(&entry).map_err(|_| Broken)?;
                    burdens |= is_burden(&request);
                    self.share.asked();
                    self.asked(request, ticket, scratch)?;
                }
            }
            if burdens {
                self.burdened += begun.elapsed();
            }
        }
        // Marks are all taken at once, so not while many wait that may have been marked for nothing.
        if self.busy.len() < STREAMS {
            let Self { channel, busy, .. } = self;
            channel.marked(|number| busy.push(number));
        }
        let mut more = self.look_outside(scratch)?;
        let deferred = if may_burden { self.burdens.len() } else { 0 };
        for n in 0..(self.busy.len() + deferred).min(STREAMS) {
            if self.share.is_spent() {
                break;
            }
            // By turns.
            let mut next = if n % 2 == 0 { self.busy.pop() } else { None };
            if next.is_none() && may_burden {
                next = self.burdens.pop();
            }
            let Some(number) = next.or_else(|| self.busy.pop()) else { break };
            self.move_bytes(number, budget, scratch)?;
        }
        // To tell it of what burdened the service is a part of that, and no small one: a wake-up.
        let telling = (!self.burdened.is_zero()).then(Instant::now);
        self.flush()?;
        self.channel.wake();
        self.burdened += telling.map_or(Duration::ZERO, |since| since.elapsed());
        more |= !self.busy.is_empty() || may_burden && !self.burdens.is_empty();
        Ok(if more { Turn::More } else { Turn::Idle })
    }

    fn flush(&mut self) -> Result<(), Broken> {
        while let Some((entry, call)) = self.answers.front() {
            if !self.channel.answer(entry, *call)? {
                break;
            }
            self.answers.pop_front();
            self.share.answered();
        }
        Ok(())
    }

    fn answer(&mut self, answer: Answer) {
        self.answers.push_back((answer.encode(), true));
    }

    fn done(&mut self, ticket: Ticket, result: Result<End, Errno>) {
        let (error, local) = match result {
            Ok(local) => (0, local),
            Err(e) => (u16::try_from(e.raw_os_error()).unwrap_or(u16::MAX), End::default()),
        };
        self.answer(Answer::Done { ticket, error, local });
    }

    /// A socket that a program has closed is no more. Nobody waits for that, but who lingers, as long as it runs.
    fn closed(&mut self, ticket: Ticket) {
        let done = Answer::Done { ticket, error: 0, local: End::default() };
        self.answers.push_back((done.encode(), false));
    }

    fn forget(&mut self, number: u32) {
        let Some(mut was) = self.sockets.remove(&number) else { return };
        match &mut was {
            Entity::Stream(s) => s.leave(self.channel.memory()),
            Entity::Datagrams(d) => d.leave(self.channel.memory()),
            Entity::Listener(_) | Entity::Connecting { .. } | Entity::Joining { .. } => {}
        }
        if number >= ACCEPTED {
            self.free.push(number);
        }
        let port = match was {
            Entity::Datagrams(d) => d.at.port,
            Entity::Listener(l) => l.at.port,
            Entity::Connecting { .. } | Entity::Joining { .. } | Entity::Stream(_) => return,
        };
        if let Some(there) = self.ports.get_mut(&port) {
            there.retain(|n| *n != number);
            if there.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    fn insert_stream(&mut self, number: u32, link: OwnedFd, held: SocketLease, flow: (Flow, u16)) {
        let room = Room::new(self.account.clone(), number);
        let stream = Stream::new(number, link, held, room, flow, self.settings.counts.clone());
        self.sockets.insert(number, Entity::Stream(Box::new(stream)));
        self.busy.push(number);
    }

    /// The sockets, and what a turn of one of them needs of the client.
    fn sockets_in_turn<'a>(
        &'a mut self,
        scratch: &'a mut [u8],
    ) -> (&'a mut HashMap<u32, Entity>, TurnContext<'a>) {
        let context = TurnContext {
            channel: &mut self.channel,
            settings: &self.settings,
            policy: &mut self.policy,
            account: &self.account,
            directory: &self.directory,
            wishes: &mut self.wishes,
            share: &mut self.share,
            may_burden: self.may_burden,
            burdened: &mut self.burdened,
            scratch,
        };
        (&mut self.sockets, context)
    }

    fn move_bytes(&mut self, number: u32, budget: usize, scratch: &mut [u8]) -> Result<(), Broken> {
        let may_burden = self.may_burden;
        let (sockets, mut around) = self.sockets_in_turn(scratch);
        let (turn, over, ticket) = match sockets.get_mut(&number) {
            Some(Entity::Stream(s)) => {
                (s.turn(around.channel, budget, around.share)?, s.is_over(), s.closed_by)
            }
            Some(Entity::Datagrams(d)) => {
                let turn = d.turn(&mut around, budget)?;
                (turn, d.is_over(), d.closed_by)
            }
            _ => return Ok(()),
        };
        if turn == Turn::More {
            self.busy.push(number);
        } else if turn == Turn::HeldDescriptors {
            self.held.push(number);
        } else if turn == Turn::Deferred || over && !may_burden && number < ACCEPTED {
            self.burdens.push(number);
        } else if over {
            let begun = Instant::now();
            self.forget(number);
            if number < ACCEPTED {
                self.burdened += begun.elapsed();
            }
            if let Some(ticket) = ticket {
                self.closed(ticket);
            }
        }
        Ok(())
    }
}

impl Client {
    /// What waits for its rate, or as a burden, goes on.
    pub fn resume(&mut self) {
        (self.resumes, self.deferred) = (None, None);
        self.share.resume();
        while let Some(number) = self.held.pop() {
            self.busy.push(number);
        }
    }

    /// Other rules, which what is under way must keep too.
    /// `beat`: a step of it is done.
    pub fn set_rules(&mut self, rules: Rules, beat: &mut dyn FnMut()) {
        self.share.set_rates(rules.rates, Instant::now());
        self.resume();
        self.policy.set(rules);
        self.judge_again(&|_| true, beat);
    }

    /// Other networks. What is under way to domains that it does not `reach` any more ends.
    pub fn set_networks(
        &mut self,
        networks: Memberships,
        internal: bool,
        reach: &dyn Fn(IpAddr) -> bool,
        beat: &mut dyn FnMut(),
    ) {
        (self.settings.networks, self.settings.internal) = (networks, internal);
        self.policy.close(internal);
        self.judge_again(reach, beat);
    }

    /// Ends what the rules do not let through any more, and what is to domains that it does not `reach`.
    fn judge_again(&mut self, reach: &dyn Fn(IpAddr) -> bool, beat: &mut dyn FnMut()) {
        let Self { channel, settings, policy, sockets, busy, .. } = self;
        let keeps = |policy: &Policy, flow: Flow| {
            policy.keeps(settings, flow, Protocol::Tcp) && flow.domain(settings).is_none_or(reach)
        };
        let mut refused = Vec::new();
        for (n, (number, entity)) in sockets.iter_mut().enumerate() {
            if n.is_multiple_of(JUDGED) {
                beat();
            }
            match entity {
                Entity::Stream(s) => {
                    if !keeps(policy, s.flow) {
                        s.cut(channel);
                        busy.push(*number);
                    }
                }
                Entity::Connecting { to, .. } | Entity::Joining { to, .. } => {
                    if !keeps(policy, Flow::Out(*to)) {
                        refused.push(*number);
                    }
                }
                Entity::Datagrams(d) => d.judge_again(channel, settings, policy),
                Entity::Listener(_) => {}
            }
        }
        for number in refused {
            if let Some(Entity::Connecting { ticket, .. } | Entity::Joining { ticket, .. }) =
                self.sockets.remove(&number)
            {
                self.done(ticket, Err(Errno::ACCESS));
            }
        }
    }
}

/// Whether it makes a socket of the host, or gives one up: those that callers have made are not the domain's doing.
fn is_burden(request: &Request) -> bool {
    match request {
        Request::Connect { .. } | Request::Datagrams { .. } | Request::Echo { .. } | Request::Peer { .. } => {
            true
        }
        Request::Close { socket, .. } => *socket < ACCEPTED,
        Request::Listen { .. } | Request::Set { .. } | Request::Take { .. } | Request::Measure { .. } => {
            false
        }
    }
}
