//! The engine with guest kernels of a few lines, and peers on the host's loopback.

#![allow(clippy::disallowed_methods, reason = "a test may fail for want of a thread")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use doppel_abi_service::net::{Answer, End, Request, SocketOption, down_buffer, up_buffer};
use doppel_abi_service::{Answers, Bells, Requests, layout};
use doppel_ring::{Ticket, Writer};
use rustix::io::Errno;

use self::guest::{Connection, Guest, at, done, until};
use crate::*;

mod acts;
mod burdens;
mod byzantine;
mod changes;
mod datagrams;
mod echo;
mod guest;
mod hangs;
mod hostile;
mod hostile_domain;
mod live;
mod networks;
mod options;
mod quotas;
mod rates;
mod steps;

fn end_of(address: SocketAddr) -> End {
    crate::flow::address::end(address)
}

fn own(last: u8, port: u16) -> End {
    end_of(SocketAddr::new(Ipv4Addr::new(10, 88, 0, last).into(), port))
}

/// Rules that let a domain send to these addresses.
fn allowed(pattern: &str) -> Rules {
    let rule = Rule::new(pattern.parse().unwrap(), Action::Allow);
    Rules { outbound: vec![rule], ..Rules::default() }
}

/// Rules that let a domain reach the host's loopback, where the tests' peers are.
fn to_loopback() -> Rules {
    allowed("127.0.0.0/8")
}

fn connected(engine: &mut Engine, g: &mut Guest, to: SocketAddr) -> Connection {
    g.socket(5).reset();
    let ticket = g.ask(Request::Connect { socket: 5, from: own(1, 40000), to: end_of(to) });
    assert_eq!(done(engine, g, ticket), 0);
    Connection::new(5)
}

/// A server of the host that sends back what comes over one connection, until that ends.
fn echo_server() -> (SocketAddr, std::thread::JoinHandle<()>) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let echo = std::thread::spawn(move || {
        let (mut s, _) = server.accept().unwrap();
        let mut bytes = vec![0; 65536];
        loop {
            match s.read(&mut bytes).unwrap() {
                0 => return,
                n => s.write_all(&bytes[..n]).unwrap(),
            }
        }
    });
    (to, echo)
}

#[test]
fn a_domain_connects_to_a_server_and_megabytes_come_back() {
    let (to, echo) = echo_server();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    let mut c = connected(&mut engine, &mut g, to);
    let text: Vec<u8> = (0..5_000_000u32).map(|i| (i ^ i >> 8) as u8).collect();
    let (mut sent, mut back) = (0, Vec::new());
    until(&mut engine, |_| {
        if sent < text.len() {
            sent += c.send(&g, &text[sent..]);
            if sent == text.len() {
                c.end(&g);
            }
        }
        match c.receive(&g) {
            Some(bytes) => back.extend(bytes),
            None => return Some(()),
        }
        None
    });
    assert!(back == text, "{} bytes came back", back.len());
    let Traffic { sent, received } = g.counts.read();
    assert_eq!((sent.bytes, received.bytes), (text.len() as u64, text.len() as u64));
    assert!(sent.packets > 0 && received.packets > 0);
    assert_eq!((sent.flows, received.flows, sent.drops, received.drops), (1, 0, 0, 0));
    let ticket = g.ask(Request::Close { socket: 5, reset: false });
    assert_eq!(done(&mut engine, &mut g, ticket), 0);
    echo.join().unwrap();
}

#[test]
fn a_published_port_leads_to_the_domains_listener() {
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    host.set_nonblocking(true).unwrap();
    let address = host.local_addr().unwrap();
    let mut engine = Engine::new().unwrap();
    let published = vec![Published { port: 80, protocol: Transport::Tcp, socket: host.into() }];
    let mut g = Guest::new(&mut engine, 1, Rules::default(), published);
    // The caller comes before the server listens: it waits.
    let mut caller = TcpStream::connect(address).unwrap();
    for _ in 0..3 {
        engine.turn(Some(Duration::from_millis(1))).unwrap();
    }
    assert_eq!(g.answer(), None);
    let any = End { ip: crate::flow::address::bytes(Ipv4Addr::UNSPECIFIED.into()), port: 80 };
    g.ask(Request::Listen { socket: 3, at: any, backlog: 16 });
    let mut accepted = None;
    until(&mut engine, |_| {
        match g.answer()? {
            Answer::Done { error, .. } => assert_eq!(error, 0),
            Answer::Accepted { listener, socket, peer, port } => {
                assert_eq!((listener, peer, port), (3, end_of(caller.local_addr().unwrap()), 80));
                accepted = Some(socket);
            }
        }
        accepted
    });
    let mut c = Connection::new(accepted.unwrap());
    assert_eq!(c.send(&g, b"hello"), 5);
    c.end(&g);
    caller.set_nonblocking(true).unwrap();
    let mut got = Vec::new();
    until(&mut engine, |_| match caller.read_to_end(&mut got) {
        Ok(_) => Some(()),
        Err(e) => {
            assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock);
            None
        }
    });
    assert_eq!(got, b"hello");
}

#[test]
fn who_listens_at_every_port_says_which_are_taken() {
    let mut engine = Engine::new().unwrap();
    let mut server = Guest::new(&mut engine, 2, Rules::default(), Vec::new());
    let mut client = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    server.ask(Request::Listen { socket: 0, at: End::default(), backlog: 1 });
    until(&mut engine, |_| server.answer());
    for (socket, taken) in [(5, true), (6, false)] {
        let ticket = client.ask(Request::Connect { socket, from: own(1, 40000), to: own(2, 7) });
        let number = until(&mut engine, |_| match server.answer()? {
            Answer::Accepted { socket, port: 7, .. } => Some(socket),
            _ => None,
        });
        engine.turn(Some(std::time::Duration::ZERO)).unwrap();
        assert!(client.answer().is_none(), "it waits");
        server.ask(if taken {
            Request::Take { socket: number }
        } else {
            Request::Close { socket: number, reset: true }
        });
        let expected = if taken { 0 } else { Errno::CONNREFUSED.raw_os_error() };
        assert_eq!(i32::from(done(&mut engine, &mut client, ticket)), expected);
        if taken {
            let (mut a, mut b) = (Connection::new(socket), Connection::new(number));
            a.send(&client, b"ping");
            assert_eq!(until(&mut engine, |_| b.receive(&server).filter(|g| !g.is_empty())), b"ping");
        }
    }
}

#[test]
fn domains_of_one_network_reach_each_other_and_no_others() {
    let mut engine = Engine::new().unwrap();
    let mut server = Guest::new(&mut engine, 2, Rules::default(), Vec::new());
    let mut client = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    server.ask(Request::Listen { socket: 0, at: own(2, 7), backlog: 1 });
    until(&mut engine, |_| server.answer());
    for (to, error) in [(own(2, 8), Errno::CONNREFUSED), (own(3, 7), Errno::HOSTUNREACH)] {
        let ticket = client.ask(Request::Connect { socket: 5, from: own(1, 40000), to });
        assert_eq!(i32::from(done(&mut engine, &mut client, ticket)), error.raw_os_error());
    }
    let mut a = connected(&mut engine, &mut client, SocketAddr::new(Ipv4Addr::new(10, 88, 0, 2).into(), 7));
    let (number, peer) = until(&mut engine, |_| match server.answer()? {
        Answer::Accepted { socket, peer, .. } => Some((socket, peer)),
        other => panic!("{other:?}"),
    });
    assert_eq!(peer, own(1, 40000), "the server sees the client's own address");
    let mut b = Connection::new(number);
    a.send(&client, b"ping");
    let got = until(&mut engine, |_| b.receive(&server).filter(|g| !g.is_empty()));
    assert_eq!(got, b"ping");
    let ticket = client.ask(Request::Set { socket: 5, option: SocketOption::NoDelay, value: 1 });
    assert_eq!(done(&mut engine, &mut client, ticket), 0);
}

#[test]
fn a_reset_comes_after_what_was_written_before() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    let mut c = connected(&mut engine, &mut g, server.local_addr().unwrap());
    let (mut peer, _) = server.accept().unwrap();
    // Both in one turn of the engine, in which requests come first.
    c.send(&g, b"last words");
    let ticket = g.ask(Request::Close { socket: 5, reset: true });
    assert_eq!(done(&mut engine, &mut g, ticket), 0);
    let mut got = Vec::new();
    let end = peer.read_to_end(&mut got);
    assert_eq!(got, b"last words");
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn the_host_is_reached_by_a_rule_only() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = SocketAddr::new(Ipv4Addr::new(10, 88, 0, 1).into(), server.local_addr().unwrap().port());
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    let ticket = g.ask(Request::Connect { socket: 1, from: own(1, 0), to: end_of(to) });
    assert_eq!(i32::from(done(&mut engine, &mut g, ticket)), Errno::ACCESS.raw_os_error());
    let mut g = Guest::new(&mut engine, 2, allowed("10.88.0.1"), Vec::new());
    connected(&mut engine, &mut g, to);
    server.accept().unwrap();
}

#[test]
fn what_no_rule_allows_is_refused() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    let to = end_of(server.local_addr().unwrap());
    let ticket = g.ask(Request::Connect { socket: 1, from: own(1, 0), to });
    assert_eq!(i32::from(done(&mut engine, &mut g, ticket)), Errno::ACCESS.raw_os_error());
}

#[test]
fn a_reset_is_an_error_and_an_end() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    let mut c = connected(&mut engine, &mut g, to);
    let (peer, _) = server.accept().unwrap();
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    until(&mut engine, |_| c.receive(&g).is_none().then_some(()));
    let error = g.socket(5).error.swap(0, Ordering::SeqCst);
    assert_eq!(i32::try_from(error).unwrap(), Errno::CONNRESET.raw_os_error());
}

#[test]
fn a_domain_that_breaks_the_protocol_loses_the_network_alone() {
    let mut engine = Engine::new().unwrap();
    let good = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    for kind in 0..3 {
        let mut bad = Guest::new(&mut engine, 2, Rules::default(), Vec::new());
        engine.turn(Some(Duration::ZERO)).unwrap();
        let ring = bad.map.get::<Requests>(at(layout::REQUESTS)).ring();
        let entry = match kind {
            0 => [u64::MAX; 8],
            1 => Request::Close { socket: 0, reset: false }.encode(Ticket(1)).map(|w| w | 15),
            // A number that only the service domain gives.
            _ => Request::Listen { socket: 9000, at: End::default(), backlog: 1 }.encode(Ticket(1)),
        };
        bad.requests.push(&ring, &entry).unwrap();
        let _ = bad.requests.publish(&ring);
        bad.ring();
        let id = bad.id;
        until(&mut engine, |e| (!e.serves(id)).then_some(()));
        assert!(engine.serves(good.id));
    }
}

#[test]
fn private_addresses_are_known_in_all_their_guises() {
    for ip in [
        "127.0.0.1",
        "10.1.2.3",
        "172.31.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "::",
        "::1",
        "fe80::1",
        "fd00:ec2::254",
        "ff02::1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "::127.0.0.1",
        "2001:db8::1",
    ] {
        assert!(rules::is_private(ip.parse().unwrap()), "{ip}");
    }
    for ip in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::101:101"] {
        assert!(!rules::is_private(ip.parse().unwrap()), "{ip}");
    }
}
