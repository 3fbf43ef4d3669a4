//! Flows that are there, as they are told to who asks.

use std::net::UdpSocket;

use super::datagrams::Gram;
use super::*;

fn all(engine: &Engine, g: &Guest) -> Vec<LiveFlow> {
    let (mut all, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let page = engine.flows(g.id, from);
        assert!(page.flows.len() <= FLOWS && page.next.is_none_or(|next| next > from));
        all.extend(page.flows);
        next = page.next;
    }
    all
}

#[test]
fn connections_are_told_with_what_they_moved() {
    let (to, _echo) = echo_server();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    assert_eq!(all(&engine, &g), []);
    let mut c = connected(&mut engine, &mut g, to);
    c.send(&g, b"hello");
    until(&mut engine, |_| c.receive(&g).filter(|got| got == b"hello"));
    let [flow] = &all(&engine, &g)[..] else { panic!("one") };
    assert_eq!(
        (flow.protocol, flow.direction, flow.state),
        (Protocol::Tcp, Direction::Out, FlowState::Established)
    );
    assert_eq!((flow.local, flow.peer), ((Ipv4Addr::new(10, 88, 0, 1), 40000).into(), to));
    assert_eq!((flow.sent, flow.received, flow.through), (5, 5, None));
    assert!(flow.host.unwrap().ip().is_loopback() && flow.age_ms < 60_000);
    c.end(&g);
    until(&mut engine, |engine| (all(engine, &g)[0].state != FlowState::Established).then_some(()));
    let ticket = g.ask(Request::Close { socket: 5, reset: true });
    assert_eq!(done(&mut engine, &mut g, ticket), 0);
    assert_eq!(all(&engine, &g), []);
}

#[test]
fn who_calls_is_told_with_the_port_that_was_called() {
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    host.set_nonblocking(true).unwrap();
    let address = host.local_addr().unwrap();
    let mut engine = Engine::new().unwrap();
    let published = vec![Published { port: 80, protocol: Transport::Tcp, socket: host.into() }];
    let mut g = Guest::new(&mut engine, 1, Rules::default(), published);
    g.ask(Request::Listen { socket: 3, at: own(1, 80), backlog: 16 });
    let caller = TcpStream::connect(address).unwrap();
    until(&mut engine, |engine| (!all(engine, &g).is_empty()).then_some(()));
    let [flow] = &all(&engine, &g)[..] else { panic!("one") };
    assert_eq!((flow.direction, flow.through, flow.host), (Direction::In, Some(address), None));
    assert_eq!(
        (flow.local, flow.peer),
        ((Ipv4Addr::new(10, 88, 0, 1), 80).into(), caller.local_addr().unwrap())
    );
}

#[test]
fn peers_of_datagrams_are_told_and_bounded() {
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    let mut s = Gram::new(&mut engine, &mut g, 3, own(1, 4000));
    let peers: Vec<UdpSocket> = (0..70).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    s.send(&g, peers[0].local_addr().unwrap(), b"hello");
    let mut b = [0; 16];
    peers[0].set_nonblocking(true).unwrap();
    let (_, from) = until(&mut engine, |_| peers[0].recv_from(&mut b).ok());
    peers[0].send_to(b"hi", from).unwrap();
    until(&mut engine, |_| s.next(&g));
    let [flow] = &all(&engine, &g)[..] else { panic!("one") };
    assert_eq!(
        (flow.protocol, flow.state, flow.sent, flow.received),
        (Protocol::Udp, FlowState::Active, 5, 2)
    );
    assert_eq!((flow.peer, flow.local.port()), (peers[0].local_addr().unwrap(), 4000));
    assert_eq!(flow.host.map(|a| a.port()), Some(from.port()));
    for p in &peers {
        s.send(&g, p.local_addr().unwrap(), b"x");
    }
    until(&mut engine, |engine| (engine.flows(g.id, 0).left_out == 6).then_some(()));
    assert_eq!(engine.flows(g.id, 0).flows.len(), 64);
}

#[test]
fn a_page_is_bounded_and_the_next_goes_on() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    for n in 0..100u32 {
        let socket = n * 80;
        g.socket(socket).reset();
        let ticket = g.ask(Request::Connect { socket, from: own(1, 0), to: end_of(to) });
        until(&mut engine, |_| {
            server.set_nonblocking(true).unwrap();
            let _ = server.accept();
            match g.answer()? {
                Answer::Done { ticket: t, error: 0, .. } if t == ticket => Some(()),
                other => panic!("{other:?}"),
            }
        });
    }
    let first = engine.flows(g.id, 0);
    assert!(first.flows.len() < 100 && first.next.is_some());
    assert_eq!(all(&engine, &g).len(), 100);
    // Another client's place says nothing of this one's.
    let other = Guest::new(&mut engine, 2, Rules::default(), Vec::new());
    assert_eq!(all(&engine, &other), []);
}
