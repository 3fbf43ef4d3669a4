//! `--network`, `--publish` and `--allow`: a network service of this command's own.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode};
use std::str::FromStr;

use clap::ValueEnum;
use doppel_domain::NetworkLink;
use doppel_net::{Action, Attachment, Manager, Pattern, Port, Protocol, Rule, Rules, Wanted};

/// The hidden command that is the service domain's process.
pub const SERVICE: &str = "network-service";

/// Kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Only its own loopback.
    None,
    /// An address of its own; outbound connections from the host's.
    Nat,
}

/// A port of the host that leads to one of the domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish(Port);

impl FromStr for Publish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("{text:?}: give PORT, HOST_PORT:PORT or HOST_ADDRESS:HOST_PORT:PORT, with /udp for UDP")
        };
        let (text, protocol) = match text.split_once('/') {
            None | Some((_, "tcp")) => (text.trim_end_matches("/tcp"), Protocol::Tcp),
            Some((front, "udp")) => (front, Protocol::Udp),
            Some(_) => return Err(bad()),
        };
        let (front, port) = text.rsplit_once(':').map_or((None, text), |(f, p)| (Some(f), p));
        let port: u16 = port.parse().ok().filter(|p| *p != 0).ok_or_else(bad)?;
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let host = match front {
            None => SocketAddr::new(any, port),
            Some(front) => match front.rsplit_once(':') {
                None => SocketAddr::new(any, front.parse().map_err(|_| bad())?),
                Some((address, host_port)) => {
                    let address = address.trim_start_matches('[').trim_end_matches(']');
                    SocketAddr::new(
                        address.parse().map_err(|_| bad())?,
                        host_port.parse().map_err(|_| bad())?,
                    )
                }
            },
        };
        Ok(Self(Port { host, port, protocol }))
    }
}

/// Who answers a domain's questions about names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolver(SocketAddr);

impl FromStr for Resolver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let alone = text.parse().map(|ip: IpAddr| SocketAddr::new(ip, 53));
        let bad = |_| format!("{text:?}: give the address of a name server, with :PORT if that is not 53");
        alone.or_else(|_| text.parse()).map(Self).map_err(bad)
    }
}

/// Where the domain may connect to although it is private.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow(Pattern);

impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?}: give an address, with /BITS for a network, with :PORT for one port");
        // One colon separates a port; more are an IPv6 address, in brackets if a port follows.
        let (network, port) = match text.strip_prefix('[').and_then(|t| t.split_once(']')) {
            Some((network, rest)) => (network, rest.strip_prefix(':')),
            None if text.matches(':').count() == 1 => {
                text.split_once(':').map_or((text, None), |(n, p)| (n, Some(p)))
            }
            None => (text, None),
        };
        let (address, bits) = network.split_once('/').map_or((network, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |b| b.parse().ok().filter(|b| *b <= most).ok_or_else(bad))?;
        let ports = match port {
            Some(p) => p.parse().map(|p| p..=p).map_err(|_| bad())?,
            None => 0..=u16::MAX,
        };
        Ok(Self(Pattern { network: Some((address, bits)), ports, protocol: None }))
    }
}

/// A network service with one domain.
pub struct Network {
    attachment: Attachment,
    _manager: Manager,
}

impl Network {
    /// What the domain is given of it.
    pub fn link(&self) -> NetworkLink {
        let a = &self.attachment;
        NetworkLink { memory: a.memory.clone(), doorbell: a.doorbell.clone(), ip4: a.ip4, ip6: a.ip6 }
    }
}

/// Starts a network service and attaches the domain, if it is to have one.
pub fn attach(
    kind: Kind,
    publish: Vec<Publish>,
    allow: Vec<Allow>,
    dns: Option<Resolver>,
) -> Result<Option<Network>, Box<dyn Error>> {
    if kind == Kind::None {
        if !publish.is_empty() || !allow.is_empty() || dns.is_some() {
            return Err("--publish, --allow and --dns need a network: give --network nat".into());
        }
        return Ok(None);
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg(SERVICE).env_clear();
    let manager = Manager::start(command)?;
    let rule = |Allow(pattern)| Rule { pattern, action: Action::Allow };
    let attachment = manager.attach(Wanted {
        network: 0,
        rules: Rules { outbound: allow.into_iter().map(rule).collect(), inbound: Vec::new() },
        published: publish.into_iter().map(|Publish(port)| port).collect(),
        resolver: dns.map(|Resolver(address)| address),
    })?;
    Ok(Some(Network { attachment, _manager: manager }))
}

/// The service domain's process.
pub fn service() -> Result<ExitCode, Box<dyn Error>> {
    use std::os::fd::AsFd;
    doppel_net::serve(std::io::stdin().as_fd())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_to_publish() {
        let publish = |text: &str| text.parse::<Publish>().map(|p| (p.0.host.to_string(), p.0.port));
        assert_eq!(publish("80"), Ok(("0.0.0.0:80".into(), 80)));
        assert_eq!(publish("8080:80"), Ok(("0.0.0.0:8080".into(), 80)));
        assert_eq!(publish("127.0.0.1:8080:80"), Ok(("127.0.0.1:8080".into(), 80)));
        assert_eq!(publish("[::1]:8080:80"), Ok(("[::1]:8080".into(), 80)));
        let protocol = |text: &str| text.parse::<Publish>().map(|p| (p.0.port, p.0.protocol));
        assert_eq!(protocol("5353:53/udp"), Ok((53, Protocol::Udp)));
        assert_eq!(protocol("80/tcp"), Ok((80, Protocol::Tcp)));
        assert_eq!(protocol("80"), Ok((80, Protocol::Tcp)));
        for bad in ["", "0", "x:80", "1:2:3:4", "80:", "70000:80", "127.0.0.1:80", "80/sctp", "80/", "/udp"] {
            assert!(publish(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_answers_questions_about_names() {
        let dns = |text: &str| text.parse::<Resolver>().map(|r| r.0.to_string());
        assert_eq!(dns("192.0.2.1"), Ok("192.0.2.1:53".into()));
        assert_eq!(dns("127.0.0.1:5300"), Ok("127.0.0.1:5300".into()));
        assert_eq!(dns("2001:db8::1"), Ok("[2001:db8::1]:53".into()));
        assert_eq!(dns("[2001:db8::1]:5300"), Ok("[2001:db8::1]:5300".into()));
        for bad in ["", "localhost", "192.0.2.1:x"] {
            assert!(dns(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn networks_to_allow() {
        let allow = |text: &str| {
            text.parse::<Allow>()
                .map(|a| (a.0.network.map(|(i, b)| format!("{i}/{b}")).unwrap_or_default(), a.0.ports))
        };
        assert_eq!(allow("127.0.0.1"), Ok(("127.0.0.1/32".into(), 0..=65535)));
        assert_eq!(allow("10.0.0.0/8:443"), Ok(("10.0.0.0/8".into(), 443..=443)));
        assert_eq!(allow("fd00::/8"), Ok(("fd00::/8".into(), 0..=65535)));
        assert_eq!(allow("[::1]:80"), Ok(("::1/128".into(), 80..=80)));
        for bad in ["", "example.org", "10.0.0.0/33", "1.2.3.4:x", "::/129"] {
            assert!(allow(bad).is_err(), "{bad}");
        }
    }
}
