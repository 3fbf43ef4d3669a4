//! One domain's rules at work: what was decided of a flow, how often, and who is told of it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use doppel_abi_service::net::address::{HOST4, HOST6};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};

use crate::channel::bucket::Bucket;
use crate::channel::client::Settings;
use crate::flow::route::Route;
use crate::names::resolved::Names;
use crate::rules::locals::Known;
use crate::rules::{
    Action, Direction, Pattern, Protocol, Rule, Rules, covers, is_private, stands_for, touches,
};

/// Lines of the log a second, of one domain.
const LINES: u32 = 10;

/// A line of the log, as the service domain writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Whose.
    pub key: u64,
    /// Which way.
    pub direction: Direction,
    /// Of which protocol.
    pub protocol: Protocol,
    /// The other end; outbound with the port the domain wanted.
    pub peer: SocketAddr,
    /// Inbound: the domain's port.
    pub port: u16,
    /// Whether it went through.
    pub allowed: bool,
    /// So many lines before this one were left out.
    pub missed: u64,
}

/// Where lines go.
#[derive(Clone, Debug)]
pub struct Log {
    /// A socket of packets, a [`Line`] as JSON each. Who does not read them misses some.
    pub to: Arc<OwnedFd>,
    /// The domain's key.
    pub key: u64,
}

/// What is known of a flow when a rule is looked for.
#[derive(Clone, Copy, Debug)]
struct Case {
    direction: Direction,
    protocol: Protocol,
    peer: SocketAddr,
    /// The address of the host, if the peer is another one of it.
    host: Option<IpAddr>,
    /// The port that is called.
    port: u16,
    /// Rules that name no address do not open it: it is private.
    guarded: bool,
    /// Such rules do not close it either: it is the name server.
    exempt: bool,
    /// What is done if no rule fits.
    otherwise: Action,
    /// Whatever rules say, it is denied: it is outside, and the domain's networks are internal.
    closed: bool,
}

/// A flow that was let through, so that it can be judged again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The domain called this address.
    Out(SocketAddr),
    /// This address called that port of the domain.
    In(SocketAddr, u16),
}

impl Flow {
    /// The address of the domain at the other end, if that is one.
    pub fn domain(self, settings: &Settings) -> Option<IpAddr> {
        let (Self::Out(peer) | Self::In(peer, _)) = self;
        settings.is_domain(peer.ip()).then(|| peer.ip())
    }
}

/// A domain's rules, and what they have to remember.
#[derive(Debug)]
pub(crate) struct Policy {
    rules: Rules,
    names: Names,
    /// Addresses of the host itself.
    locals: Arc<Known>,
    /// Nothing leads outside.
    closed: bool,
    /// By direction and number of the rule.
    rates: HashMap<(Direction, usize), Bucket>,
    log: Option<Log>,
    lines: Bucket,
    missed: u64,
}

impl Policy {
    pub fn new(rules: Rules, log: Option<Log>, locals: Arc<Known>) -> Self {
        let lines = Bucket::new(LINES, Instant::now());
        let (names, rates, closed) = (Names::default(), HashMap::new(), false);
        Self { rules, names, locals, closed, rates, log, lines, missed: 0 }
    }

    /// Whether the domain is closed to the outside from now on.
    pub fn close(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// Whether it is, so that nobody gets in from there.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Other rules from now on. What names mean is still known.
    pub fn set(&mut self, rules: Rules) {
        self.rules = rules;
        self.rates.clear();
    }

    /// A name server's answer to the domain.
    pub fn heard_names(&mut self, message: &[u8]) {
        if self.rules.outbound.iter().any(|r| r.pattern.name.is_some()) {
            self.names.learn(message, Instant::now());
        }
    }

    /// Whether the domain may send this way; `new`: a flow begins with it.
    pub fn send(&mut self, way: Route, to: SocketAddr, protocol: Protocol, new: bool) -> Result<(), Errno> {
        let case = self.outbound(way, to, protocol);
        if self.decide(case, new) { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Whether `from` may send to the domain's port.
    pub fn receive(&mut self, from: SocketAddr, port: u16, protocol: Protocol, new: bool) -> bool {
        self.decide(inbound(from, port, protocol), new)
    }

    /// Whether a flow may go on.
    pub fn keeps(&self, settings: &Settings, flow: Flow, protocol: Protocol) -> bool {
        let case = match flow {
            Flow::Out(to) => self.outbound(settings.route(to), to, protocol),
            Flow::In(from, port) => {
                let closed = self.closed && flow.domain(settings).is_none();
                Case { closed, ..inbound(from, port, protocol) }
            }
        };
        self.judge(case).0 == Action::Allow
    }

    fn outbound(&self, way: Route, to: SocketAddr, protocol: Protocol) -> Case {
        let (guarded, exempt, otherwise) = match way {
            Route::Names(_) => (false, true, Action::Allow),
            Route::Domain => (true, false, Action::Allow),
            // The host's own addresses are as private as its loopback: what is sent there does not leave it.
            Route::Host(real)
                if is_private(to.ip())
                    || is_private(real.ip())
                    || stands_for(to.ip()).any(|ip| self.locals.has(ip)) =>
            {
                (true, false, Action::Deny)
            }
            Route::Host(_) => (false, false, Action::Allow),
        };
        let (direction, port) = (Direction::Out, to.port());
        // Names of domains are told over UDP, and no others are asked for (`Settings::route`).
        let outside = match way {
            Route::Host(_) => true,
            Route::Names(_) => protocol == Protocol::Tcp,
            Route::Domain => false,
        };
        let closed = self.closed && outside;
        // The gateway of a subnet is the host, which rules know by another address: both are meant.
        let host = match way {
            Route::Host(real) if real.ip() != to.ip() => {
                Some(if to.is_ipv4() { HOST4.into() } else { HOST6.into() })
            }
            _ => None,
        };
        Case { direction, protocol, peer: to, host, port, guarded, exempt, otherwise, closed }
    }

    /// What the first rule that fits says, and which it is.
    fn judge(&self, case: Case) -> (Action, Option<usize>) {
        if case.closed {
            return (Action::Deny, None);
        }
        let rules = self.rules.of(case.direction);
        let found = rules.iter().position(|rule| self.fits(rule, case));
        (found.map_or(case.otherwise, |i| rules[i].action), found)
    }

    fn fits(&self, rule: &Rule, case: Case) -> bool {
        let Pattern { network, name, ports, protocol } = &rule.pattern;
        let ip = case.peer.ip();
        let ips = [Some(ip), case.host];
        let opens = !(case.guarded && rule.action == Action::Allow);
        protocol.is_none_or(|p| p == case.protocol)
            && ports.contains(&case.port)
            && match (network, name) {
                (Some((network, bits)), _) => ips.into_iter().flatten().any(|ip| {
                    let is = if rule.action == Action::Deny { touches } else { covers };
                    is(*network, *bits, ip)
                }),
                // Whoever owns a name can have it mean any address.
                (None, Some(name)) => opens && self.names.has(ip, name, Instant::now()),
                (None, None) => opens && !case.exempt,
            }
    }

    fn decide(&mut self, case: Case, new: bool) -> bool {
        let (action, found) = self.judge(case);
        let mut allowed = action == Action::Allow;
        let Some(i) = found else { return allowed };
        let rule = &self.rules.of(case.direction)[i];
        let (rate, log) = (rule.rate, rule.log);
        if allowed
            && new
            && let Some(rate) = rate
        {
            let now = Instant::now();
            let bucket = self.rates.entry((case.direction, i)).or_insert_with(|| Bucket::new(rate, now));
            allowed = bucket.take(now);
        }
        if log && (new || !allowed) {
            self.write(case, allowed);
        }
        allowed
    }

    fn write(&mut self, case: Case, allowed: bool) {
        let Some(log) = &self.log else { return };
        let Case { direction, protocol, peer, port, .. } = case;
        let line = Line { key: log.key, direction, protocol, peer, port, allowed, missed: self.missed };
        let sent = self.lines.take(Instant::now())
            && serde_json::to_vec(&line).is_ok_and(|bytes| {
                rustix::net::send(&log.to, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
            });
        self.missed = if sent { 0 } else { self.missed.saturating_add(1) };
    }
}

/// The next line that waits at the reader's end of a log, if one does.
#[must_use]
pub fn read_log(log: BorrowedFd<'_>) -> Option<Line> {
    let mut bytes = [0; 512];
    loop {
        let (n, _) = rustix::net::recv(log, &mut bytes, RecvFlags::DONTWAIT).ok()?;
        // A service domain gone mad may write anything.
        match serde_json::from_slice(&bytes[..n]) {
            Ok(line) => return Some(line),
            Err(_) if n > 0 => {}
            Err(_) => return None,
        }
    }
}

fn inbound(from: SocketAddr, port: u16, protocol: Protocol) -> Case {
    let peer = SocketAddr::new(from.ip().to_canonical(), from.port());
    let (direction, otherwise) = (Direction::In, Action::Allow);
    Case {
        direction,
        protocol,
        peer,
        host: None,
        port,
        guarded: false,
        exempt: false,
        otherwise,
        closed: false,
    }
}

#[cfg(test)]
mod tests;
