//! The domain's interfaces and routes: `lo`, and `eth0` towards its virtual network if it has one.
//!
//! Whoever shows them (netlink, ioctls, /proc/net, /sys/class/net) asks here, each time anew: a clone has other
//! addresses than what it was made from.

use alloc::vec::Vec;

use doppel_algo::net::ports::unmapped;
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6};
use doppel_machine::network;

use super::own::{self, OwnAddress};

const IFF_UP: u32 = 1;
const IFF_BROADCAST: u32 = 2;
const IFF_LOOPBACK: u32 = 8;
const IFF_RUNNING: u32 = 0x40;
const IFF_MULTICAST: u32 = 0x1000;
/// Told by netlink only: ioctls have 16 bits.
pub const IFF_LOWER_UP: u32 = 0x1_0000;

/// Who can use an address or a route (`RT_SCOPE_*`).
pub mod scope {
    /// Everybody.
    pub const UNIVERSE: u8 = 0;
    /// Those on the link.
    pub const LINK: u8 = 253;
    /// This domain.
    pub const HOST: u8 = 254;
}

/// Where a route is looked up (`RT_TABLE_*`).
pub mod table {
    /// What `ip route` shows.
    pub const MAIN: u8 = 254;
    /// The domain's own addresses.
    pub const LOCAL: u8 = 255;
}

/// An interface.
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: &'static str,
    /// ARPHRD_*
    pub hardware: u16,
    /// IFF_*, as ioctls show them.
    pub flags: u32,
    /// Longest packet.
    pub mtu: u32,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Hardware address of all.
    pub all: [u8; 6],
    /// IF_OPER_*, and as text.
    pub state: (u8, &'static str),
    /// Its IPv4 addresses, with the network's bits: one at least, the first before others.
    pub ip4: Vec<([u8; 4], u8)>,
    /// Its IPv6 addresses likewise.
    pub ip6: Vec<([u8; 16], u8)>,
    /// Through whom what is not beside it goes.
    pub gateway: Option<([u8; 4], [u8; 16])>,
    /// Who can reach these.
    pub scope: u8,
}

/// Packets that may wait to be sent; nothing does.
pub const QUEUE: u32 = 1000;

impl Interface {
    /// Its first IPv4 address, with the network's bits.
    pub fn first4(&self) -> ([u8; 4], u8) {
        self.ip4.first().copied().unwrap_or_default()
    }

    /// The first network's mask.
    pub fn mask(&self) -> [u8; 4] {
        mask(self.first4().1)
    }

    /// The address of all in the network of this one, if there is one.
    pub fn broadcast(&self, (ip, bits): ([u8; 4], u8)) -> Option<[u8; 4]> {
        let all = u32::from_be_bytes(ip) | !u32::from_be_bytes(mask(bits));
        (self.flags & IFF_BROADCAST != 0).then(|| all.to_be_bytes())
    }
}

/// The mask with so many bits.
pub fn mask(bits: u8) -> [u8; 4] {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0).to_be_bytes()
}

/// All interfaces.
pub fn all() -> Vec<Interface> {
    let mut found = alloc::vec![Interface {
        index: 1,
        name: "lo",
        hardware: 772,
        flags: IFF_UP | IFF_LOOPBACK | IFF_RUNNING,
        mtu: 65_536,
        mac: [0; 6],
        all: [0; 6],
        state: (0, "unknown"),
        ip4: alloc::vec![([127, 0, 0, 1], 8)],
        ip6: alloc::vec![(core::net::Ipv6Addr::LOCALHOST.octets(), 128)],
        gateway: None,
        scope: scope::HOST,
    }];
    if network::is_there() {
        let own = own::all();
        let of4 = |o: &OwnAddress| Some((unmapped(&o.ip)?, o.bits));
        let ip4: Vec<_> = own.iter().filter_map(of4).collect();
        let ip6 = own.iter().filter(|o| !o.is_v4()).map(|o| (o.ip, o.bits)).collect();
        let [a, b, c, d] = ip4.first().map(|first| first.0).unwrap_or_default();
        let gateway4 = own.iter().find_map(|o| unmapped(&o.gateway)).unwrap_or_default();
        let gateway6 = own.iter().find(|o| !o.is_v4()).map(|o| o.gateway).unwrap_or_default();
        found.push(Interface {
            index: 2,
            name: "eth0",
            hardware: 1,
            flags: IFF_UP | IFF_BROADCAST | IFF_RUNNING | IFF_MULTICAST,
            mtu: 1500,
            // As container runtimes have it: administered locally, unique where the address is.
            mac: [2, 0x42, a, b, c, d],
            all: [0xff; 6],
            state: (6, "up"),
            ip4,
            ip6,
            gateway: Some((gateway4, gateway6)),
            scope: scope::UNIVERSE,
        });
    }
    found
}

/// The one with this name.
pub fn named(name: &[u8]) -> Option<Interface> {
    all().into_iter().find(|i| i.name.as_bytes() == name)
}

/// A route.
#[derive(Clone)]
pub struct Route {
    /// AF_INET or AF_INET6.
    pub family: u16,
    /// Where it leads: 4 or 16 bytes.
    pub to: Vec<u8>,
    /// How many bits of that count.
    pub bits: u8,
    /// Through whom.
    pub gateway: Option<Vec<u8>>,
    /// With which address of the domain.
    pub source: Option<Vec<u8>>,
    /// Number of the interface.
    pub interface: u32,
    /// [`table`]
    pub table: u8,
    /// RTN_UNICAST, RTN_LOCAL or RTN_BROADCAST.
    pub kind: u8,
    /// [`scope`]
    pub scope: u8,
    /// RTPROT_KERNEL or RTPROT_BOOT.
    pub origin: u8,
}

/// RTN_UNICAST
pub const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
const BROADCAST: u8 = 3;
const KERNEL: u8 = 2;
const BOOT: u8 = 3;

impl Route {
    fn local(i: &Interface, source: [u8; 4], to: &[u8], bits: u8, kind: u8) -> Self {
        let v4 = to.len() == 4;
        Self {
            family: if v4 { AF_INET } else { AF_INET6 },
            to: to.to_vec(),
            bits,
            gateway: None,
            source: v4.then(|| source.to_vec()),
            interface: i.index,
            table: table::LOCAL,
            kind,
            scope: match kind {
                LOCAL if v4 => scope::HOST,
                BROADCAST => scope::LINK,
                _ => scope::UNIVERSE,
            },
            origin: KERNEL,
        }
    }

    /// To the interface's own network.
    fn link(self) -> Self {
        let scope = if self.family == AF_INET { scope::LINK } else { scope::UNIVERSE };
        Self { table: table::MAIN, kind: UNICAST, scope, ..self }
    }

    /// To everywhere else, through the host.
    fn through(self, gateway: &[u8]) -> Self {
        let link = self.link();
        Self { gateway: Some(gateway.to_vec()), source: None, scope: scope::UNIVERSE, origin: BOOT, ..link }
    }

    /// Whether it leads to this address.
    fn covers(&self, ip: &[u8]) -> bool {
        let bits = |b: &[u8], n: usize| b[n / 8] >> (7 - n % 8) & 1;
        self.to.len() == ip.len() && (0..self.bits.into()).all(|n| bits(&self.to, n) == bits(ip, n))
    }
}

fn network_of(ip: &[u8], bits: u8) -> Vec<u8> {
    let keep = |i: usize| u8::MAX.checked_shl(8 - usize::from(bits).saturating_sub(8 * i).min(8) as u32);
    ip.iter().enumerate().map(|(i, b)| b & keep(i).unwrap_or(0)).collect()
}

/// All routes.
pub fn routes() -> Vec<Route> {
    let mut found = Vec::new();
    for i in &all() {
        for (n, (ip, bits)) in i.ip4.iter().copied().enumerate() {
            let local = |to: &[u8], bits, kind| Route::local(i, ip, to, bits, kind);
            let network = network_of(&ip, bits);
            found.push(local(&ip, 32, LOCAL));
            if let Some(all) = i.broadcast((ip, bits)) {
                found.push(local(&all, 32, BROADCAST));
                let gateway = i.gateway.filter(|_| n == 0);
                found.extend(gateway.map(|(gateway, _)| local(&[0; 4], 0, UNICAST).through(&gateway)));
                found.push(local(&network, bits, UNICAST).link());
            } else {
                found.push(local(&network, bits, LOCAL));
                found.push(local(&[127, 255, 255, 255], 32, BROADCAST));
            }
        }
        for (n, (ip, bits)) in i.ip6.iter().copied().enumerate() {
            let local = |to: &[u8], bits, kind| Route::local(i, [0; 4], to, bits, kind);
            found.push(local(&ip, 128, LOCAL));
            if bits < 128 {
                found.push(local(&network_of(&ip, bits), bits, UNICAST).link());
                let gateway = i.gateway.filter(|_| n == 0);
                found.extend(gateway.map(|(_, gateway)| local(&[0; 16], 0, UNICAST).through(&gateway)));
            }
        }
    }
    found
}

/// The route a packet for this address (4 or 16 bytes) takes.
pub fn route_to(ip: &[u8]) -> Option<Route> {
    routes().into_iter().filter(|r| r.covers(ip)).max_by_key(|r| r.bits)
}
