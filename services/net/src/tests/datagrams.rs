//! Datagram sockets.

use std::net::UdpSocket;

use doppel_abi_service::net::DatagramHeader;
use doppel_abi_service::net::address::RESOLVER4;

use super::*;

/// A datagram socket of a guest; with the port at which it last heard something, and from which it sends if it has all.
pub(super) struct Gram(Connection, u16);

impl Gram {
    pub(super) fn new(engine: &mut Engine, g: &mut Guest, n: u32, at: End) -> Self {
        g.socket(n).reset();
        let ticket = g.ask(Request::Datagrams { socket: n, at });
        assert_eq!(done(engine, g, ticket), 0);
        Self(Connection::new(n), 0)
    }

    pub(super) fn echo(engine: &mut Engine, g: &mut Guest, n: u32, at: End) -> Self {
        g.socket(n).reset();
        let ticket = g.ask(Request::Echo { socket: n, at });
        assert_eq!(done(engine, g, ticket), 0);
        Self(Connection::new(n), 0)
    }

    pub(super) fn number(&self) -> u32 {
        self.0.n
    }

    pub(super) fn send(&mut self, g: &Guest, to: SocketAddr, bytes: &[u8]) {
        self.send_as(g, to, bytes, bytes.len());
    }

    /// With a header that says `len`.
    fn send_as(&mut self, g: &Guest, to: SocketAddr, bytes: &[u8], len: usize) {
        let len = u16::try_from(len).unwrap();
        let head = DatagramHeader { peer: end_of(to), len, hops: 0, class: 0, port: self.1 };
        let mut all = head.encode().to_vec();
        all.extend(bytes);
        all.resize(DatagramHeader::room(bytes.len()), 0);
        let stream = g.socket(self.0.n).up();
        let mut skip = 0;
        while skip < all.len() {
            let span = self.0.up.span(&stream, u32::try_from(skip).unwrap()).unwrap();
            let n = span.len.min(all.len() - skip);
            assert!(n > 0, "no room");
            g.map.write(at(up_buffer(self.0.n)) + span.offset, &all[skip..skip + n]);
            skip += n;
        }
        if self.0.up.advance(&stream, all.len()) {
            g.mark(self.0.n);
        }
    }

    pub(super) fn next(&mut self, g: &Guest) -> Option<(SocketAddr, Vec<u8>)> {
        self.next_with_header(g).map(|(head, bytes)| (crate::flow::address::socket_addr(&head.peer), bytes))
    }

    /// Likewise, or a record.
    pub(super) fn next_with_header(&mut self, g: &Guest) -> Option<(DatagramHeader, Vec<u8>)> {
        let stream = g.socket(self.0.n).down();
        if self.0.down.waiting(&stream).unwrap() == 0 {
            let _ = self.0.down.sleep(&stream).unwrap();
            return None;
        }
        let take = |c: &Connection, skip: usize, to: &mut [u8]| {
            let mut done = 0;
            while done < to.len() {
                let span = c.down.span(&stream, u32::try_from(skip + done).unwrap()).unwrap();
                let n = span.len.min(to.len() - done);
                g.map.read(at(down_buffer(c.n)) + span.offset, &mut to[done..done + n]);
                done += n;
            }
        };
        let mut head = [0; DatagramHeader::SIZE];
        take(&self.0, 0, &mut head);
        let head = DatagramHeader::decode(&head);
        let mut bytes = vec![0; head.len.into()];
        take(&self.0, DatagramHeader::SIZE, &mut bytes);
        if self.0.down.advance(&stream, DatagramHeader::room(bytes.len())) {
            g.mark(self.0.n);
        }
        self.1 = head.port;
        Some((head, bytes))
    }
}

pub(super) fn any(port: u16) -> End {
    end_of((Ipv4Addr::UNSPECIFIED, port).into())
}

pub(super) fn host_socket() -> (UdpSocket, u16) {
    let s = UdpSocket::bind("127.0.0.1:0").unwrap();
    s.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let port = s.local_addr().unwrap().port();
    (s, port)
}

/// The host as domains see it, which a rule lets them reach.
pub(super) fn host(port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 88, 0, 1), port).into()
}

fn to_host() -> Rules {
    allowed("10.88.0.1")
}

#[test]
fn answers_come_from_those_only_who_were_asked() {
    let ((server, port), (stranger, _)) = (host_socket(), host_socket());
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_host(), Vec::new());
    let mut c = Gram::new(&mut engine, &mut g, 4, any(5000));
    // Around the buffer more than once, and past its end.
    for i in 0..40u8 {
        let bytes = vec![i; 1 + usize::from(i) * 200];
        c.send(&g, host(port), &bytes);
        let mut got = [0; 65536];
        server.set_nonblocking(true).unwrap();
        let (n, from) = until(&mut engine, |_| server.recv_from(&mut got).ok());
        assert_eq!(got[..n], bytes);
        stranger.send_to(b"not asked", from).unwrap();
        server.send_to(&got[..n], from).unwrap();
        assert_eq!(until(&mut engine, |_| c.next(&g)), (host(port), bytes));
    }
    let longest = vec![7; 65_507];
    c.send(&g, host(port), &longest);
    let mut got = [0; 65536];
    server.set_nonblocking(true).unwrap();
    let (n, from) = until(&mut engine, |_| server.recv_from(&mut got).ok());
    server.send_to(&got[..n], from).unwrap();
    assert_eq!(until(&mut engine, |_| c.next(&g)).1, longest);
    let Traffic { sent, received } = g.counts.read();
    // What nobody asked for is not received.
    assert_eq!((sent.packets, received.packets), (41, 41));
    assert_eq!(sent.bytes, received.bytes);
    assert_eq!((sent.flows, sent.drops), (1, 0));
}

#[test]
fn a_peer_that_is_not_there_is_told() {
    let (gone, port) = host_socket();
    drop(gone);
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_host(), Vec::new());
    let mut c = Gram::new(&mut engine, &mut g, 4, any(5000));
    let ticket = g.ask(Request::Peer { socket: 4, to: end_of(host(port)) });
    assert_eq!(done(&mut engine, &mut g, ticket), 0);
    c.send(&g, host(port), b"anybody?");
    let error = until(&mut engine, |_| match g.socket(4).error.swap(0, Ordering::SeqCst) {
        0 => None,
        e => Some(e),
    });
    assert_eq!(i32::try_from(error).unwrap(), Errno::CONNREFUSED.raw_os_error());
}

#[test]
fn what_no_rule_allows_is_refused_or_dropped() {
    let (server, port) = host_socket();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    let ticket = {
        let mut c = Gram::new(&mut engine, &mut g, 4, any(5000));
        c.send(&g, host(port), b"denied");
        g.ask(Request::Peer { socket: 4, to: end_of(host(port)) })
    };
    assert_eq!(i32::from(done(&mut engine, &mut g, ticket)), Errno::ACCESS.raw_os_error());
    // The answer to a later request shows that what was sent has been seen to.
    let ticket = g.ask(Request::Close { socket: 4, reset: false });
    assert_eq!(done(&mut engine, &mut g, ticket), 0);
    server.set_nonblocking(true).unwrap();
    assert_eq!(server.recv_from(&mut [0; 16]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn what_is_sent_before_a_close_goes_out() {
    let (server, port) = host_socket();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_host(), Vec::new());
    let mut c = Gram::new(&mut engine, &mut g, 4, any(5000));
    for _ in 0..3 {
        c.send(&g, host(port), b"last words");
    }
    let ticket = g.ask(Request::Close { socket: 4, reset: false });
    assert_eq!(done(&mut engine, &mut g, ticket), 0);
    for _ in 0..3 {
        assert_eq!(server.recv(&mut [0; 16]).unwrap(), 10);
    }
}

#[test]
fn a_published_port_is_answered_from_there() {
    let (published, port) = host_socket();
    published.set_nonblocking(true).unwrap();
    let (caller, caller_port) = host_socket();
    caller.connect(("127.0.0.1", port)).unwrap();
    caller.set_nonblocking(true).unwrap();
    let mut engine = Engine::new().unwrap();
    let published = Published { port: 53, protocol: Transport::Udp, socket: published.into() };
    let mut g = Guest::new(&mut engine, 1, Rules::default(), vec![published]);
    let mut s = Gram::new(&mut engine, &mut g, 4, any(53));
    caller.send(b"question").unwrap();
    let (from, bytes) = until(&mut engine, |_| s.next(&g));
    assert_eq!(
        (from, &bytes[..]),
        (host(caller_port), &b"question"[..]),
        "the host's loopback is not the domain's"
    );
    s.send(&g, from, b"answer");
    let mut got = [0; 16];
    let n = until(&mut engine, |_| caller.recv(&mut got).ok());
    assert_eq!(&got[..n], b"answer");
}

#[test]
fn domains_send_each_other_datagrams() {
    let mut engine = Engine::new().unwrap();
    let mut server = Guest::new(&mut engine, 4, Rules::default(), Vec::new());
    let mut client = Guest::new(&mut engine, 3, Rules::default(), Vec::new());
    let mut s = Gram::new(&mut engine, &mut server, 1, any(7));
    let mut c = Gram::new(&mut engine, &mut client, 2, any(5000));
    let to = |last, port| SocketAddr::from((Ipv4Addr::new(10, 88, 0, last), port));
    c.send(&client, to(4, 7), b"ping");
    assert_eq!(until(&mut engine, |_| s.next(&server)), (to(3, 5000), b"ping".to_vec()));
    s.send(&server, to(3, 5000), b"pong");
    assert_eq!(until(&mut engine, |_| c.next(&client)), (to(4, 7), b"pong".to_vec()));
    for (peer, error) in [(to(4, 8), Errno::CONNREFUSED), (to(9, 7), Errno::HOSTUNREACH)] {
        let ticket = client.ask(Request::Peer { socket: 2, to: end_of(peer) });
        assert_eq!(done(&mut engine, &mut client, ticket), 0);
        c.send(&client, peer, b"ping");
        let told = until(&mut engine, |_| match client.socket(2).error.swap(0, Ordering::SeqCst) {
            0 => None,
            e => Some(e),
        });
        assert_eq!(i32::try_from(told).unwrap(), error.raw_os_error());
    }
}

#[test]
fn the_resolver_is_whom_the_supervisor_says() {
    let (server, port) = host_socket();
    let mut engine = Engine::new().unwrap();
    let resolver = Some((Ipv4Addr::LOCALHOST, port).into());
    let mut g = Guest::with_resolver(&mut engine, 3, Rules::default(), Vec::new(), resolver);
    let mut c = Gram::new(&mut engine, &mut g, 1, any(5000));
    let to: SocketAddr = (Ipv4Addr::from(RESOLVER4), 53).into();
    c.send(&g, to, b"who is?");
    server.set_nonblocking(true).unwrap();
    let mut got = [0; 16];
    let (n, from) = until(&mut engine, |_| server.recv_from(&mut got).ok());
    assert_eq!(&got[..n], b"who is?");
    server.send_to(b"it is", from).unwrap();
    assert_eq!(until(&mut engine, |_| c.next(&g)), (to, b"it is".to_vec()));
}

#[test]
fn a_datagram_that_is_none_ends_its_own_domain_only() {
    let mut engine = Engine::new().unwrap();
    let good = Guest::new(&mut engine, 3, Rules::default(), Vec::new());
    let mut bad = Guest::new(&mut engine, 4, Rules::default(), Vec::new());
    let mut c = Gram::new(&mut engine, &mut bad, 1, any(5000));
    c.send_as(&bad, host(9), b"short", 60_000);
    let id = bad.id;
    until(&mut engine, |e| (!e.serves(id)).then_some(()));
    assert!(engine.serves(good.id));
}

#[test]
fn domains_of_a_network_are_found_by_name() {
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    let other = Guest::new(&mut engine, 9, Rules::default(), Vec::new());
    let mut c = Gram::new(&mut engine, &mut g, 4, any(5000));
    let server = SocketAddr::from((RESOLVER4, 53));
    let mut ask = |engine: &mut Engine, name: &str| {
        c.send(&g, server, &crate::names::dns::tests::question(name, 1));
        let (from, reply) = until(engine, |_| c.next(&g));
        assert_eq!(from, server);
        crate::names::dns::found(&reply).unwrap().addresses[0].0
    };
    // The host's name server is not needed: there is none here.
    for name in ["d9", "D9.back", "d9"] {
        assert_eq!(ask(&mut engine, name), Ipv4Addr::new(10, 88, 0, 9));
    }
    engine.set_name(other.id, "web".into());
    assert_eq!(ask(&mut engine, "web.back"), Ipv4Addr::new(10, 88, 0, 9));
    assert_eq!(ask(&mut engine, "d1"), Ipv4Addr::new(10, 88, 0, 1), "its own, too");
}

#[test]
fn a_socket_at_port_0_has_every_port_that_no_other_one_has() {
    let mut engine = Engine::new().unwrap();
    let mut server = Guest::new(&mut engine, 6, Rules::default(), Vec::new());
    let mut client = Guest::new(&mut engine, 5, Rules::default(), Vec::new());
    let mut every = Gram::new(&mut engine, &mut server, 1, any(0));
    let mut one = Gram::new(&mut engine, &mut server, 2, any(7000));
    let mut c = Gram::new(&mut engine, &mut client, 1, any(5000));
    let at = |port| SocketAddr::new(Ipv4Addr::new(10, 88, 0, 6).into(), port);
    let caller = SocketAddr::new(Ipv4Addr::new(10, 88, 0, 5).into(), 5000);
    c.send(&client, at(7000), b"one");
    assert_eq!(until(&mut engine, |_| one.next(&server)), (caller, b"one".to_vec()));
    for port in [7001, 53] {
        c.send(&client, at(port), b"every");
        assert_eq!(until(&mut engine, |_| every.next(&server)), (caller, b"every".to_vec()));
        assert_eq!(every.1, port, "it is told where");
        every.send(&server, caller, b"answer");
        assert_eq!(until(&mut engine, |_| c.next(&client)), (at(port), b"answer".to_vec()));
    }
    // Likewise for connections.
    server.ask(Request::Listen { socket: 3, at: any(0), backlog: 1 });
    until(&mut engine, |_| server.answer());
    let to = End { ip: Ipv4Addr::new(10, 88, 0, 6).to_ipv6_mapped().octets(), port: 8080 };
    client.ask(Request::Connect { socket: 3, from: End::default(), to });
    let (listener, port) = until(&mut engine, |_| match server.answer()? {
        Answer::Accepted { listener, port, .. } => Some((listener, port)),
        other => panic!("{other:?}"),
    });
    assert_eq!((listener, port), (3, 8080));
}
