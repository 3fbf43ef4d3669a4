//! Rules that change while flows are under way, and addresses that are not a domain's own.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::datagrams::{Gram, any, host, host_socket};
use super::*;

fn refused(engine: &mut Engine, g: &mut Guest, to: SocketAddr) -> bool {
    let ticket = g.ask(Request::Connect { socket: 9, from: own(1, 0), to: end_of(to) });
    i32::from(done(engine, g, ticket)) == Errno::ACCESS.raw_os_error()
}

#[test]
fn connections_that_a_new_rule_forbids_are_cut() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = host(server.local_addr().unwrap().port());
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, allowed("10.88.0.1"), Vec::new());
    let mut other = Guest::new(&mut engine, 2, allowed("10.88.0.1"), Vec::new());
    let (mut c, mut kept) = (connected(&mut engine, &mut g, to), connected(&mut engine, &mut other, to));
    let (mut peer, mut other_peer) = (server.accept().unwrap().0, server.accept().unwrap().0);
    // Rules that still allow it change nothing.
    engine.set_rules(g.id, allowed("10.88.0.0/16"));
    c.send(&g, b"one");
    until(&mut engine, |_| (g.counts.read().sent.bytes == 3).then_some(()));
    let mut got = [0; 3];
    peer.read_exact(&mut got).unwrap();
    engine.set_rules(g.id, Rules::default());
    until(&mut engine, |_| c.receive(&g).is_none().then_some(()));
    let error = g.socket(5).error.load(Ordering::Acquire);
    assert_eq!(error, Errno::CONNRESET.raw_os_error().unsigned_abs());
    assert_eq!(peer.read(&mut got).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(refused(&mut engine, &mut g, to));
    // The program may close it as any other.
    let ticket = g.ask(Request::Close { socket: 5, reset: false });
    assert_eq!(done(&mut engine, &mut g, ticket), 0);
    kept.send(&other, b"two");
    until(&mut engine, |_| (other.counts.read().sent.bytes == 3).then_some(()));
    other_peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"two");
}

#[test]
fn orders_come_before_callers_who_came_after_them() {
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    host.set_nonblocking(true).unwrap();
    let address = host.local_addr().unwrap();
    let mut engine = Engine::new().unwrap();
    let published = vec![Published { port: 80, protocol: Transport::Tcp, socket: host.into() }];
    let mut g = Guest::new(&mut engine, 1, Rules::default(), published);
    g.ask(Request::Listen { socket: 3, at: own(1, 80), backlog: 16 });
    until(&mut engine, |_| g.answer());
    let (control, mut supervisor) = UnixStream::pair().unwrap();
    engine.watch_control(control.as_fd()).unwrap();
    // Both are there when the service wakes: rules that deny everybody, and a caller who came after they were sent.
    supervisor.write_all(b"x").unwrap();
    let mut caller = TcpStream::connect(address).unwrap();
    let told = (0..1000).any(|_| engine.wait(Some(Duration::from_millis(10))).unwrap());
    assert!(told && g.answer().is_none(), "nothing is done before the supervisor was heard");
    let deny = vec![Rule::new("0.0.0.0/0".parse().unwrap(), Action::Deny)];
    engine.set_rules(g.id, Rules { inbound: deny, ..Rules::default() });
    engine.work();
    until(&mut engine, |_| (g.counts.read().received.drops > 0).then_some(()));
    assert_eq!(g.answer(), None);
    assert!(!matches!(caller.read(&mut [0]), Ok(1..)));
}

#[test]
fn connections_between_domains_are_cut_on_either_side() {
    for of_server in [false, true] {
        let mut engine = Engine::new().unwrap();
        let mut server = Guest::new(&mut engine, 2, Rules::default(), Vec::new());
        let mut client = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
        server.ask(Request::Listen { socket: 0, at: own(2, 7), backlog: 1 });
        until(&mut engine, |_| server.answer());
        let to = SocketAddr::new(Ipv4Addr::new(10, 88, 0, 2).into(), 7);
        let mut a = connected(&mut engine, &mut client, to);
        let number = until(&mut engine, |_| match server.answer()? {
            Answer::Accepted { socket, .. } => Some(socket),
            other => panic!("{other:?}"),
        });
        let mut b = Connection::new(number);
        let deny = |text: &str| vec![Rule::new(text.parse().unwrap(), Action::Deny)];
        if of_server {
            engine.set_rules(server.id, Rules { inbound: deny("10.88.0.1:7"), ..Rules::default() });
        } else {
            engine.set_rules(client.id, Rules { outbound: deny("10.88.0.2"), ..Rules::default() });
        }
        until(&mut engine, |_| a.receive(&client).is_none().then_some(()));
        until(&mut engine, |_| b.receive(&server).is_none().then_some(()));
        assert_eq!(refused(&mut engine, &mut client, to), !of_server);
    }
}

#[test]
fn datagrams_of_a_flow_that_a_new_rule_forbids_are_lost() {
    let (server, port) = host_socket();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, allowed("10.88.0.1"), Vec::new());
    let mut c = Gram::new(&mut engine, &mut g, 4, any(5000));
    c.send(&g, host(port), b"one");
    until(&mut engine, |_| (g.counts.read().sent.packets == 1).then_some(()));
    let mut got = [0; 16];
    let (_, from) = server.recv_from(&mut got).unwrap();
    engine.set_rules(g.id, Rules::default());
    server.send_to(b"late", from).unwrap();
    c.send(&g, host(port), b"two");
    until(&mut engine, |_| (g.counts.read().sent.drops == 1).then_some(()));
    engine.set_rules(g.id, allowed("10.88.0.1"));
    c.send(&g, host(port), b"three");
    until(&mut engine, |_| (g.counts.read().sent.packets == 2).then_some(()));
    let (n, from) = server.recv_from(&mut got).unwrap();
    assert_eq!(&got[..n], b"three");
    server.send_to(b"heard", from).unwrap();
    assert_eq!(until(&mut engine, |_| c.next(&g)).1, b"heard");
}

#[test]
fn a_domain_sends_as_itself_whatever_it_says() {
    let mut engine = Engine::new().unwrap();
    let mut server = Guest::new(&mut engine, 2, Rules::default(), Vec::new());
    let mut client = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    server.ask(Request::Listen { socket: 0, at: own(2, 7), backlog: 1 });
    until(&mut engine, |_| server.answer());
    // Of a neighbour, and of the host.
    for false_one in [own(9, 40000), end_of(SocketAddr::new(Ipv4Addr::new(10, 88, 0, 1).into(), 40000))] {
        let ticket = client.ask(Request::Connect { socket: 5, from: false_one, to: own(2, 7) });
        assert_eq!(done(&mut engine, &mut client, ticket), 0);
        let peer = until(&mut engine, |_| match server.answer()? {
            Answer::Accepted { peer, .. } => Some(peer),
            other => panic!("{other:?}"),
        });
        assert_eq!(peer, own(1, 40000));
        let ticket = client.ask(Request::Close { socket: 5, reset: true });
        assert_eq!(done(&mut engine, &mut client, ticket), 0);
    }
    let mut hears = Gram::new(&mut engine, &mut server, 1, any(54));
    let mut says = Gram::new(&mut engine, &mut client, 6, own(9, 1000));
    says.send(&client, SocketAddr::new(Ipv4Addr::new(10, 88, 0, 2).into(), 54), b"hello");
    let (from, bytes) = until(&mut engine, |_| hears.next(&server));
    assert_eq!((end_of(from), &bytes[..]), (own(1, 1000), &b"hello"[..]));
}
