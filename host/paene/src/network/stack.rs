//! All of a domain's connections and datagram sockets: which packet and which mark is whose.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use doppel_abi_service::net::{End, Request, SocketOption};
use rustix::io::Errno;
use smoltcp::time::Instant;

use super::addresses::Addresses;
use super::channel::{Channel, Pending, ServiceNews, end};
use super::grams::{DatagramUse, Grams};
use super::packet::{self, Packet, What};
use super::stream::{Connection, Turn};
use super::tunnel::Tunnel;

/// Packets taken in a turn.
const PACKETS: usize = 64;
/// Datagrams taken from one socket in a turn.
const DATAGRAMS: usize = 64;
/// Datagram sockets of the channel; the one that was not used for longest goes for another.
const MOST_GRAMS: usize = 1024;
/// One that was not used for so long goes too.
const IDLE: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(60);
/// Callers of datagrams that are remembered.
const CALLERS: usize = 1024;
const BACKLOG: u16 = 4096;
/// Callers that wait for a program to listen, as many as a listening socket of the host has room for.
const MOST_CALLS: usize = 128;
/// How soon it is looked for then, at first and in the end.
const SOON: smoltcp::time::Duration = smoltcp::time::Duration::from_millis(5);
const LATE: smoltcp::time::Duration = smoltcp::time::Duration::from_millis(320);
/// Port of questions about names.
const NAMES: u16 = 53;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Ends {
    own: SocketAddr,
    far: SocketAddr,
}

/// How far one is.
enum Flow {
    /// The service has been asked; the packet that opens it waits.
    Asked(Vec<u8>),
    Lives(Box<Connection>, Option<Instant>),
    /// Somebody has called at a port where nobody listens yet; asked again then, and after twice as long.
    Calls {
        number: u32,
        again: Instant,
        after: smoltcp::time::Duration,
    },
}

/// Who has a socket of the channel.
#[derive(Clone, Copy, Debug)]
enum SocketOwner {
    Flow(Ends),
    Grams(DatagramUse),
}

pub(super) struct Stack {
    channel: Channel,
    tunnel: Tunnel,
    addresses: Addresses,
    begun: std::time::Instant,
    flows: HashMap<Ends, Flow>,
    timers: BTreeSet<(Instant, Ends)>,
    grams: HashMap<DatagramUse, Grams>,
    /// Who has called at a port that only that one has, and so is answered by it.
    callers: HashSet<(SocketAddr, u16)>,
    whose: HashMap<u32, SocketOwner>,
    /// Datagram sockets that may have more, for the next look.
    later: Vec<DatagramUse>,
    room: Vec<u8>,
}

impl Stack {
    pub fn new(channel: Channel, tunnel: Tunnel, addresses: Addresses) -> Self {
        Self {
            channel,
            tunnel,
            addresses,
            begun: std::time::Instant::now(),
            flows: HashMap::new(),
            timers: BTreeSet::new(),
            grams: HashMap::new(),
            callers: HashSet::new(),
            whose: HashMap::new(),
            later: Vec::new(),
            room: Tunnel::room(),
        }
    }

    fn now(&self) -> Instant {
        let micros = i64::try_from(self.begun.elapsed().as_micros()).unwrap_or(i64::MAX);
        Instant::from_micros(micros)
    }

    /// Does all there is to do. How long it may be left alone; none: until something comes.
    ///
    /// # Errors
    /// The device is gone.
    pub fn turn(&mut self) -> Result<Option<Duration>, Errno> {
        loop {
            for place in std::mem::take(&mut self.later) {
                self.deliver(place);
            }
            let news = self.channel.hear();
            self.heed(news);
            let more = self.take_packets()? || !self.later.is_empty();
            self.look_at_timers();
            // In this order: what comes after the last look is told.
            if !more && !self.channel.sleep() {
                break;
            }
        }
        let now = self.now();
        let timer = self.timers.first().map(|(at, _)| *at);
        let idle =
            self.grams.iter().filter(|(p, _)| **p != DatagramUse::EVERY).map(|(_, g)| g.used + IDLE).min();
        let next = [timer, idle].into_iter().flatten().min();
        Ok(next.map(|at| if at > now { (at - now).into() } else { Duration::ZERO }))
    }

    fn heed(&mut self, news: ServiceNews) {
        if news.anew {
            self.begin();
        }
        for (number, error) in news.connected {
            self.connected(number, error);
        }
        for (number, error) in news.refused {
            self.tell(number, error);
        }
        for (number, far, port) in news.accepted {
            self.accepted(number, far, port);
        }
        for number in news.marked {
            match self.whose.get(&number) {
                Some(SocketOwner::Flow(ends)) => self.turn_of(*ends, None),
                Some(SocketOwner::Grams(place)) => self.deliver(*place),
                None => {}
            }
        }
    }

    /// The service is another one: connections end, and it is told what the domain listens at, which is everything.
    fn begin(&mut self) {
        let now = self.now();
        for flow in self.flows.values_mut() {
            if let Flow::Lives(connection, _) = flow {
                connection.cut(&self.tunnel, now);
            }
        }
        self.flows.clear();
        self.timers.clear();
        self.grams.clear();
        self.callers.clear();
        self.whose.clear();
        if let Some(socket) = self.channel.number() {
            let at = End { ip: [0; 16], port: 0 };
            self.channel.ask(Pending::Other, Request::Listen { socket, at, backlog: BACKLOG });
        }
        self.grams_at(DatagramUse::EVERY);
    }

    fn own_address(&self, far: SocketAddr) -> IpAddr {
        self.addresses.towards(far.ip())
    }

    /// The service has made a connection, or not.
    fn connected(&mut self, number: u32, error: u16) {
        let Some(SocketOwner::Flow(ends)) = self.whose.get(&number).copied() else { return };
        let Some(Flow::Asked(first)) = self.flows.remove(&ends) else { return };
        if error != 0 {
            self.whose.remove(&number);
            self.channel.give_back(number);
            packet::refuse(&self.tunnel, &first, Errno::from_raw_os_error(error.into()));
            return;
        }
        match Connection::opened(number, ends.far, &self.tunnel, self.now()) {
            Some(connection) => self.enter(ends, connection, Some(&first)),
            None => self.close(number, true),
        }
    }

    /// Somebody has called.
    fn accepted(&mut self, number: u32, far: SocketAddr, port: u16) {
        let far = packet::seen(far);
        let ends = Ends { own: SocketAddr::new(self.own_address(far), port), far };
        if self.flows.contains_key(&ends) || !packet::is_somebodys(far) {
            return self.close(number, true);
        }
        self.whose.insert(number, SocketOwner::Flow(ends));
        self.call(number, ends, SOON);
    }

    /// Calls a program in the caller's place. If nobody listens it is done again after a while.
    fn call(&mut self, number: u32, ends: Ends, after: smoltcp::time::Duration) {
        match Connection::called(number, ends.far, ends.own, after, &self.tunnel, self.now()) {
            Some(connection) => self.enter(ends, connection, None),
            None => self.close(number, true),
        }
    }

    /// Nobody listens where somebody has called. Callers from outside wait, as they would in the host's backlog; other domains
    /// are refused.
    fn unheard(&mut self, number: u32, ends: Ends, after: smoltcp::time::Duration) {
        let waiting = self.flows.values().filter(|f| matches!(f, Flow::Calls { .. })).count();
        if packet::is_domains(ends.far, &self.addresses) || waiting >= MOST_CALLS {
            return self.close(number, true);
        }
        let again = self.now() + after;
        self.flows.insert(ends, Flow::Calls { number, again, after: (after * 2).min(LATE) });
        self.timers.insert((again, ends));
    }

    /// A caller's turn who waits.
    fn call_again(&mut self, ends: Ends) {
        let Some(Flow::Calls { number, again, after }) = self.flows.get(&ends) else { return };
        let (number, due, after) = (*number, *again <= self.now(), *after);
        if self.channel.take_error(number) != 0 {
            self.forget(ends);
            self.close(number, true);
        } else if due {
            self.forget(ends);
            self.call(number, ends, after);
        }
    }

    fn forget(&mut self, ends: Ends) {
        if let Some(Flow::Lives(_, Some(at)) | Flow::Calls { again: at, .. }) = self.flows.remove(&ends) {
            self.timers.remove(&(at, ends));
        }
    }

    fn enter(&mut self, ends: Ends, connection: Connection, first: Option<&[u8]>) {
        // Packets have waited for more where they were wanted to; the host's own socket need not.
        let (socket, option) = (connection.number(), SocketOption::NoDelay);
        self.channel.ask(Pending::Other, Request::Set { socket, option, value: 1 });
        self.flows.insert(ends, Flow::Lives(Box::new(connection), None));
        self.turn_of(ends, first);
    }

    fn close(&mut self, number: u32, reset: bool) {
        self.whose.remove(&number);
        self.channel.ask(Pending::Close(number), Request::Close { socket: number, reset });
    }

    /// A connection's turn, with a packet that came for it.
    fn turn_of(&mut self, ends: Ends, bytes: Option<&[u8]>) {
        let now = self.now();
        let (connection, timer) = match self.flows.get_mut(&ends) {
            Some(Flow::Lives(connection, timer)) => (connection, timer),
            Some(Flow::Calls { .. }) => return self.call_again(ends),
            _ => return,
        };
        if let Some(at) = timer.take() {
            self.timers.remove(&(at, ends));
        }
        let turn = connection.turn(&self.channel, &self.tunnel, bytes, now);
        let (socket, calls) = (connection.number(), connection.calls());
        if connection.taken() && calls.is_some() {
            self.channel.ask(Pending::Other, Request::Take { socket });
        }
        match turn {
            Turn::Until(next) => {
                *timer = next;
                self.timers.extend(next.map(|at| (at, ends)));
            }
            Turn::Over { reset } => {
                self.flows.remove(&ends);
                self.close(socket, reset);
            }
            Turn::Refused => {
                self.flows.remove(&ends);
                match calls {
                    Some(after) => self.unheard(socket, ends, after),
                    None => self.close(socket, true),
                }
            }
        }
    }

    fn look_at_timers(&mut self) {
        let now = self.now();
        // Each once: one may want another turn at once, which is the next look's.
        let due: Vec<Ends> = self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, e)| *e).collect();
        for ends in due {
            self.turn_of(ends, None);
        }
        let idle =
            |(p, g): (&DatagramUse, &Grams)| (*p != DatagramUse::EVERY && g.used + IDLE <= now).then_some(*p);
        let idle: Vec<DatagramUse> = self.grams.iter().filter_map(idle).collect();
        for place in idle {
            self.forget_grams(place);
        }
    }

    /// Takes packets of the domain's kernel; whether there may be more.
    fn take_packets(&mut self) -> Result<bool, Errno> {
        if !self.channel.is_there() {
            return Ok(false);
        }
        let mut room = std::mem::take(&mut self.room);
        let mut taken = 0;
        let result = loop {
            match self.tunnel.receive(&mut room) {
                Ok(Some(bytes)) => self.sent(bytes),
                Ok(None) => break Ok(false),
                Err(error) => break Err(error),
            }
            taken += 1;
            if taken == PACKETS {
                break Ok(true);
            }
        };
        self.room = room;
        result
    }

    /// The domain's kernel has sent a packet.
    fn sent(&mut self, bytes: &[u8]) {
        let Some(Packet { from, to, what }) = packet::read(bytes) else { return };
        // Only from its own address, and to somebody else's.
        if !self.addresses.has(from.ip()) || self.addresses.has(to.ip()) || !packet::is_somebody(to.ip()) {
            return;
        }
        if let What::Echo(request) = what {
            return self.sent_echo(from.port(), to, request);
        }
        if to.port() == 0 || from.port() == 0 {
            return;
        }
        match what {
            What::Echo(_) => {}
            What::Datagram(data) => self.sent_datagram(from.port(), to, data),
            What::Segment(segment) => {
                let ends = Ends { own: from, far: to };
                match self.flows.get(&ends) {
                    Some(Flow::Lives(..)) => self.turn_of(ends, Some(bytes)),
                    // It is being made; the first packet is sent again meanwhile. Or a caller waits.
                    Some(Flow::Asked(..) | Flow::Calls { .. }) => {}
                    None if segment.syn => self.open(ends, bytes),
                    None if segment.reset => {}
                    None => packet::reset(&self.tunnel, from, to, segment),
                }
            }
        }
    }

    fn open(&mut self, ends: Ends, first: &[u8]) {
        let Some(socket) = self.channel.number() else {
            return packet::refuse(&self.tunnel, first, Errno::CONNREFUSED);
        };
        self.whose.insert(socket, SocketOwner::Flow(ends));
        self.flows.insert(ends, Flow::Asked(first.to_vec()));
        let request = Request::Connect { socket, from: end(ends.own), to: end(ends.far) };
        self.channel.ask(Pending::Connect(socket), request);
    }

    fn sent_datagram(&mut self, port: u16, to: SocketAddr, data: &[u8]) {
        let now = self.now();
        let by = if self.callers.contains(&(to, port)) {
            DatagramUse::EVERY
        } else {
            // Who asks for names wants to know at once that nobody answers.
            DatagramUse { port, peer: (to.port() == NAMES).then_some(to), echo: false }
        };
        if self.grams_at(by)
            && let Some(grams) = self.grams.get_mut(&by)
        {
            grams.used = now;
            grams.send(&self.channel, port, to, data);
        }
    }

    fn sent_echo(&mut self, id: u16, to: SocketAddr, request: &[u8]) {
        let now = self.now();
        let by = DatagramUse { port: id, peer: None, echo: true };
        if self.grams_at(by)
            && let Some(grams) = self.grams.get_mut(&by)
        {
            grams.used = now;
            grams.asked = request.first_chunk().map(|head| (to.ip(), *head));
            grams.send(&self.channel, id, to, request);
        }
    }

    /// Sees to a datagram socket at a port; false if there cannot be one.
    fn grams_at(&mut self, place: DatagramUse) -> bool {
        if self.grams.contains_key(&place) {
            return true;
        }
        if self.grams.len() >= MOST_GRAMS {
            let oldest =
                self.grams.iter().filter(|(p, _)| **p != DatagramUse::EVERY).min_by_key(|(_, g)| g.used);
            if let Some(oldest) = oldest.map(|(place, _)| *place) {
                self.forget_grams(oldest);
            }
        }
        let now = self.now();
        let Some(grams) = Grams::new(&mut self.channel, place, now) else { return false };
        self.whose.insert(grams.number(), SocketOwner::Grams(place));
        self.grams.insert(place, grams);
        true
    }

    fn forget_grams(&mut self, place: DatagramUse) {
        if let Some(grams) = self.grams.remove(&place) {
            self.whose.remove(&grams.number());
            grams.close(&mut self.channel);
        }
    }

    /// Tells the domain's kernel that a datagram socket's peer cannot be reached.
    fn tell(&mut self, number: u32, error: u16) {
        let Some(SocketOwner::Grams(place)) = self.whose.get(&number).copied() else { return };
        if let Some((far, request)) = self.grams.get_mut(&place).and_then(|g| g.asked.take()) {
            let own = self.own_address(SocketAddr::new(far, 0));
            packet::unasked(&self.tunnel, own, far, &request, Errno::from_raw_os_error(error.into()));
        }
        if let Some(far) = place.peer {
            let own = SocketAddr::new(self.own_address(far), place.port);
            packet::undelivered(&self.tunnel, own, far, Errno::from_raw_os_error(error.into()));
            self.forget_grams(place);
        }
    }

    /// Gives the domain's kernel the datagrams that came.
    fn deliver(&mut self, place: DatagramUse) {
        let now = self.now();
        for _ in 0..DATAGRAMS {
            let Some(grams) = self.grams.get_mut(&place) else { return };
            let error = self.channel.take_error(grams.number());
            if error != 0 {
                let number = grams.number();
                self.tell(number, error);
                return;
            }
            let Some((from, at, data)) = grams.next(&self.channel) else { return };
            grams.used = now;
            if place.echo {
                packet::echo(&self.tunnel, from.ip(), self.own_address(from), &data);
                continue;
            }
            let own = if place == DatagramUse::EVERY { at } else { place.port };
            if place == DatagramUse::EVERY {
                if self.callers.len() >= CALLERS {
                    self.callers.clear();
                }
                self.callers.insert((from, own));
            }
            if own != 0 && packet::is_somebodys(from) {
                let to = SocketAddr::new(self.own_address(from), own);
                packet::datagram(&self.tunnel, from, to, &data);
            }
        }
        // There may be more, and nobody will tell.
        self.later.push(place);
    }
}
