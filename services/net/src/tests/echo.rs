//! ICMP echo.

use std::net::Ipv6Addr;

use doppel_abi_service::net::address::{HOST6, RESOLVER4};

use super::datagrams::{Gram, any, host};
use super::*;

/// A request with this identifier, as a guest kernel makes one for a socket bound to it.
fn request(id: u16, to: SocketAddr) -> Vec<u8> {
    let mut m = vec![if to.is_ipv4() { 8 } else { 128 }, 0, 0, 0];
    m.extend(id.to_be_bytes());
    m.extend(b"\x00\x01some bytes");
    m
}

/// Whether this is the answer to such a request.
fn answers(m: &[u8], id: u16, from: SocketAddr) -> bool {
    m[0] == if from.is_ipv4() { 0 } else { 129 } && m[4..] == request(id, from)[4..]
}

fn error(engine: &mut Engine, g: &Guest, n: u32) -> Errno {
    until(engine, |_| match g.socket(n).error.swap(0, Ordering::SeqCst) {
        0 => None,
        e => Some(Errno::from_raw_os_error(i32::try_from(e).unwrap())),
    })
}

fn denied(direction: Direction, pattern: &str) -> Rules {
    let mut rules = Rules::default();
    rules.add(direction, Rule::new(pattern.parse().unwrap(), Action::Deny)).unwrap();
    rules
}

#[test]
fn the_router_answers_and_so_do_domains_of_the_network() {
    let mut engine = Engine::new().unwrap();
    let mut a = Guest::new(&mut engine, 3, Rules::default(), Vec::new());
    let b = Guest::new(&mut engine, 4, Rules::default(), Vec::new());
    let mut c = Gram::echo(&mut engine, &mut a, 2, any(77));
    let names = (RESOLVER4, 0).into();
    let router6 = (Ipv6Addr::from(HOST6), 0).into();
    let other = (Ipv4Addr::new(10, 88, 0, 4), 0).into();
    for (i, to) in [host(0), names, router6, other, other].into_iter().enumerate() {
        c.send(&a, to, &request(77, to));
        let (from, m) = until(&mut engine, |_| c.next(&a));
        assert!(from == to && answers(&m, 77, to), "{i}: {from} {m:?}");
    }
    let Traffic { sent, received } = a.counts.read();
    assert_eq!((sent.packets, sent.flows, received.packets), (5, 4, 5));
    let Traffic { sent, received } = b.counts.read();
    assert_eq!((sent.packets, received.packets, received.flows), (2, 2, 1));
}

#[test]
fn rules_of_both_sides_are_kept() {
    let mut engine = Engine::new().unwrap();
    let mut a = Guest::new(&mut engine, 3, denied(Direction::Out, "10.88.0.1/icmp"), Vec::new());
    let b = Guest::new(&mut engine, 4, denied(Direction::In, "any/icmp"), Vec::new());
    let mut c = Gram::echo(&mut engine, &mut a, 2, any(77));
    c.send(&a, host(0), &request(77, host(0)));
    assert_eq!(error(&mut engine, &a, 2), Errno::ACCESS);
    // An address that nobody has.
    let nobody = (Ipv4Addr::new(10, 88, 0, 9), 0).into();
    c.send(&a, nobody, &request(77, nobody));
    assert_eq!(error(&mut engine, &a, 2), Errno::HOSTUNREACH);
    // Private ones outside.
    let private = (Ipv4Addr::LOCALHOST, 0).into();
    c.send(&a, private, &request(77, private));
    assert_eq!(error(&mut engine, &a, 2), Errno::ACCESS);
    // What the other does not want it does not hear, and does not say so.
    let other = (Ipv4Addr::new(10, 88, 0, 4), 0).into();
    c.send(&a, other, &request(77, other));
    until(&mut engine, |_| (b.counts.read().received.drops == 1).then_some(()));
    assert_eq!((c.next(&a), a.socket(2).error.load(Ordering::SeqCst)), (None, 0));
}

#[test]
fn what_is_no_request_is_not_sent() {
    let mut engine = Engine::new().unwrap();
    let mut a = Guest::new(&mut engine, 3, Rules::default(), Vec::new());
    let mut c = Gram::echo(&mut engine, &mut a, 2, any(77));
    let good = request(77, host(0));
    let mut of_code_1 = good.clone();
    of_code_1[1] = 1;
    for bad in [&good[..7], &[], &of_code_1, &request(77, (Ipv6Addr::from(HOST6), 0).into())] {
        c.send(&a, host(0), bad);
        assert_eq!(error(&mut engine, &a, 2), Errno::INVAL);
    }
    let ticket = a.ask(Request::Peer { socket: 2, to: end_of(host(1)) });
    assert_ne!(done(&mut engine, &mut a, ticket), 0);
    assert_eq!(c.next(&a), None);
}

#[test]
fn outside_is_asked_if_the_host_lets_us() {
    let mut engine = Engine::new().unwrap();
    for (ip, rule) in [("127.0.0.1", "127.0.0.1/icmp"), ("::1", "::1/icmp")] {
        let to = SocketAddr::new(ip.parse().unwrap(), 0);
        let icmp = if to.is_ipv4() { socket2::Protocol::ICMPV4 } else { socket2::Protocol::ICMPV6 };
        let host = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::DGRAM, Some(icmp));
        let host = host.and_then(|s| s.send_to(&request(1, to), &to.into()));
        let mut a = Guest::new(&mut engine, 3, allowed(rule), Vec::new());
        let mut c = Gram::echo(&mut engine, &mut a, 2, any(77));
        c.send(&a, to, &request(77, to));
        match host {
            Ok(_) => {
                let (from, m) = until(&mut engine, |_| c.next(&a));
                assert!(from == to && answers(&m, 77, to), "{from} {m:?}");
            }
            // net.ipv4.ping_group_range, or no IPv6.
            Err(e) => assert_eq!(error(&mut engine, &a, 2).raw_os_error(), e.raw_os_error().unwrap()),
        }
    }
}
