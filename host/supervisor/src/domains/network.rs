//! Networks as they are asked for, checked and turned into what the network service is told, and back.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use doppel_api::{self as api, NetworkKind, Problem, RuleAction, RuleDirection};
use doppel_net::{
    Action, Direction, Endpoint, EndpointSpec, Line, MOST_WEIGHT, Membership, Pattern, Port, Protocol, Quota,
    Rates, Rule, Rules, Transport,
};

use doppel_spec::DEFAULT_NETWORK;

use crate::domains::spec::wrong;

/// Most entries of a list.
const MOST: usize = 100;
/// A slower one would have programs give up.
const LEAST_RATE: u64 = 1024;

/// Its networks, as the network service is told of them.
pub(crate) fn memberships(network: &api::Network) -> Vec<Membership> {
    let of = |one: api::NetworkMembership| Membership {
        network: one.name,
        aliases: one.aliases,
        ..Membership::default()
    };
    network.memberships().into_iter().map(of).collect()
}

/// Those of them that domains share wherever they are: who names none is found only by those beside it.
pub(crate) fn shared(network: &api::Network) -> Vec<String> {
    network.memberships().into_iter().map(|one| one.name).filter(|name| name != DEFAULT_NETWORK).collect()
}

/// What the network service is to be told; none without a network.
pub(crate) fn endpoint_spec(network: &api::Network) -> Result<Option<EndpointSpec>, Problem> {
    let api::Network {
        kind,
        name,
        networks,
        aliases,
        ports,
        publish_all,
        rules,
        allow,
        rate,
        weight,
        guarantee,
        dns,
    } = network;
    if *kind == NetworkKind::None {
        let given = [
            (name.is_some(), "name"),
            (networks.is_some(), "networks"),
            (!aliases.is_empty(), "aliases"),
            (!ports.is_empty(), "ports"),
            (*publish_all, "publish_all"),
            (!rules.is_empty(), "rules"),
            (!allow.is_empty(), "allow"),
            (!rate.is_none(), "rate"),
            (weight.is_some(), "weight"),
            (guarantee.is_some(), "guarantee"),
            (dns.is_some(), "dns"),
        ];
        return match given.into_iter().find(|(is, _)| *is) {
            Some((_, field)) => Err(wrong(format!("network.{field}: needs `kind` \"nat\""))),
            None => Ok(None),
        };
    }
    if let Some(name) = name {
        api::validate::network_name("network.name", name)?;
    }
    for alias in aliases {
        api::validate::network_name("network.aliases", alias)?;
    }
    if ports.len() > MOST {
        return Err(wrong(format!("network.ports: at most {MOST}")));
    }
    network.check_networks().map_err(|(field, why)| wrong(format!("network.{field}: {why}")))?;
    let resolver = dns.as_ref().map(|text| doppel_net::resolver(text));
    let mut wanted = EndpointSpec {
        // Whoever starts the domain knows what it is called, and what its networks are.
        name: String::new(),
        rules: Rules { rates: rates(network)?, ..self::rules(rules, allow)? },
        published: ports.iter().map(port).collect::<Result<_, _>>()?,
        resolver: resolver.transpose().map_err(|e| wrong(format!("network.dns: {e}")))?,
        // Whoever starts the domain knows what domains of this host may have.
        quota: Quota::default(),
        ..EndpointSpec::default()
    };
    wanted.set_networks(memberships(network));
    Ok(Some(wanted))
}

/// Publishes what an image exposes, if that is asked for: `PORT[/PROTOCOL]`. Of what is no such thing there is nothing to publish.
pub(crate) fn publish_exposed<'a>(network: &mut api::Network, exposed: impl Iterator<Item = &'a str>) {
    if !network.publish_all {
        return;
    }
    for text in exposed {
        let (port, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let protocol = match protocol {
            "tcp" => api::Protocol::Tcp,
            "udp" => api::Protocol::Udp,
            _ => continue,
        };
        let Ok(port) = port.parse::<u16>() else { continue };
        let there = network.ports.iter().any(|one| one.port == port && one.protocol == protocol);
        if port != 0 && !there {
            network.ports.push(api::PortMapping { port, host_port: None, host_address: None, protocol });
        }
    }
}

/// Rules, checked.
pub(crate) fn rules(given: &[api::NetworkRule], allow: &[String]) -> Result<Rules, Problem> {
    if given.len() > MOST || allow.len() > MOST {
        return Err(wrong(format!("network: at most {MOST} rules, and as many in `allow`")));
    }
    let parse = |field: &str, text: &String| {
        text.parse::<Pattern>().map_err(|e| wrong(format!("network.{field}: {e}")))
    };
    let mut rules = Rules::default();
    for r in given {
        let direction = match r.direction {
            RuleDirection::Out => Direction::Out,
            RuleDirection::In => Direction::In,
        };
        let action = match r.action {
            RuleAction::Allow => Action::Allow,
            RuleAction::Deny => Action::Deny,
        };
        let rule = Rule { pattern: parse("rules", &r.pattern)?, action, log: r.log, rate: r.rate };
        rules.add(direction, rule).map_err(|e| wrong(format!("network.rules: {:?}: {e}", r.pattern)))?;
    }
    for text in allow {
        rules.outbound.push(Rule::new(parse("allow", text)?, Action::Allow));
    }
    Ok(rules)
}

/// Rates, checked.
fn rates(network: &api::Network) -> Result<Rates, Problem> {
    let api::Network { rate: given, weight, guarantee, .. } = network;
    let both = [given.sent, given.received];
    if both.into_iter().flatten().any(|rate| rate < LEAST_RATE) {
        return Err(wrong(format!("network.rate: at least {LEAST_RATE} bytes a second")));
    }
    if weight.is_some_and(|weight| !(1..=MOST_WEIGHT).contains(&weight)) {
        return Err(wrong(format!("network.weight: 1 to {MOST_WEIGHT}")));
    }
    if guarantee.is_some_and(|rate| rate < LEAST_RATE) {
        return Err(wrong(format!("network.guarantee: at least {LEAST_RATE} bytes a second")));
    }
    Ok(Rates { outbound: given.sent, inbound: given.received, weight: *weight, guaranteed: *guarantee })
}

/// What an older keeper has not heard of: it puts a domain on the first of its networks alone.
pub(crate) fn left_out(wanted: &api::Network, got: Option<&Endpoint>) -> Option<String> {
    let all = wanted.memberships();
    let (first, further) = all.split_first().filter(|(_, further)| !further.is_empty())?;
    let older = got.is_some_and(|endpoint| endpoint.networks.is_none());
    older.then(|| {
        format!(
            "it is on network {:?} alone and not on {} more: its keeper is of an older version; \
             `doppel upgrade`, then restart it",
            first.name,
            further.len()
        )
    })
}

/// A line of the log, as attributes of an event.
pub(crate) fn attributes(line: &Line) -> Vec<(&'static str, String)> {
    let direction = match line.direction {
        Direction::Out => "out",
        Direction::In => "in",
    };
    let protocol = match line.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Icmp => "icmp",
    };
    let mut all = vec![
        ("action", if line.allowed { "allow" } else { "deny" }.to_owned()),
        ("direction", direction.to_owned()),
        ("protocol", protocol.to_owned()),
        ("peer", line.peer.to_string()),
        ("port", line.port.to_string()),
    ];
    if line.missed > 0 {
        all.push(("missed", line.missed.to_string()));
    }
    all
}

fn port(mapping: &api::PortMapping) -> Result<Port, Problem> {
    if mapping.port == 0 || mapping.host_port == Some(0) {
        return Err(wrong("network.ports: 0 is no port; leave `host_port` out for any free one"));
    }
    let address = mapping.host_address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let protocol = match mapping.protocol {
        api::Protocol::Tcp => Transport::Tcp,
        api::Protocol::Udp => Transport::Udp,
    };
    let host = SocketAddr::new(address, mapping.host_port.unwrap_or(0));
    Ok(Port { host, port: mapping.port, protocol })
}

/// What a domain sent and received, as the interface gives it.
pub(crate) fn stats(traffic: doppel_net::Traffic) -> api::NetworkStats {
    let one = |s: doppel_net::Sum| api::TrafficStats {
        bytes: s.bytes,
        packets: s.packets,
        flows: s.flows,
        drops: s.drops,
    };
    api::NetworkStats { sent: one(traffic.sent), received: one(traffic.received) }
}

/// Where a domain is, as the interface gives it.
pub(crate) fn attached(endpoint: Endpoint) -> api::Attached {
    let mapping = |p: Port| api::PortMapping {
        port: p.port,
        host_port: Some(p.host.port()),
        host_address: Some(p.host.ip()),
        protocol: match p.protocol {
            Transport::Tcp => api::Protocol::Tcp,
            Transport::Udp => api::Protocol::Udp,
        },
    };
    api::Attached {
        ip4: endpoint.ip4,
        ip6: endpoint.ip6,
        ports: endpoint.published.into_iter().map(mapping).collect(),
        networks: endpoint.networks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nat(change: impl FnOnce(&mut api::Network)) -> Result<Option<EndpointSpec>, Problem> {
        let mut network = api::Network { kind: NetworkKind::Nat, ..api::Network::default() };
        change(&mut network);
        endpoint_spec(&network)
    }

    fn mapping(port: u16, host_port: Option<u16>) -> api::PortMapping {
        api::PortMapping { port, host_port, host_address: None, protocol: api::Protocol::Tcp }
    }

    #[test]
    fn networks() {
        assert_eq!(endpoint_spec(&api::Network::default()).unwrap(), None);
        let plain = EndpointSpec { network: "default".into(), ..EndpointSpec::default() };
        assert_eq!(nat(|_| {}).unwrap(), Some(plain));
        assert_eq!(nat(|n| n.name = Some("Back".into())).unwrap().unwrap().network, "back");
        let several = nat(|n| {
            let one = |name: &str| api::NetworkMembership { name: name.into(), ..Default::default() };
            n.networks = Some(vec![
                one("Back"),
                api::NetworkMembership { aliases: vec!["db".into()], ..one("default") },
            ]);
            n.aliases = vec!["store".into()];
        });
        let several = several.unwrap().unwrap().networks();
        let on: Vec<_> = several.iter().map(|m| (m.network.as_str(), m.aliases.join(" "))).collect();
        assert_eq!(on, [("back", "store".into()), ("default", "db store".into())]);
        assert_eq!(nat(|n| n.networks = Some(Vec::new())).unwrap().unwrap().networks(), []);
        let found = nat(|n| {
            n.ports = vec![mapping(80, Some(8080)), mapping(81, None)];
            n.allow = vec!["10.0.0.0/8:443".into()];
            n.dns = Some("192.0.2.1".into());
            n.rate.received = Some(1024);
        });
        let found = found.unwrap().unwrap();
        assert_eq!(found.published[0].host.to_string(), "0.0.0.0:8080");
        assert_eq!(found.published[1].host.port(), 0);
        assert_eq!(found.rules.rates, Rates { inbound: Some(1024), ..Rates::default() });
        assert_eq!(found.rules.outbound[0].pattern.ports, 443..=443);
        assert_eq!(found.resolver.unwrap().port(), 53);
    }

    #[test]
    fn what_an_image_exposes_is_published_once() {
        let mut network = api::Network { ports: vec![mapping(80, Some(8080))], ..api::Network::default() };
        let exposed = ["80/tcp", "80/udp", "443", "0/tcp", "5/sctp", "x"];
        publish_exposed(&mut network, exposed.into_iter());
        assert_eq!(network.ports.len(), 1, "nobody asked for it");
        network.publish_all = true;
        publish_exposed(&mut network, exposed.into_iter());
        let all: Vec<_> = network.ports.iter().map(|m| (m.port, m.host_port, m.protocol)).collect();
        let (tcp, udp) = (api::Protocol::Tcp, api::Protocol::Udp);
        assert_eq!(all, [(80, Some(8080), tcp), (80, None, udp), (443, None, tcp)]);
    }

    fn deny(direction: RuleDirection, pattern: &str) -> api::NetworkRule {
        let (action, pattern) = (RuleAction::Deny, pattern.to_owned());
        api::NetworkRule { action, direction, pattern, log: false, rate: None }
    }

    fn why_of(rule: api::NetworkRule) -> String {
        nat(|n| n.rules = vec![rule]).unwrap_err().detail
    }

    #[test]
    fn rules_come_before_what_is_allowed() {
        let found = nat(|n| {
            n.rules = vec![deny(RuleDirection::Out, "10.0.0.1"), deny(RuleDirection::In, "any:22")];
            n.allow = vec!["10.0.0.0/8".into()];
        });
        let rules = found.unwrap().unwrap().rules;
        let actions: Vec<Action> = rules.outbound.iter().map(|r| r.action).collect();
        assert_eq!(actions, [Action::Deny, Action::Allow]);
        assert_eq!(rules.inbound[0].pattern.ports, 22..=22);
    }

    #[test]
    fn what_is_refused() {
        let without = api::Network { ports: vec![mapping(80, None)], ..api::Network::default() };
        assert!(endpoint_spec(&without).unwrap_err().detail.contains("nat"));
        let why = |change: fn(&mut api::Network)| nat(change).unwrap_err().detail;
        assert!(why(|n| n.name = Some("a b".into())).contains("network.name"));
        assert!(why(|n| n.ports = vec![mapping(0, None)]).contains("ports"));
        let one = |name: &str| api::NetworkMembership { name: name.into(), ..Default::default() };
        let both = |n: &mut api::Network| (n.name, n.networks) = (Some("a".into()), Some(vec![one("b")]));
        assert!(nat(both).unwrap_err().detail.contains("network.networks"));
        let twice = nat(|n| n.networks = Some(vec![one("a"), one("A")])).unwrap_err().detail;
        assert!(twice.contains("twice"), "{twice}");
        let many = nat(|n| {
            n.networks = Some((0..64).map(|i| one(&format!("n{i}"))).collect());
            n.aliases = vec!["a".into(), "b".into(), "c".into()];
        });
        assert!(many.unwrap_err().detail.contains("network.aliases"));
        assert!(why(|n| n.ports = vec![mapping(80, Some(0))]).contains("host_port"));
        assert!(why(|n| n.ports = vec![mapping(80, None); MOST + 1]).contains("at most"));
        assert!(why(|n| n.allow = vec!["exa mple.org".into()]).contains("exa mple.org"));
        assert!(why(|n| n.rules = vec![deny(RuleDirection::In, "example.org")]).contains("outbound"));
        assert!(why(|n| n.rules = vec![deny(RuleDirection::Out, "any:x")]).contains("network.rules"));
        assert!(why(|n| n.rules = vec![deny(RuleDirection::Out, "any"); MOST + 1]).contains("at most"));
        let none = |r| why_of(api::NetworkRule { rate: r, ..deny(RuleDirection::Out, "any") });
        assert!(none(Some(0)).contains("rate"));
        assert!(why(|n| n.dns = Some("x".into())).contains("network.dns"));
        assert!(why(|n| n.rate.sent = Some(1023)).contains("network.rate"));
        assert!(why(|n| n.weight = Some(0)).contains("network.weight: 1 to 10000"));
        assert!(why(|n| n.guarantee = Some(1023)).contains("network.guarantee"));
    }
}
