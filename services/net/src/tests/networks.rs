//! Domains on several networks, and what becomes of connections when they go to others.

use super::datagrams::{Gram, any};
use super::*;

/// A domain on these networks.
fn guest(engine: &mut Engine, last: u8, networks: &[&str]) -> Guest {
    let g = Guest::new(engine, last, Rules::default(), Vec::new());
    put(engine, &g, networks, false);
    g
}

fn put(engine: &mut Engine, g: &Guest, networks: &[&str], internal: bool) {
    let all: Vec<_> = networks.iter().map(|n| Membership::of(n)).collect();
    engine.set_networks(g.id, all.into(), internal, g.addresses);
}

fn at_port(last: u8, port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 88, 0, last).into(), port)
}

fn listens(engine: &mut Engine, g: &mut Guest, last: u8) {
    g.ask(Request::Listen { socket: 0, at: own(last, 7), backlog: 8 });
    until(engine, |_| g.answer());
}

/// What a connection of its to a port of that one ends with.
fn connects(engine: &mut Engine, g: &mut Guest, to: SocketAddr) -> u16 {
    g.socket(9).reset();
    let ticket = g.ask(Request::Connect { socket: 9, from: own(1, 40000), to: end_of(to) });
    let error = done(engine, g, ticket);
    if error == 0 {
        let ticket = g.ask(Request::Close { socket: 9, reset: true });
        done(engine, g, ticket);
    }
    error
}

fn unreachable() -> u16 {
    u16::try_from(Errno::HOSTUNREACH.raw_os_error()).unwrap()
}

fn accepted(engine: &mut Engine, g: &mut Guest) -> Connection {
    Connection::new(until(engine, |_| match g.answer()? {
        Answer::Accepted { socket, .. } => Some(socket),
        other => panic!("{other:?}"),
    }))
}

#[test]
fn the_one_in_the_middle_reaches_both_and_the_ends_do_not_reach_each_other() {
    let mut engine = Engine::new().unwrap();
    let mut a = guest(&mut engine, 3, &["front"]);
    let mut middle = guest(&mut engine, 4, &["back", "front"]);
    let mut b = guest(&mut engine, 5, &["back"]);
    listens(&mut engine, &mut a, 3);
    listens(&mut engine, &mut middle, 4);
    listens(&mut engine, &mut b, 5);
    for (g, to, error) in [(&mut a, 4, 0), (&mut b, 4, 0)] {
        assert_eq!(connects(&mut engine, g, at_port(to, 7)), error);
        accepted(&mut engine, &mut middle);
    }
    assert_eq!(connects(&mut engine, &mut middle, at_port(3, 7)), 0);
    accepted(&mut engine, &mut a);
    assert_eq!(connects(&mut engine, &mut middle, at_port(5, 7)), 0);
    accepted(&mut engine, &mut b);
    assert_eq!(connects(&mut engine, &mut a, at_port(5, 7)), unreachable());
    assert_eq!(connects(&mut engine, &mut b, at_port(3, 7)), unreachable());
}

#[test]
fn connections_end_with_the_network_that_both_had_in_common() {
    for of_server in [false, true] {
        let mut engine = Engine::new().unwrap();
        let mut server = guest(&mut engine, 4, &["back", "other"]);
        let mut client = guest(&mut engine, 5, &["back", "front"]);
        let mut beside = guest(&mut engine, 3, &["front"]);
        listens(&mut engine, &mut server, 4);
        listens(&mut engine, &mut beside, 3);
        let mut a = connected(&mut engine, &mut client, at_port(4, 7));
        let mut b = accepted(&mut engine, &mut server);
        client.socket(6).reset();
        let ticket =
            client.ask(Request::Connect { socket: 6, from: own(1, 40001), to: end_of(at_port(3, 7)) });
        assert_eq!(done(&mut engine, &mut client, ticket), 0);
        let mut stays = accepted(&mut engine, &mut beside);
        if of_server {
            put(&mut engine, &server, &["other"], false);
        } else {
            put(&mut engine, &client, &["front"], false);
        }
        until(&mut engine, |_| a.receive(&client).is_none().then_some(()));
        until(&mut engine, |_| b.receive(&server).is_none().then_some(()));
        assert_eq!(connects(&mut engine, &mut client, at_port(4, 7)), unreachable());
        // What goes over another network goes on.
        let mut c = Connection::new(6);
        assert_eq!(c.send(&client, b"hello"), 5);
        let got = until(&mut engine, |_| stays.receive(&beside).filter(|bytes| !bytes.is_empty()));
        assert_eq!(got, b"hello");
        // And back on one both have, there are new ones.
        put(&mut engine, &server, &["other"], false);
        put(&mut engine, &client, &["other"], false);
        assert_eq!(connects(&mut engine, &mut client, at_port(4, 7)), 0);
    }
}

#[test]
fn datagrams_of_a_network_that_was_left_are_refused() {
    let mut engine = Engine::new().unwrap();
    let mut a = guest(&mut engine, 3, &["back"]);
    let mut b = guest(&mut engine, 4, &["back"]);
    let mut from = Gram::new(&mut engine, &mut a, 1, any(4000));
    let mut to = Gram::new(&mut engine, &mut b, 1, any(53));
    let ticket = a.ask(Request::Peer { socket: 1, to: end_of(at_port(4, 53)) });
    assert_eq!(done(&mut engine, &mut a, ticket), 0);
    from.send(&a, at_port(4, 53), b"one");
    assert_eq!(until(&mut engine, |_| to.next(&b)).1, b"one");
    put(&mut engine, &b, &[], false);
    from.send(&a, at_port(4, 53), b"two");
    let error = until(&mut engine, |_| match a.socket(1).error.swap(0, Ordering::SeqCst) {
        0 => None,
        e => Some(e),
    });
    assert_eq!(error, u32::from(unreachable()));
    put(&mut engine, &b, &["back"], false);
    from.send(&a, at_port(4, 53), b"three");
    assert_eq!(until(&mut engine, |_| to.next(&b)).1, b"three");
}

#[test]
fn nothing_goes_out_of_internal_networks_or_comes_in() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = server.local_addr().unwrap();
    let callers = TcpListener::bind("127.0.0.1:0").unwrap();
    callers.set_nonblocking(true).unwrap();
    let public = callers.local_addr().unwrap();
    let mut engine = Engine::new().unwrap();
    let published = vec![Published { port: 7, protocol: Transport::Tcp, socket: callers.into() }];
    let mut g = Guest::new(&mut engine, 5, to_loopback(), published);
    let mut other = Guest::new(&mut engine, 4, Rules::default(), Vec::new());
    listens(&mut engine, &mut g, 5);
    listens(&mut engine, &mut other, 4);
    let mut out = connected(&mut engine, &mut g, host);
    let mut caller = TcpStream::connect(public).unwrap();
    let mut inside = accepted(&mut engine, &mut g);
    put(&mut engine, &g, &["back"], true);
    // What there was ends, and there is nothing new, whatever rules say.
    until(&mut engine, |_| out.receive(&g).is_none().then_some(()));
    until(&mut engine, |_| inside.receive(&g).is_none().then_some(()));
    assert!(!matches!(caller.read(&mut [0]), Ok(1..)));
    assert_eq!(connects(&mut engine, &mut g, host), u16::try_from(Errno::ACCESS.raw_os_error()).unwrap());
    let mut late = TcpStream::connect(public).unwrap();
    until(&mut engine, |_| (g.counts.read().received.drops > 0).then_some(()));
    assert!(!matches!(late.read(&mut [0]), Ok(1..)));
    assert_eq!(g.answer(), None);
    // Domains are reached as before.
    assert_eq!(connects(&mut engine, &mut g, at_port(4, 7)), 0);
    put(&mut engine, &g, &["back"], false);
    assert_eq!(connects(&mut engine, &mut g, host), 0);
}

#[test]
fn names_are_asked_in_all_networks_and_outside_of_internal_ones_nowhere() {
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 3, Rules::default(), Vec::new());
    let _front = guest(&mut engine, 4, &["front"]);
    let _back = guest(&mut engine, 5, &["back"]);
    let mut gram = Gram::new(&mut engine, &mut g, 1, any(4000));
    let resolver = SocketAddr::new(doppel_abi_service::net::address::RESOLVER4.into(), 53);
    let ticket = g.ask(Request::Peer { socket: 1, to: end_of(resolver) });
    assert_eq!(done(&mut engine, &mut g, ticket), 0);
    let mut told = |engine: &mut Engine, g: &Guest, name: &str| {
        gram.send(g, resolver, &crate::names::dns::tests::question(name, 1));
        let answer = until(engine, |_| match g.socket(1).error.swap(0, Ordering::SeqCst) {
            0 => gram.next(g).map(|(_, bytes)| Some(bytes)),
            _ => Some(None),
        });
        answer.and_then(|bytes| crate::names::dns::found(&bytes)).map(|f| f.addresses[0].0.to_string())
    };
    put(&mut engine, &g, &["front", "back"], true);
    assert_eq!(told(&mut engine, &g, "d4"), Some("10.88.0.4".into()));
    assert_eq!(told(&mut engine, &g, "d5.back"), Some("10.88.0.5".into()));
    assert_eq!(told(&mut engine, &g, "d5.front"), None);
    assert_eq!(told(&mut engine, &g, "example.org"), None);
    put(&mut engine, &g, &["front"], false);
    assert_eq!(
        (told(&mut engine, &g, "d5"), told(&mut engine, &g, "d4.front")),
        (None, Some("10.88.0.4".into()))
    );
}

/// Networks with subnets, and the domain's addresses there.
fn spaced(networks: &[(&str, &str, &str)]) -> Vec<Membership> {
    let one = |(name, subnet, ip): &(&str, &str, &str)| {
        let subnet: crate::Subnet = subnet.parse().unwrap();
        let gateway = subnet.addresses().nth(1).unwrap();
        let own = Some(ip).filter(|ip| !ip.is_empty()).map(|ip| ip.parse().unwrap()).into_iter().collect();
        Membership { spaces: vec![crate::Space { subnet, gateway }], own, ..Membership::of(name) }
    };
    networks.iter().map(one).collect()
}

#[test]
fn a_domain_has_an_address_in_each_network_with_a_subnet() {
    const BACK: &str = "172.20.0.0/24";
    const FRONT: &str = "10.99.0.0/16";
    let mut engine = Engine::new().unwrap();
    let mut a = guest(&mut engine, 3, &[]);
    let mut middle = guest(&mut engine, 4, &[]);
    let mut b = guest(&mut engine, 5, &[]);
    let set = |engine: &mut Engine, g: &Guest, networks: &[(&str, &str, &str)]| {
        engine.set_networks(g.id, spaced(networks).into(), false, g.addresses);
    };
    set(&mut engine, &a, &[("back", BACK, "172.20.0.3")]);
    set(&mut engine, &middle, &[("back", BACK, "172.20.0.4"), ("front", FRONT, "10.99.0.4")]);
    set(&mut engine, &b, &[("front", FRONT, "10.99.0.5")]);
    for g in [&mut a, &mut middle, &mut b] {
        g.ask(Request::Listen { socket: 0, at: End { ip: [0; 16], port: 7 }, backlog: 8 });
        until(&mut engine, |_| g.answer());
    }
    let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 7);
    let caller = |engine: &mut Engine, g: &mut Guest| {
        until(engine, |_| match g.answer()? {
            Answer::Accepted { peer, .. } => {
                Some(std::net::Ipv6Addr::from(peer.ip).to_canonical().to_string())
            }
            other => panic!("{other:?}"),
        })
    };
    // Who is called sees the address that the caller has in the network of the one that it called.
    assert_eq!(connects(&mut engine, &mut a, at("172.20.0.4")), 0);
    assert_eq!(caller(&mut engine, &mut middle), "172.20.0.3");
    assert_eq!(connects(&mut engine, &mut middle, at("10.99.0.5")), 0);
    assert_eq!(caller(&mut engine, &mut b), "10.99.0.4");
    assert_eq!(connects(&mut engine, &mut b, at("10.99.0.4")), 0);
    assert_eq!(caller(&mut engine, &mut middle), "10.99.0.5");
    // The first address is one, too, and nobody is at those that no domain has.
    assert_eq!(connects(&mut engine, &mut a, at_port(4, 7)), 0);
    caller(&mut engine, &mut middle);
    assert_eq!(connects(&mut engine, &mut a, at("172.20.0.9")), unreachable());
    assert_eq!(connects(&mut engine, &mut a, at("10.99.0.5")), unreachable(), "in another network");
    // Without the network there is no way there, and nothing leaves for the host's own networks.
    set(&mut engine, &middle, &[("back", BACK, "172.20.0.4")]);
    assert_eq!(connects(&mut engine, &mut b, at("10.99.0.4")), unreachable());
    assert_eq!(connects(&mut engine, &mut a, at("172.20.0.4")), 0);
}

#[test]
fn the_gateway_of_a_subnet_is_the_host_by_the_hosts_rules() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let refused = u16::try_from(Errno::ACCESS.raw_os_error()).unwrap();
    // A public subnet, too: its gateway is the host's loopback all the same.
    for subnet in ["172.20.0.0/24", "8.8.8.0/24"] {
        let subnet: crate::Subnet = subnet.parse().unwrap();
        let gateway = subnet.addresses().nth(1).unwrap();
        for (rule, error) in [
            (None, refused),
            (Some(("10.88.0.1".to_owned(), Action::Allow)), 0),
            (Some((gateway.to_string(), Action::Allow)), 0),
            (Some(("10.88.0.1".to_owned(), Action::Deny)), refused),
        ] {
            let mut rules = Rules::default();
            rules.outbound.extend(rule.map(|(pattern, action)| Rule::new(pattern.parse().unwrap(), action)));
            // Behind what the host's administrator says.
            rules.outbound.extend((error != 0).then(|| Rule::new("any".parse().unwrap(), Action::Allow)));
            let mut engine = Engine::new().unwrap();
            let mut g = Guest::new(&mut engine, 3, rules, Vec::new());
            let own = subnet.addresses().nth(2).unwrap().to_string();
            let networks = spaced(&[("back", &subnet.to_string(), &own)]);
            engine.set_networks(g.id, networks.into(), false, g.addresses);
            let to = SocketAddr::new(gateway, port);
            assert_eq!(connects(&mut engine, &mut g, to), error, "{subnet}");
        }
    }
}

#[test]
fn names_are_told_with_the_address_of_the_network_that_was_asked_in() {
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 3, Rules::default(), Vec::new());
    let both = guest(&mut engine, 4, &[]);
    let own = [("back", "172.20.0.0/24", "172.20.0.4"), ("front", "10.99.0.0/16", "10.99.0.4")];
    engine.set_networks(both.id, spaced(&own).into(), false, both.addresses);
    let mut gram = Gram::new(&mut engine, &mut g, 1, any(4000));
    let resolver = SocketAddr::new(doppel_abi_service::net::address::RESOLVER4.into(), 53);
    let mut told = |engine: &mut Engine, name: &str| {
        gram.send(&g, resolver, &crate::names::dns::tests::question(name, 1));
        let answer = until(engine, |_| gram.next(&g).map(|(_, bytes)| bytes));
        crate::names::dns::found(&answer).map(|f| f.addresses[0].0.to_string())
    };
    put(&mut engine, &g, &["front"], false);
    assert_eq!(told(&mut engine, "d4"), Some("10.99.0.4".into()));
    put(&mut engine, &g, &["back", "front"], false);
    assert_eq!(told(&mut engine, "d4.back"), Some("172.20.0.4".into()));
    assert_eq!(told(&mut engine, "d4.front"), Some("10.99.0.4".into()));
}
