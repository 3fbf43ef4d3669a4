//! The port table of one transport protocol: who is bound where, and who gets what arrives.
//!
//! Key types: [`Scope`] (the local addresses a binding covers), [`PortTable`]. IPv4 addresses are kept in
//! their v4-mapped form, so one table serves both families.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// An address in 16 bytes; IPv4 as `::ffff:a.b.c.d`.
pub type Ip = [u8; 16];

/// Ports looked at for one at which not even ends of connections wait.
const MOST_TRIES: u32 = 64;
/// First port chosen for sockets that do not care (`net.ipv4.ip_local_port_range`).
pub const EPHEMERAL_FIRST: u16 = 32768;
/// Last of them.
pub const EPHEMERAL_LAST: u16 = 60999;

/// The v4-mapped form of an IPv4 address.
pub const fn mapped(v4: [u8; 4]) -> Ip {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, v4[0], v4[1], v4[2], v4[3]]
}

/// The IPv4 address in a v4-mapped one.
pub fn unmapped(ip: &Ip) -> Option<[u8; 4]> {
    (ip[..10] == [0; 10] && ip[10] == 0xff && ip[11] == 0xff).then(|| [ip[12], ip[13], ip[14], ip[15]])
}

/// `::`
pub const ANY6: Ip = [0; 16];
/// `0.0.0.0`
pub const ANY4: Ip = mapped([0; 4]);
/// `::1`
pub const LOOPBACK6: Ip = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// `127.0.0.1`
pub const LOOPBACK4: Ip = mapped([127, 0, 0, 1]);

/// Local addresses a binding covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `::` of a socket that takes IPv4 too.
    All,
    /// `::` with IPV6_V6ONLY.
    V6,
    /// `0.0.0.0`
    V4,
    /// One address.
    One(Ip),
}

impl Scope {
    /// Of a bound address.
    pub fn new(ip: Ip, v6only: bool) -> Self {
        match ip {
            ANY4 => Self::V4,
            ANY6 if v6only => Self::V6,
            ANY6 => Self::All,
            ip => Self::One(ip),
        }
    }

    /// How well it fits an address: more is better, `None` not at all.
    pub fn fits(&self, ip: &Ip) -> Option<u32> {
        let v4 = unmapped(ip).is_some();
        match self {
            Self::One(a) => (a == ip).then_some(4),
            Self::V4 => v4.then_some(2),
            Self::V6 => (!v4).then_some(2),
            Self::All => Some(1),
        }
    }

    /// Whether some address is in both.
    pub fn overlaps(&self, o: &Self) -> bool {
        match (self, o) {
            (Self::All, _) | (_, Self::All) => true,
            (Self::V4, Self::V6) | (Self::V6, Self::V4) => false,
            (Self::One(a), b) | (b, Self::One(a)) => b.fits(a).is_some(),
            _ => true,
        }
    }
}

/// One bound socket.
#[derive(Clone, Debug)]
pub struct Binding<T> {
    /// Identifies it.
    pub id: u64,
    /// Addresses it covers.
    pub scope: Scope,
    /// SO_REUSEADDR
    pub reuse_addr: bool,
    /// SO_REUSEPORT with the owner's user id.
    pub reuse_port: Option<u32>,
    /// A TCP listener: takes connections, and SO_REUSEADDR does not share with it.
    pub listening: bool,
    /// The socket.
    pub what: T,
}

impl<T> Binding<T> {
    fn conflicts(&self, o: &Self) -> bool {
        let by_addr = self.reuse_addr && o.reuse_addr && !o.listening && !self.listening;
        let by_port = self.reuse_port.is_some() && self.reuse_port == o.reuse_port;
        self.id != o.id && self.scope.overlaps(&o.scope) && !by_addr && !by_port
    }
}

/// An end of a connection that is over: it keeps its address in use until the last packets cannot come any more.
///
/// Many of them at one address that are shared alike are kept as one: the youngest.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Of whom it was.
    pub id: u64,
    /// The address.
    pub local: Ip,
    /// Where the other end was.
    pub remote: (Ip, u16),
    /// SO_REUSEADDR
    pub reuse_addr: bool,
    /// SO_REUSEPORT
    pub reuse_port: bool,
    /// The other end has not finished yet (FIN_WAIT_2).
    pub half: bool,
    /// When it is over, on the clock of those who ask.
    pub until: u64,
    /// How many there were.
    pub count: u32,
}

impl Waiting {
    fn like(&self, o: &Self) -> bool {
        (self.local, self.reuse_addr, self.reuse_port) == (o.local, o.reuse_addr, o.reuse_port)
    }

    fn conflicts<T>(&self, b: &Binding<T>) -> bool {
        let by_addr = self.reuse_addr && b.reuse_addr && !b.listening;
        let by_port = self.reuse_port && b.reuse_port.is_some();
        b.scope.fits(&self.local).is_some() && !by_addr && !by_port
    }
}

/// EADDRINUSE
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse;

/// Who uses one port.
#[derive(Debug)]
struct Port<T> {
    /// Those that take what arrives.
    bound: Vec<Binding<T>>,
    /// Accepted connections, which only keep the port in use: there may be many.
    connections: BTreeMap<u64, Binding<T>>,
    /// Ends of connections that are over.
    waiting: Vec<Waiting>,
}

impl<T> Default for Port<T> {
    fn default() -> Self {
        Self { bound: Vec::new(), connections: BTreeMap::new(), waiting: Vec::new() }
    }
}

impl<T> Port<T> {
    /// Whether no socket uses it.
    fn is_unused(&self) -> bool {
        self.bound.is_empty() && self.connections.is_empty()
    }
}

/// All bindings by port.
#[derive(Debug)]
pub struct PortTable<T> {
    ports: BTreeMap<u16, Port<T>>,
}

impl<T> Default for PortTable<T> {
    fn default() -> Self {
        Self { ports: BTreeMap::new() }
    }
}

impl<T> PortTable<T> {
    /// Binds a port, at this time.
    pub fn bind(&mut self, port: u16, now: u64, b: Binding<T>) -> Result<(), InUse> {
        let p = self.ports.entry(port).or_default();
        p.waiting.retain(|w| w.until > now);
        let taken = p.bound.iter().chain(p.connections.values()).any(|o| b.conflicts(o));
        if taken || p.waiting.iter().any(|w| w.conflicts(&b)) {
            return Err(InUse);
        }
        p.bound.push(b);
        Ok(())
    }

    /// Adds an accepted connection, which shares its port with whoever is there.
    pub fn share(&mut self, port: u16, b: Binding<T>) {
        self.ports.entry(port).or_default().connections.insert(b.id, b);
    }

    /// Keeps an address in use after the end of a connection.
    pub fn wait(&mut self, port: u16, mut w: Waiting) {
        let list = &mut self.ports.entry(port).or_default().waiting;
        match list.iter_mut().find(|o| o.id == w.id || o.like(&w)) {
            Some(o) => {
                w.count = o.count.saturating_add(u32::from(o.id != w.id));
                w.until = w.until.max(o.until);
                *o = w;
            }
            None => list.push(w),
        }
    }

    /// The other end was reset: the address of who waited for its end is free.
    pub fn wait_no_more(&mut self, port: u16, id: u64) {
        if let Some(p) = self.ports.get_mut(&port) {
            p.waiting.retain(|w| w.id != id || w.count > 1);
            if p.is_unused() && p.waiting.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// All ends of connections that are over and still keep their address, with their ports.
    pub fn waiting(&self, now: u64) -> impl Iterator<Item = (u16, &Waiting)> {
        let all = self.ports.iter().flat_map(|(n, p)| p.waiting.iter().map(move |w| (*n, w)));
        all.filter(move |(_, w)| w.until > now)
    }

    /// Binds a free port of a range, looking from a random one on. For who connects one at
    /// which only ends of connections wait will do, after a short look for a better one.
    pub fn bind_any(
        &mut self,
        random: u32,
        (first, last): (u16, u16),
        now: u64,
        connects: bool,
        b: Binding<T>,
    ) -> Result<u16, InUse> {
        let n = u32::from(last.saturating_sub(first)) + 1;
        let start = random % n;
        let most = MOST_TRIES.min(n - 1);
        for i in 0..n {
            let port = first + ((start + i) % n) as u16;
            // A port nobody uses at all: even sharing would confuse whoever asked for "any".
            let free = self.ports.get_mut(&port).is_none_or(|p| {
                p.waiting.retain(|w| w.until > now);
                p.is_unused() && (p.waiting.is_empty() || connects && i >= most)
            });
            if free {
                self.ports.entry(port).or_default().bound.push(b);
                return Ok(port);
            }
        }
        Err(InUse)
    }

    /// Gives a port up.
    pub fn unbind(&mut self, port: u16, id: u64) {
        if let Some(p) = self.ports.get_mut(&port) {
            if p.connections.remove(&id).is_none() {
                p.bound.retain(|b| b.id != id);
            }
            if p.is_unused() && p.waiting.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// Makes a binding a listener; InUse if another listener is in the way.
    pub fn listen(&mut self, port: u16, id: u64) -> Result<(), InUse> {
        let Some(list) = self.ports.get_mut(&port).map(|p| &mut p.bound) else { return Err(InUse) };
        let Some(i) = list.iter().position(|b| b.id == id) else { return Err(InUse) };
        let mine = &list[i];
        let clash = list.iter().any(|o| {
            o.id != id
                && o.listening
                && mine.scope.overlaps(&o.scope)
                && !(mine.reuse_port.is_some() && mine.reuse_port == o.reuse_port)
        });
        if clash {
            return Err(InUse);
        }
        list[i].listening = true;
        Ok(())
    }

    /// Changes the options of a binding.
    pub fn update(&mut self, port: u16, id: u64, change: impl FnOnce(&mut Binding<T>)) {
        let bound = self.ports.get_mut(&port).map(|p| &mut p.bound);
        if let Some(b) = bound.and_then(|l| l.iter_mut().find(|b| b.id == id)) {
            change(b);
        }
    }

    /// The binding that fits best: by address, then by the bonus `rank` gives (`None` excludes); among equals
    /// that share by SO_REUSEPORT the `pick`th.
    pub fn find(
        &self,
        port: u16,
        ip: &Ip,
        pick: usize,
        rank: impl Fn(&Binding<T>) -> Option<u32>,
    ) -> Option<&Binding<T>> {
        let list = &self.ports.get(&port)?.bound;
        let score = |b: &Binding<T>| Some(b.scope.fits(ip)? + rank(b)?);
        let best = list.iter().filter_map(score).max()?;
        let mut equals = list.iter().filter(|b| score(b) == Some(best));
        let n = equals.clone().count();
        let first = equals.clone().next()?;
        if first.reuse_port.is_some() { equals.nth(pick % n) } else { equals.next_back() }
    }

    /// The bindings of one port that take what arrives.
    pub fn at(&self, port: u16) -> impl Iterator<Item = &Binding<T>> {
        self.ports.get(&port).into_iter().flat_map(|p| p.bound.iter())
    }

    /// All bindings with their ports, accepted connections included.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &Binding<T>)> {
        self.ports
            .iter()
            .flat_map(|(n, p)| p.bound.iter().chain(p.connections.values()).map(move |b| (*n, b)))
    }
}

#[cfg(test)]
mod tests;
