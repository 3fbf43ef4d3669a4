//! Where an address leads that a domain connects or sends to, and how addresses of the host look to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use doppel_abi_service::net::address::{HOST4, HOST6, RESOLVER4, RESOLVER6};

use crate::channel::client::Settings;
use crate::names::subnet::Space;

/// Port of questions about names.
const DNS: u16 = 53;

/// Where an address leads, if a rule lets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To this address, from the host.
    Host(SocketAddr),
    /// To this name server, from the host, or to none.
    Names(Option<SocketAddr>),
    /// To another domain, perhaps.
    Domain,
}

impl Settings {
    /// Where the domain gets with this address.
    pub(crate) fn route(&self, to: SocketAddr) -> Route {
        if is_resolver(to) {
            // Who is closed to the outside is told names of domains alone.
            return Route::Names(self.resolver.filter(|_| !self.internal));
        }
        let host = self.as_host(to);
        if host.is_none() && (is_virtual(to.ip()) || self.is_given(to.ip())) {
            return Route::Domain;
        }
        Route::Host(host.unwrap_or(to))
    }

    /// Whether it is an address that a domain may have: not the host's, nor that of who is asked for names.
    pub(crate) fn is_domain(&self, ip: IpAddr) -> bool {
        let router: [IpAddr; 4] = [HOST4.into(), HOST6.into(), RESOLVER4.into(), RESOLVER6.into()];
        !self.is_gateway(ip) && (is_virtual(ip) && !router.contains(&ip) || self.is_given(ip))
    }

    /// The subnets of its networks.
    fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.networks.spaces()
    }

    /// Whether it is out of a subnet of its networks, or another domain's that is served and has an address of another subnet.
    fn is_given(&self, ip: IpAddr) -> bool {
        self.spaces().any(|space| space.subnet.has(ip)) || self.served.has(ip)
    }

    /// Whether it is the host, as a network with a subnet has it.
    pub(crate) fn is_gateway(&self, ip: IpAddr) -> bool {
        self.spaces().any(|space| space.gateway == ip)
    }

    /// The host itself, as domains see it: its loopback. Only by a rule, as all that is private.
    fn as_host(&self, to: SocketAddr) -> Option<SocketAddr> {
        let ip = to.ip();
        let host = ip == IpAddr::from(HOST4) || ip == IpAddr::from(HOST6) || self.is_gateway(ip);
        host.then(|| match ip {
            IpAddr::V4(_) => (Ipv4Addr::LOCALHOST, to.port()).into(),
            IpAddr::V6(_) => (Ipv6Addr::LOCALHOST, to.port()).into(),
        })
    }
}

/// Whether an address is in the virtual networks that have no subnets of their own: 10.88.0.0/16 and fd88:d0bb:e1::/48.
fn is_virtual(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..2] == HOST4[..2],
        IpAddr::V6(ip) => ip.segments()[..3] == HOST6[..3],
    }
}

fn is_resolver(to: SocketAddr) -> bool {
    to.port() == DNS && (to.ip() == IpAddr::from(RESOLVER4) || to.ip() == IpAddr::from(RESOLVER6))
}

/// How a domain sees who calls it from outside: the host's loopback is not its own.
pub(crate) fn as_seen(from: SocketAddr) -> SocketAddr {
    let ip = match from.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_loopback() => HOST4.into(),
        IpAddr::V6(ip) if ip.is_loopback() => HOST6.into(),
        ip => ip,
    };
    SocketAddr::new(ip, from.port())
}
