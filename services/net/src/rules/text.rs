//! Ports, patterns and name servers as people write them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::manager::Port;
use crate::rules::{Pattern, Protocol, Transport};

/// `[[HOST_ADDRESS:][HOST_PORT]:]PORT[/tcp|/udp]`; without a host port any free one, as with Docker.
impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("{text:?}: give PORT, HOST_PORT:PORT or HOST_ADDRESS:HOST_PORT:PORT, with /udp for UDP")
        };
        let (text, protocol) = match text.split_once('/') {
            None => (text, Transport::Tcp),
            Some((front, "tcp")) => (front, Transport::Tcp),
            Some((front, "udp")) => (front, Transport::Udp),
            Some(_) => return Err(bad()),
        };
        let number = |text: &str| text.parse().ok().filter(|p: &u16| *p != 0).ok_or_else(bad);
        let (front, port) = text.rsplit_once(':').map_or((None, text), |(f, p)| (Some(f), p));
        let port = number(port)?;
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let (address, host_port) = match front.map(|f| f.rsplit_once(':').ok_or(f)) {
            None => (any, 0),
            Some(Err(host_port)) => (any, number(host_port)?),
            Some(Ok((address, host_port))) => {
                let address = address.trim_start_matches('[').trim_end_matches(']');
                let host_port = if host_port.is_empty() { 0 } else { number(host_port)? };
                (address.parse().map_err(|_| bad())?, host_port)
            }
        };
        Ok(Self { host: SocketAddr::new(address, host_port), port, protocol })
    }
}

/// Most ports of a range.
const RANGE_MAX: usize = 1000;

/// Ports as `--publish` takes them: one, or `FIRST-LAST` of the domain and as many of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange(pub Vec<Port>);

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (front, protocol) =
            text.split_once('/').map_or((text, String::new()), |(f, p)| (f, format!("/{p}")));
        let (host, ports) = front.rsplit_once(':').map_or((None, front), |(host, ports)| (Some(host), ports));
        let (address, host_ports) = match host.map(|h| h.rsplit_once(':').ok_or(h)) {
            None => (String::new(), None),
            Some(Err(host_ports)) => (String::new(), Some(host_ports)),
            Some(Ok((address, host_ports))) => (format!("{address}:"), Some(host_ports)),
        };
        let ports = numbers(text, ports)?;
        // `ADDRESS::PORTS` asks for any free ones.
        let host_ports = match host_ports {
            Some("") => Some(vec![String::new(); ports.len()]),
            all => all.map(|all| numbers(text, all)).transpose()?,
        };
        if let Some(all) = &host_ports
            && all.len() != ports.len()
        {
            let (host, own) = (all.len(), ports.len());
            return Err(format!("{text:?}: {host} ports of the host for {own} of the domain; give as many"));
        }
        let one = |(i, port): (usize, &String)| {
            let host = host_ports.as_ref().map_or(String::new(), |all| format!("{address}{}:", all[i]));
            format!("{host}{port}{protocol}").parse()
        };
        ports.iter().enumerate().map(one).collect::<Result<_, _>>().map(Self)
    }
}

/// `N`, or each of `FIRST-LAST`; what else there is [`Port`] judges.
fn numbers(whole: &str, text: &str) -> Result<Vec<String>, String> {
    let Some((first, last)) = text.split_once('-') else { return Ok(vec![text.to_owned()]) };
    let number = |text: &str| text.parse::<u16>().ok().filter(|p| *p != 0);
    let (Some(first), Some(last)) = (number(first), number(last)) else {
        return Err(format!("{whole:?}: {text:?} is no range of ports; give FIRST-LAST"));
    };
    if first > last || usize::from(last - first) >= RANGE_MAX {
        return Err(format!(
            "{whole:?}: {text:?}: the first is the smallest, and at most {RANGE_MAX} are a range"
        ));
    }
    Ok((first..=last).map(|port| port.to_string()).collect())
}

/// `any`, `ADDRESS[/BITS]`, `NAME` or `*.NAME`, with `:PORT` or `:PORT-PORT`, with `/tcp`, `/udp` or `/icmp`; what is
/// only ICMP's has no port.
impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "{text:?}: give an address, with /BITS for a network, a name or \"any\"; \
                 with :PORT or :FIRST-LAST for ports, with /tcp, /udp or, without ports, /icmp for one protocol"
            )
        };
        let (front, protocol) = match text.rsplit_once('/') {
            Some((front, "tcp")) => (front, Some(Protocol::Tcp)),
            Some((front, "udp")) => (front, Some(Protocol::Udp)),
            Some((front, "icmp")) => (front, Some(Protocol::Icmp)),
            _ => (text, None),
        };
        // One colon separates a port; more are an IPv6 address, in brackets if a port follows.
        let (host, ports) = match front.strip_prefix('[').and_then(|t| t.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(bad)?)),
            None if front.matches(':').count() == 1 => {
                front.split_once(':').map_or((front, None), |(n, p)| (n, Some(p)))
            }
            None => (front, None),
        };
        if ports.is_some() && protocol == Some(Protocol::Icmp) {
            return Err(bad());
        }
        let ports = ports.map_or(Some(0..=u16::MAX), range).ok_or_else(bad)?;
        let any = Self { network: None, name: None, ports, protocol };
        if host == "any" {
            return Ok(any);
        }
        let (address, bits) = host.split_once('/').map_or((host, None), |(a, b)| (a, Some(b)));
        let Ok(address) = address.parse::<IpAddr>() else {
            let name = host.to_ascii_lowercase();
            return if is_name(&name) { Ok(Self { name: Some(name), ..any }) } else { Err(bad()) };
        };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = bits.map_or(Ok(most), |b| b.parse().ok().filter(|b| *b <= most).ok_or_else(bad))?;
        // A mapped address is one of IPv4, and so are those that it is compared with.
        let (address, bits) = match (address.to_canonical(), address) {
            (IpAddr::V4(ip), IpAddr::V6(_)) => (IpAddr::V4(ip), bits.checked_sub(96).ok_or_else(bad)?),
            _ => (address, bits),
        };
        Ok(Self { network: Some((address, bits)), ..any })
    }
}

/// `PORT` or `FIRST-LAST`.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some(first..=last)
}

/// Whether this can be the name of a host, or `*.` and such a name.
fn is_name(text: &str) -> bool {
    let text = text.strip_prefix("*.").unwrap_or(text);
    let good = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // The last label of a name is never a number: it would be a mistaken address.
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253 && text.split('.').all(good) && !last.bytes().all(|b| b.is_ascii_digit())
}

/// A name server: `ADDRESS[:PORT]`.
///
/// # Errors
/// What is wrong with it.
pub fn resolver(text: &str) -> Result<SocketAddr, String> {
    let alone = text.parse().map(|ip: IpAddr| SocketAddr::new(ip, 53));
    let bad = |_| format!("{text:?}: give the address of a name server, with :PORT if that is not 53");
    alone.or_else(|_| text.parse()).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_to_publish() {
        let publish = |text: &str| text.parse::<Port>().map(|p| (p.host.to_string(), p.port));
        assert_eq!(publish("80"), Ok(("0.0.0.0:0".into(), 80)));
        assert_eq!(publish("8080:80"), Ok(("0.0.0.0:8080".into(), 80)));
        assert_eq!(publish("127.0.0.1:8080:80"), Ok(("127.0.0.1:8080".into(), 80)));
        assert_eq!(publish("127.0.0.1::80"), Ok(("127.0.0.1:0".into(), 80)));
        assert_eq!(publish("[::1]:8080:80"), Ok(("[::1]:8080".into(), 80)));
        let protocol = |text: &str| text.parse::<Port>().map(|p| (p.port, p.protocol));
        assert_eq!(protocol("5353:53/udp"), Ok((53, Transport::Udp)));
        assert_eq!(protocol("80/tcp"), Ok((80, Transport::Tcp)));
        for bad in [
            "",
            "0",
            "x:80",
            "1:2:3:4",
            "80:",
            ":80",
            "0:80",
            "70000:80",
            "127.0.0.1:80",
            "80/sctp",
            "80/",
            "/udp",
        ] {
            assert!(publish(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_of_ports() {
        let range = |text: &str| {
            let all = text.parse::<PortRange>()?.0;
            Ok::<_, String>(all.iter().map(|p| (p.host.to_string(), p.port)).collect::<Vec<_>>())
        };
        assert_eq!(range("8080:80"), Ok(vec![("0.0.0.0:8080".into(), 80)]));
        assert_eq!(range("80-81"), Ok(vec![("0.0.0.0:0".into(), 80), ("0.0.0.0:0".into(), 81)]));
        let two = vec![("0.0.0.0:8000".into(), 80), ("0.0.0.0:8001".into(), 81)];
        assert_eq!(range("8000-8001:80-81"), Ok(two));
        assert_eq!(range("[::1]:8000-8000:80"), Ok(vec![("[::1]:8000".into(), 80)]));
        assert_eq!("127.0.0.1::53-54/udp".parse::<PortRange>().unwrap().0[1].protocol, Transport::Udp);
        assert_eq!(range("1-1000").unwrap().len(), 1000);
        for bad in [
            "81-80",
            "80-",
            "-80",
            "0-3",
            "1-1001",
            "8000-8001:80",
            "8000:80-81",
            "a-b",
            "80-81-82",
            "80-81/x",
            "",
        ] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_answers_questions_about_names() {
        let dns = |text: &str| resolver(text).map(|r| r.to_string());
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
            text.parse::<Pattern>()
                .map(|p| (p.network.map(|(i, b)| format!("{i}/{b}")).unwrap_or_default(), p.ports))
        };
        assert_eq!(allow("127.0.0.1"), Ok(("127.0.0.1/32".into(), 0..=65535)));
        assert_eq!(allow("10.0.0.0/8:443"), Ok(("10.0.0.0/8".into(), 443..=443)));
        assert_eq!(allow("fd00::/8"), Ok(("fd00::/8".into(), 0..=65535)));
        assert_eq!(allow("[::1]:80"), Ok(("::1/128".into(), 80..=80)));
        assert_eq!(allow("[fd00::/8]:80-90/udp"), Ok(("fd00::/8".into(), 80..=90)));
        assert_eq!(allow("::ffff:10.0.0.0/104"), Ok(("10.0.0.0/8".into(), 0..=65535)));
        let other = |text: &str| text.parse::<Pattern>().map(|p| (p.name, p.ports, p.protocol));
        let all = 0..=65535;
        assert_eq!(other("any"), Ok((None, all.clone(), None)));
        assert_eq!(other("any:53/udp"), Ok((None, 53..=53, Some(Protocol::Udp))));
        assert_eq!(
            other("Example.org:443/tcp"),
            Ok((Some("example.org".into()), 443..=443, Some(Protocol::Tcp)))
        );
        assert_eq!(other("any/icmp"), Ok((None, all.clone(), Some(Protocol::Icmp))));
        assert_eq!(other("*.example.org"), Ok((Some("*.example.org".into()), all, None)));
        for bad in [
            "",
            "10.0.0.0/33",
            "1.2.3.4:x",
            "::/129",
            "1.2.3",
            "1.2.3.4/tcp/udp",
            "example.org/24",
            "a b",
            "*",
            "*.*.org",
            "any:9-8",
            "any:",
            "any:1-2-3",
            "any/sctp",
            "any:7/icmp",
            "[::1]80",
            "::ffff:10.0.0.1/64",
            "-a.org",
            "a..org",
            ".org",
        ] {
            assert!(allow(bad).is_err(), "{bad}");
        }
    }
}
