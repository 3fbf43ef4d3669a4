//! The port table of one transport protocol: who is bound where, and who gets what arrives.
//!
//! Key types: [`Scope`] (the local addresses a binding covers), [`PortTable`]. IPv4 addresses are kept in
//! their v4-mapped form, so one table serves both families.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// An address in 16 bytes; IPv4 as `::ffff:a.b.c.d`.
pub type Ip = [u8; 16];

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
}

impl<T> Default for Port<T> {
    fn default() -> Self {
        Self { bound: Vec::new(), connections: BTreeMap::new() }
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
    /// Binds a port.
    pub fn bind(&mut self, port: u16, b: Binding<T>) -> Result<(), InUse> {
        let p = self.ports.entry(port).or_default();
        if p.bound.iter().chain(p.connections.values()).any(|o| b.conflicts(o)) {
            return Err(InUse);
        }
        p.bound.push(b);
        Ok(())
    }

    /// Adds an accepted connection, which shares its port with whoever is there.
    pub fn share(&mut self, port: u16, b: Binding<T>) {
        self.ports.entry(port).or_default().connections.insert(b.id, b);
    }

    /// Binds a free port of a range, looking from a random one on.
    pub fn bind_any(&mut self, random: u32, (first, last): (u16, u16), b: Binding<T>) -> Result<u16, InUse> {
        let n = u32::from(last.saturating_sub(first)) + 1;
        let start = random % n;
        for i in 0..n {
            let port = first + ((start + i) % n) as u16;
            // A port nobody uses at all: even sharing would confuse whoever asked for "any".
            if !self.ports.contains_key(&port) {
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
            if p.bound.is_empty() && p.connections.is_empty() {
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
