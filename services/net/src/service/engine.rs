//! All clients of one shard on one thread: events, fairness, connections between domains.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use doppel_abi_service::{OBJECTS, net};
use doppel_ring::Ticket;
use doppel_service::{Channel, Heartbeat, Load, Pace};
use doppel_sys::datagram::Marks;
use doppel_sys::shared;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::channel::client::{Caller, Client, EngineRequest, Entity, Settings, Shared};
use crate::channel::quota::{Account, Pools, SocketLease};
use crate::flow::datagram::LONGEST;
use crate::flow::live::FlowPage;
use crate::flow::stream::Turn;
use crate::names::directory::Directory;
use crate::names::membership::Memberships;
use crate::names::subnet::ServedAddresses;
use crate::rules::locals::LocalAddresses;
use crate::rules::{Direction, Rules};
use crate::service::pressure::Pressure;
use crate::service::reclaim::Ended;
use crate::service::turns::Turns;

/// Names a client of an engine: its place, and how many were there before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(usize, u64);

/// The token of the supervisor's socket.
const CONTROL: Token = Token(usize::MAX - 1);
/// The token of the watchdog's bell.
const WATCHDOG: Token = Token(usize::MAX - 2);
/// The token of the table of the host's own addresses.
const LOCALS: Token = Token(usize::MAX - 3);
/// Bytes a stream moves in one direction before the next one's turn, also while others wait for answers.
const BUDGET: usize = 256 << 10;
const BRIEF: usize = 64 << 10;
/// When to try again what the host had no memory for.
const AGAIN: Duration = Duration::from_millis(25);
/// A turn after which it is looked for news before the next.
const LONG: Duration = Duration::from_micros(20);
/// How long news may wait for a guest kernel that was to look at them by itself.
const SOON: Duration = Duration::from_micros(200);
/// Events taken from the host at once.
const EVENTS: usize = 256;
/// Tokens of a client: its sockets, then its doorbell, then its published ports.
const TOKENS: usize = 1 << 20;
const DOORBELL: usize = OBJECTS as usize;

fn lock(directory: &Shared) -> MutexGuard<'_, Directory> {
    directory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Others find it from now on.
fn enter(directory: &Shared, served: &ServedAddresses, s: &Settings) {
    for (network, name) in s.names() {
        lock(directory).put(&network.network, name, network.found_at((s.ip4, s.ip6)));
    }
    s.networks.addresses().for_each(|(own, _)| served.add(own));
}

/// They do so no more.
fn leave(directory: &Shared, served: &ServedAddresses, s: &Settings) {
    for (network, name) in s.names() {
        lock(directory).remove(&network.network, name, network.found_at((s.ip4, s.ip6)));
    }
    s.networks.addresses().for_each(|(own, _)| served.remove(own));
}

/// One shard of the network service.
#[derive(Debug)]
pub struct Engine {
    poll: Poll,
    events: Events,
    pub(crate) clients: Vec<Option<Client>>,
    /// How many have been at each place before.
    before: Vec<u64>,
    /// Whose turn it is.
    turns: Turns,
    /// Whose channels are looked at, because their doorbell is not rung.
    awake: Vec<usize>,
    /// When to look again at clients that are paused, or of which something waits for its rate or as a burden.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    /// What clients had that are no more.
    ended: Ended,
    /// What there is for all of them.
    pools: Arc<Pools>,
    pace: Pace,
    /// When those who were to look at their news have last been made to.
    insisted: Instant,
    /// Whether others would notice what burdens the service.
    pub(crate) pressure: Pressure,
    heart: Option<Heartbeat>,
    /// Rung by a watchdog that wants to see a step.
    watchdog: Option<OwnedFd>,
    /// For a datagram that is under way.
    scratch: Vec<u8>,
    directory: Shared,
    /// Addresses of clients that are out of subnets.
    served: ServedAddresses,
    /// Which addresses are the host's own, and whether there is more to hear of them.
    locals: LocalAddresses,
    locals_change: bool,
    /// The supervisor's, for news of hibernated domains.
    bell: Option<Arc<OwnedFd>>,
}

impl Engine {
    /// Without clients.
    ///
    /// # Errors
    /// What the host says.
    pub fn new() -> io::Result<Self> {
        let (poll, locals) = (Poll::new()?, LocalAddresses::open()?);
        // It is read while that can be done.
        let _ = crate::flow::options::algorithms();
        let fd = locals.socket().as_raw_fd();
        poll.registry().register(&mut SourceFd(&fd), LOCALS, Interest::READABLE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            clients: Vec::new(),
            before: Vec::new(),
            turns: Turns::default(),
            awake: Vec::new(),
            timers: BinaryHeap::new(),
            ended: Ended::new(Instant::now()),
            pools: Pools::of_host(),
            pace: Pace::new(Instant::now()),
            insisted: Instant::now(),
            pressure: Pressure::new(Load::open()?),
            heart: None,
            watchdog: None,
            scratch: vec![0; LONGEST],
            directory: Shared::default(),
            served: ServedAddresses::default(),
            locals,
            locals_change: false,
            bell: None,
        })
    }

    /// Takes a client on: its channel's memory file and doorbell, from `doppel_service::make`.
    ///
    /// # Errors
    /// What the host says, or that the file is no channel.
    pub fn attach(
        &mut self,
        memory: &OwnedFd,
        doorbell: OwnedFd,
        mut settings: Settings,
    ) -> io::Result<ClientId> {
        let channel = Channel::open(memory, doorbell, self.bell.clone(), net::SIZE)?;
        let i = self.clients.iter().position(Option::is_none).unwrap_or_else(|| {
            self.clients.push(None);
            self.before.push(0);
            self.clients.len() - 1
        });
        let algorithms = crate::flow::options::algorithms();
        channel.memory().write(shared::offset(net::Congestion::PLACE), &algorithms.0);
        self.turns.admit(i);
        self.turns.weigh(i, settings.rules.rates.weight);
        let watch = |fd: &dyn AsRawFd, token: usize| {
            self.poll.registry().register(
                &mut SourceFd(&fd.as_raw_fd()),
                Token(i * TOKENS + token),
                Interest::READABLE,
            )
        };
        watch(&channel.doorbell(), DOORBELL)?;
        for (n, p) in settings.published.iter().enumerate() {
            watch(&p.socket, DOORBELL + 1 + n)?;
        }
        settings.served = self.served.clone();
        enter(&self.directory, &self.served, &settings);
        let account = Account::new(settings.quota, self.pools.clone());
        let known = self.locals.known().clone();
        self.clients[i] = Some(Client::new(channel, settings, self.directory.clone(), known, account));
        self.queue(i);
        Ok(ClientId(i, self.before[i]))
    }

    /// Its place, while it is there: one that broke the protocol has made room for another.
    fn place(&self, id: ClientId) -> Option<usize> {
        (self.before.get(id.0) == Some(&id.1) && self.serves_at(id.0)).then_some(id.0)
    }

    fn serves_at(&self, i: usize) -> bool {
        self.clients.get(i).is_some_and(Option::is_some)
    }

    /// What it has of a client's: the doorbell, and sockets of published ports.
    pub(crate) fn held(&self, id: ClientId) -> Option<(RawFd, Vec<RawFd>)> {
        let client = self.clients[self.place(id)?].as_ref()?;
        let sockets = client.settings.published.iter().map(|p| p.socket.as_raw_fd()).collect();
        Some((client.channel.doorbell().as_raw_fd(), sockets))
    }

    /// Has it sleep whenever nothing is to be done.
    pub fn poll_never(&mut self) {
        self.pace = Pace::without_polls(Instant::now());
    }

    /// Rings this eventfd when there is news for a hibernated domain. Channels that are open already do not know it.
    pub fn set_bell(&mut self, bell: OwnedFd) {
        self.bell = Some(Arc::new(bell));
    }

    /// Has turns tell when `control` is readable.
    ///
    /// # Errors
    /// What the host says.
    pub fn watch_control(&self, control: BorrowedFd<'_>) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&control.as_raw_fd()), CONTROL, Interest::READABLE)
    }

    /// Forgets a client; its connections end, in this turn or later ones.
    pub fn detach(&mut self, id: ClientId) {
        if let Some(i) = self.place(id) {
            self.remove(i);
        }
    }

    fn remove(&mut self, i: usize) {
        if let Some(client) = self.clients[i].take() {
            self.before[i] += 1;
            let s = &client.settings;
            leave(&self.directory, &self.served, s);
            // The supervisor has published sockets and the doorbell too, so that closing ours does not end the watch.
            let published = client.settings.published.iter().map(|p| p.socket.as_raw_fd());
            for fd in published.chain([client.channel.doorbell().as_raw_fd()]) {
                let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
            }
            self.ended.add(client.sockets.into_values().collect(), client.channel, client.account);
        }
    }

    /// Others of its network find a client by this name from now on.
    pub fn set_name(&mut self, id: ClientId, name: String) {
        let Some(client) = self.place(id).and_then(|i| self.clients[i].as_mut()) else { return };
        leave(&self.directory, &self.served, &client.settings);
        client.settings.name = name;
        enter(&self.directory, &self.served, &client.settings);
    }

    /// Puts a client on other networks; `internal`: it is closed to the outside there; `own`: its first addresses then. What it has with those that it does not
    /// reach any more ends.
    pub fn set_networks(
        &mut self,
        id: ClientId,
        networks: Memberships,
        internal: bool,
        own: (Ipv4Addr, Ipv6Addr),
    ) {
        let Some(i) = self.place(id) else { return };
        let others = self.clients.iter().enumerate().filter(|(j, _)| *j != i).filter_map(|(_, c)| c.as_ref());
        let met = others.filter(|c| c.settings.networks.meet(&networks));
        let reached: HashSet<IpAddr> = met.flat_map(|c| c.settings.all_own()).collect();
        let Some(client) = self.clients[i].as_mut() else { return };
        leave(&self.directory, &self.served, &client.settings);
        (client.settings.ip4, client.settings.ip6) = own;
        let heart = &mut self.heart;
        let mut beat = || heart.iter_mut().for_each(Heartbeat::beat);
        client.set_networks(networks, internal, &|ip| reached.contains(&ip.to_canonical()), &mut beat);
        enter(&self.directory, &self.served, &client.settings);
        self.queue(i);
    }

    /// Gives a client other rules; what they do not allow ends.
    pub fn set_rules(&mut self, id: ClientId, rules: Rules) {
        if let Some(client) = self.place(id).and_then(|i| self.clients[i].as_mut()) {
            self.turns.weigh(id.0, rules.rates.weight);
            let heart = &mut self.heart;
            client.set_rules(rules, &mut || heart.iter_mut().for_each(Heartbeat::beat));
            self.queue(id.0);
        }
    }

    /// Flows of a client's sockets from this number on.
    pub(crate) fn flows(&self, id: ClientId, from: u32) -> FlowPage {
        self.place(id).and_then(|i| self.clients[i].as_ref()).map(|c| c.flows(from)).unwrap_or_default()
    }

    /// Whether a client is still served. One that broke the protocol is not.
    #[must_use]
    pub fn serves(&self, id: ClientId) -> bool {
        self.place(id).is_some()
    }

    fn queue(&mut self, i: usize) {
        let paused = self.clients[i].as_ref().is_some_and(|c| c.paused.is_some());
        if !paused {
            self.turns.push(i);
        }
    }

    /// Waits for something to do, at most this long, and does it ([`Self::wait`], [`Self::work`]). True: the supervisor
    /// has said something.
    ///
    /// # Errors
    /// What the host says.
    pub fn turn(&mut self, most: Option<Duration>) -> io::Result<bool> {
        let told = self.wait(most)?;
        self.work();
        Ok(told)
    }

    /// Waits for something to do, at most this long. True: the supervisor has said something, which is to be followed
    /// before [`Self::work`]: who calls after rules were changed finds the new ones.
    ///
    /// # Errors
    /// What the host says.
    pub fn wait(&mut self, most: Option<Duration>) -> io::Result<bool> {
        self.hear();
        let now = Instant::now();
        self.insist(now);
        let next = self.expire(now);
        let pressure = &mut self.pressure;
        let brief = pressure.is_awaited(None, now);
        let rest = self.ended.give_back(now, brief, || pressure.is_felt(None, now));
        if !self.turns.is_empty() {
            self.pace.works(now);
        }
        let stay = !self.turns.is_empty()
            || self.locals_change
            || rest == Some(now)
            || self.pace.polls(now, || self.pressure.is_crowded(now))
            || !self.rest();
        let wait = if stay {
            Some(Duration::ZERO)
        } else {
            most.into_iter().chain(next).chain(rest.map(|at| at - now)).min()
        };
        if let (Some(heart), false) = (&mut self.heart, stay) {
            heart.rest();
        }
        let polled = self.poll.poll(&mut self.events, wait);
        self.beat();
        match polled {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(false),
            r => r?,
        }
        if !self.events.is_empty() {
            let woken = Instant::now();
            if stay { self.pace.works(woken) } else { self.pace.slept(now, woken) }
        }
        let mut told = false;
        for event in &self.events {
            if event.token() == CONTROL {
                told = true;
                continue;
            }
            if event.token() == LOCALS {
                self.locals_change = true;
                continue;
            }
            if event.token() == WATCHDOG {
                // The step has been taken. Nothing to read is as good.
                let _ = self.watchdog.as_ref().map(|bell| rustix::io::read(bell, &mut [0; 8]));
                continue;
            }
            let (i, token) = (event.token().0 / TOKENS, event.token().0 % TOKENS);
            let Some(Some(client)) = self.clients.get_mut(i) else { continue };
            if token == DOORBELL {
                client.channel.rung();
            } else if token > DOORBELL {
                client.called(token - DOORBELL - 1);
            } else {
                let number = u32::try_from(token).expect("below OBJECTS");
                if event.is_priority() {
                    client.urged(number);
                }
                let ended = event.is_error() || event.is_read_closed() || event.is_write_closed();
                client.happened(number, event.is_readable(), event.is_writable(), ended);
            }
            if client.paused.is_none() {
                self.turns.push(i);
            }
        }
        Ok(told)
    }

    /// Gives every client that has something to do a turn.
    pub fn work(&mut self) {
        if self.locals_change {
            self.locals_change = self.locals.follow();
        }
        for _ in 0..self.turns.len() {
            let Some(i) = self.turns.pop() else { break };
            self.beat();
            // After a long one there may be somebody who has used less.
            if self.serve(i) > LONG {
                break;
            }
        }
    }

    /// Beats with this heart.
    pub fn set_heart(&mut self, heart: Heartbeat) {
        self.heart = Some(heart);
    }

    /// Takes a step whenever this eventfd is rung.
    ///
    /// # Errors
    /// What the host says.
    pub fn watch_bell(&mut self, bell: OwnedFd) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&bell.as_raw_fd()), WATCHDOG, Interest::READABLE)?;
        self.watchdog = Some(bell);
        Ok(())
    }

    /// Tells who watches that the work goes on.
    pub fn beat(&mut self) {
        if let Some(heart) = &mut self.heart {
            heart.beat();
        }
    }

    /// Queues those of the clients that are awake who have said something.
    fn hear(&mut self) {
        for k in 0..self.awake.len() {
            let i = self.awake[k];
            // One that broke the protocol is found out in its turn.
            if self.clients[i].as_mut().is_some_and(|c| c.may_speak() && c.channel.speaks() != Ok(false)) {
                self.queue(i);
            }
        }
    }

    /// Wakes those who were to look at their news and have not, however busy others keep this service.
    fn insist(&mut self, now: Instant) {
        if now.saturating_duration_since(self.insisted) < SOON {
            return;
        }
        self.insisted = now;
        for i in &self.awake {
            self.clients[*i].iter_mut().for_each(|c| c.channel.insist());
        }
    }

    /// Has all clients ring; false if one has said something meanwhile.
    fn rest(&mut self) -> bool {
        for i in std::mem::take(&mut self.awake) {
            let Some(client) = &mut self.clients[i] else { continue };
            if client.deferred.is_some() && client.paused.is_none() {
                // It is not asked to ring for what waits anyway, but has its news.
                client.channel.insist();
                self.awake.push(i);
                continue;
            }
            client.awake = false;
            if client.paused.is_some() {
                continue;
            }
            if client.channel.sleep() != Ok(true) {
                self.queue(i);
            }
        }
        self.turns.is_empty()
    }

    /// Gives a client a turn: how long it took.
    fn serve(&mut self, i: usize) -> Duration {
        let begun = Instant::now();
        let Some(client) = &mut self.clients[i] else { return Duration::ZERO };
        if !std::mem::replace(&mut client.awake, true) {
            client.channel.stay_awake();
            self.awake.push(i);
        }
        let pressure = &mut self.pressure;
        let may_burden = client.burden.may(begun, || pressure.is_felt(Some(i), begun));
        let brief = pressure.is_awaited(Some(i), begun);
        let turn =
            client.turn(begun, brief, may_burden, if brief { BRIEF } else { BUDGET }, &mut self.scratch);
        for (at, until) in
            [(client.share.resumes(), &mut client.resumes), (client.burden.waits(), &mut client.deferred)]
        {
            if until.is_none()
                && let Some(at) = at
            {
                *until = Some(at);
                self.timers.push(Reverse((at, i)));
            }
        }
        let wishes = std::mem::take(&mut client.wishes);
        let mut burdened = std::mem::take(&mut client.burdened);
        if turn.is_err() {
            // Its own fault; what it had is closed with it.
            self.remove(i);
            return begun.elapsed();
        }
        let more = turn == Ok(Turn::More) || !wishes.is_empty();
        if client.share.has_moved() {
            self.pressure.moved(i, begun, client.share.has_moved_few());
        }
        let burdens = wishes.iter().any(EngineRequest::is_burden).then(Instant::now);
        for wish in wishes {
            match wish {
                EngineRequest::Watch(number) => self.watch(i, number, false),
                EngineRequest::WatchDatagrams { number, v6 } => self.watch(i, number, v6),
                EngineRequest::Datagram { socket, to, from_port, marks, bytes } => {
                    self.pass_on(i, socket, to, from_port, marks, &bytes);
                }
                EngineRequest::Echo { socket, to, new, bytes } => self.echo(i, socket, to, new, bytes),
                EngineRequest::SocketLease(caller) => {
                    if let Some(Some(client)) = self.clients.get_mut(caller.client)
                        && client.taken(caller)
                    {
                        self.queue(caller.client);
                    }
                }
                EngineRequest::Peer { socket, ticket, to, from_port } => {
                    self.join(i, socket, ticket, to, from_port)
                }
            }
        }
        // What it has others do is its own as well.
        let ended = Instant::now();
        burdened += burdens.map_or(Duration::ZERO, |since| ended - since);
        let took = ended - begun;
        let Some(client) = &mut self.clients[i] else {
            self.turns.used(i, took);
            return took;
        };
        // What it is guaranteed is not of its share.
        if !client.share.is_within() {
            self.turns.used(i, took);
        }
        client.burden.used(burdened);
        if let Some(until) = client.share.end(ended) {
            self.pause(i, until);
        } else if more {
            self.queue(i);
        }
        took
    }

    /// A client has no turns until then, and cannot ring.
    fn pause(&mut self, i: usize, until: Instant) {
        let Some(client) = &mut self.clients[i] else { return };
        let doorbell = client.channel.doorbell().as_raw_fd();
        if self.poll.registry().deregister(&mut SourceFd(&doorbell)).is_ok() {
            client.paused = Some(until);
            self.timers.push(Reverse((until, i)));
        }
    }

    /// Ends pauses that are over, and has bytes go on. How long until the next does.
    fn expire(&mut self, now: Instant) -> Option<Duration> {
        while let Some(Reverse((at, i))) = self.timers.peek().copied() {
            if at > now {
                return Some(at - now);
            }
            self.timers.pop();
            let Some(client) = &mut self.clients[i] else { continue };
            if [client.resumes, client.deferred].into_iter().flatten().any(|at| at <= now) {
                client.resume();
            }
            if client.paused.is_none_or(|until| until > now) {
                self.queue(i);
                continue;
            }
            let doorbell = client.channel.doorbell().as_raw_fd();
            let token = Token(i * TOKENS + DOORBELL);
            if self.poll.registry().register(&mut SourceFd(&doorbell), token, Interest::READABLE).is_ok() {
                client.paused = None;
                self.queue(i);
            } else {
                // No memory for it now.
                self.timers.push(Reverse((now + AGAIN, i)));
            }
        }
        None
    }

    /// Has the poll tell of a socket's events.
    fn watch(&mut self, i: usize, number: u32, v6: bool) {
        let Some(client) = &self.clients[i] else { return };
        let Some(fd) = client.descriptor(number, v6) else { return };
        let token = Token(i * TOKENS + number as usize);
        let both = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
        // A connection whose events are not told would hang: without memory for it, it is not one.
        if self.poll.registry().register(&mut SourceFd(&fd.as_raw_fd()), token, both).is_err()
            && let Some(client) = &mut self.clients[i]
        {
            client.happened(number, true, true, true);
        }
    }

    /// Connects a socket of one domain to another domain.
    fn join(&mut self, i: usize, socket: u32, ticket: Ticket, to: SocketAddr, from_port: u16) {
        let result = self.peer(Caller { client: i, socket, ticket }, to, from_port);
        let Some(client) = &mut self.clients[i] else { return };
        match result {
            Ok((link, held, taken)) => {
                if taken {
                    client.begin_stream(socket, link, held, ticket, (from_port, to));
                } else {
                    client.wait_for_taking(socket, link, held, ticket, (from_port, to));
                }
                self.watch(i, socket, false);
            }
            Err(why) => client.refuse(ticket, why),
        }
        self.queue(i);
    }

    /// Passes a datagram on to another domain. It is lost if that has no room for it.
    fn pass_on(&mut self, i: usize, socket: u32, to: SocketAddr, from_port: u16, marks: Marks, bytes: &[u8]) {
        let passed = self.other(i, to).and_then(|(from, j)| {
            let called = self.clients[j].as_mut().ok_or(Errno::HOSTUNREACH)?;
            let from = SocketAddr::new(from, from_port);
            let taker = called.taker(to.ip(), to.port(), from).ok_or(Errno::CONNREFUSED)?;
            match called.sockets.get_mut(&taker) {
                // A channel that is broken is found to be so at its own turn.
                Some(Entity::Datagrams(d)) => {
                    if !called.policy.receive(from, to.port(), crate::Protocol::Udp, d.is_new(from)) {
                        called.settings.counts.received().dropped();
                        return Err(Errno::CONNREFUSED);
                    }
                    if called.share.most(Direction::In) == 0 {
                        called.settings.counts.received().dropped();
                        return Ok(());
                    }
                    called.share.passed(Direction::In, bytes.len());
                    let _ = d.heard(&mut called.channel, from, to.port(), marks, bytes);
                }
                _ => return Err(Errno::CONNREFUSED),
            }
            self.queue(j);
            Ok(())
        });
        if let Err(why) = passed
            && let Some(client) = &mut self.clients[i]
            && let Some(Entity::Datagrams(d)) = client.sockets.get_mut(&socket)
        {
            d.tell(&mut client.channel, why);
            self.queue(i);
        }
    }

    /// Asks another domain for an echo.
    fn echo(&mut self, i: usize, socket: u32, to: SocketAddr, new: bool, mut bytes: Box<[u8]>) {
        let asked = self.other(i, to).and_then(|(from, j)| {
            let asked = self.clients[j].as_mut().ok_or(Errno::HOSTUNREACH)?;
            Ok((from, asked.echoes(SocketAddr::new(from, 0), new, bytes.len())))
        });
        let Some(client) = &mut self.clients[i] else { return };
        let Some(Entity::Datagrams(d)) = client.sockets.get_mut(&socket) else { return };
        match asked {
            // A channel that is broken is found to be so at its own turn.
            Ok((own, true)) => {
                let _ = d.echoed(&mut client.channel, &mut client.share, own, to, &mut bytes);
            }
            Ok((_, false)) => {}
            Err(why) => d.tell(&mut client.channel, why),
        }
        self.queue(i);
    }

    /// The address with which a domain sends to another of its network, and which one that is.
    fn other(&self, i: usize, to: SocketAddr) -> Result<(IpAddr, usize), Errno> {
        let Some(caller) = &self.clients[i] else { return Err(Errno::NETUNREACH) };
        let from = caller.settings.own(to.ip());
        let networks = &caller.settings.networks;
        let found = self.clients.iter().position(|c| {
            c.as_ref().is_some_and(|c| c.settings.is_own(to.ip()) && c.settings.networks.meet(networks))
        });
        // Others than those with a network in common are not there.
        Ok((from, found.filter(|j| *j != i).ok_or(Errno::HOSTUNREACH)?))
    }

    /// One end of a pair, whose other end a listener of another domain has been given, and whether it has been taken with that.
    fn peer(
        &mut self,
        caller: Caller,
        to: SocketAddr,
        from_port: u16,
    ) -> Result<(OwnedFd, SocketLease, bool), Errno> {
        let (from, j) = self.other(caller.client, to)?;
        let calling = self.clients[caller.client].as_ref().ok_or(Errno::NETUNREACH)?;
        let held = calling.account.take(None)?;
        let Some(called) = &mut self.clients[j] else { return Err(Errno::HOSTUNREACH) };
        let from = SocketAddr::new(from, from_port);
        if !called.policy.receive(from, to.port(), crate::Protocol::Tcp, true) {
            called.settings.counts.received().dropped();
            return Err(Errno::CONNREFUSED);
        }
        let listener = called.listener(to.ip(), to.port()).ok_or(Errno::CONNREFUSED)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let waits = called.listens_everywhere(listener);
        let held_there = called.account.take(None).map_err(|_| Errno::CONNREFUSED)?;
        let number =
            called.give(listener, theirs, held_there, (from, from), to.port()).ok_or(Errno::CONNREFUSED)?;
        if waits {
            called.waits(number, caller);
        }
        self.queue(j);
        Ok((ours, held, !waits))
    }
}
