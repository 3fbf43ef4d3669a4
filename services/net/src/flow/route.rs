//! Where an address leads that a domain connects or sends to, and how addresses of the host look to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use doppel_abi_service::net::address::{HOST4, HOST6, RESOLVER4, RESOLVER6};

use crate::channel::client::Settings;

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
        let host = as_host(to);
        if is_virtual(to.ip()) && host.is_none() {
            return Route::Domain;
        }
        Route::Host(host.unwrap_or(to))
    }
}

/// Whether an address is in the virtual networks: 10.88.0.0/16 and fd88:d0bb:e1::/48.
fn is_virtual(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..2] == HOST4[..2],
        IpAddr::V6(ip) => ip.segments()[..3] == HOST6[..3],
    }
}

/// Whether it is an address that a domain may have: not the host's, nor that of who is asked for names.
pub(crate) fn is_domain(ip: IpAddr) -> bool {
    let router: [IpAddr; 4] = [HOST4.into(), HOST6.into(), RESOLVER4.into(), RESOLVER6.into()];
    is_virtual(ip) && !router.contains(&ip)
}

fn is_resolver(to: SocketAddr) -> bool {
    to.port() == DNS && (to.ip() == IpAddr::from(RESOLVER4) || to.ip() == IpAddr::from(RESOLVER6))
}

/// The host itself, as domains see it: its loopback. Only by a rule, as all that is private.
fn as_host(to: SocketAddr) -> Option<SocketAddr> {
    match to.ip() {
        ip if ip == IpAddr::from(HOST4) => Some((Ipv4Addr::LOCALHOST, to.port()).into()),
        ip if ip == IpAddr::from(HOST6) => Some((Ipv6Addr::LOCALHOST, to.port()).into()),
        _ => None,
    }
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
