//! The domain's interfaces and routes: `lo`, and `eth0` towards its virtual network if it has one.
//!
//! Whoever shows them (netlink, ioctls, /proc/net, /sys/class/net) asks here, each time anew: a clone has other
//! addresses than what it was made from.

use alloc::vec::Vec;

use doppel_abi_service::net::address::{HOST4, HOST6};
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6};
use doppel_machine::{boot, network};

const IFF_UP: u32 = 1;
const IFF_BROADCAST: u32 = 2;
const IFF_LOOPBACK: u32 = 8;
const IFF_RUNNING: u32 = 0x40;
const IFF_MULTICAST: u32 = 0x1000;
/// Told by netlink only: ioctls have 16 bits.
pub const IFF_LOWER_UP: u32 = 0x1_0000;

/// Bits of the virtual networks' addresses that all domains have in common.
const NETWORK4: u8 = 16;
const NETWORK6: u8 = 48;

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
    /// Its IPv4 address, with the network's bits.
    pub ip4: ([u8; 4], u8),
    /// Its IPv6 address, with the network's bits.
    pub ip6: ([u8; 16], u8),
    /// Who can reach these.
    pub scope: u8,
}

/// Packets that may wait to be sent; nothing does.
pub const QUEUE: u32 = 1000;

impl Interface {
    /// The network's mask.
    pub fn mask(&self) -> [u8; 4] {
        mask(self.ip4.1)
    }

    /// The address of all in its network, if it has one.
    pub fn broadcast(&self) -> Option<[u8; 4]> {
        let all = u32::from_be_bytes(self.ip4.0) | !u32::from_be_bytes(self.mask());
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
        ip4: ([127, 0, 0, 1], 8),
        ip6: (core::net::Ipv6Addr::LOCALHOST.octets(), 128),
        scope: scope::HOST,
    }];
    if network::is_there() {
        let info = boot::start_info();
        let [a, b, c, d] = info.ip4;
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
            ip4: (info.ip4, NETWORK4),
            ip6: (info.ip6, NETWORK6),
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
    fn local(i: &Interface, to: &[u8], bits: u8, kind: u8) -> Self {
        let v4 = to.len() == 4;
        Self {
            family: if v4 { AF_INET } else { AF_INET6 },
            to: to.to_vec(),
            bits,
            gateway: None,
            source: v4.then(|| i.ip4.0.to_vec()),
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
        let (ip, bits) = i.ip4;
        let network = network_of(&ip, bits);
        found.push(Route::local(i, &ip, 32, LOCAL));
        if let Some(all) = i.broadcast() {
            found.push(Route::local(i, &all, 32, BROADCAST));
            found.push(Route::local(i, &[0; 4], 0, UNICAST).through(&HOST4));
            found.push(Route::local(i, &network, bits, UNICAST).link());
        } else {
            found.push(Route::local(i, &network, bits, LOCAL));
            found.push(Route::local(i, &[127, 255, 255, 255], 32, BROADCAST));
        }
        let (ip, bits) = i.ip6;
        found.push(Route::local(i, &ip, 128, LOCAL));
        if bits < 128 {
            found.push(Route::local(i, &network_of(&ip, bits), bits, UNICAST).link());
            let host: Vec<u8> = HOST6.iter().flat_map(|w| w.to_be_bytes()).collect();
            found.push(Route::local(i, &[0; 16], 0, UNICAST).through(&host));
        }
    }
    found
}

/// The route a packet for this address (4 or 16 bytes) takes.
pub fn route_to(ip: &[u8]) -> Option<Route> {
    routes().into_iter().filter(|r| r.covers(ip)).max_by_key(|r| r.bits)
}
