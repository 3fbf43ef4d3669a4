//! A domain that writes whatever it likes wherever it can, at any time, beside one that behaves.

use std::net::UdpSocket;

use super::hostile_domain::{Byzantine, Dice};
use super::*;

/// An echo over a connection of `g` to the host, so many bytes of it; `meanwhile` has the engine before each look.
fn echo(engine: &mut Engine, g: &mut Guest, bytes: usize, mut meanwhile: impl FnMut(&mut Engine)) {
    let (to, peer) = echo_server();
    let mut c = connected(engine, g, to);
    let text: Vec<u8> = Dice(7).take(bytes).collect();
    let (mut sent, mut back) = (0, Vec::new());
    until(engine, |engine| {
        meanwhile(engine);
        if sent < text.len() {
            sent += c.send(g, &text[sent..]);
            if sent == text.len() {
                c.end(g);
            }
        }
        back.extend(c.receive(g)?);
        (back.len() == text.len()).then_some(())
    });
    assert!(back == text, "other bytes come back");
    let ticket = g.ask(Request::Close { socket: 5, reset: false });
    assert_eq!(done(engine, g, ticket), 0);
    peer.join().unwrap();
}

/// Calls without waiting for anything: a backlog may be full.
fn call(listener: &TcpListener) {
    let to = listener.local_addr().unwrap();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    // Under way is all it can be.
    let _ = socket.connect(&to.into());
}

#[test]
fn a_neighbour_of_a_byzantine_domain_gets_what_it_is_sent() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    tcp.set_nonblocking(true).unwrap();
    let (udp, caller) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    udp.set_nonblocking(true).unwrap();
    caller.connect(udp.local_addr().unwrap()).unwrap();
    let mut engine = Engine::new().unwrap();
    let mut good = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    let mut lives = 0;
    let mut bad = Byzantine::new(&mut engine, lives, &tcp, &udp);
    let mut looks = 0;
    while lives < 25 {
        echo(&mut engine, &mut good, 1 << 20, |engine| {
            looks += 1;
            // Whoever calls outlives the domain that is called; that it is refused is all right.
            let _ = caller.send(b"to whom it may concern");
            if looks % 16 == 0 {
                call(&tcp);
            }
            if !engine.serves(bad.id) || looks % 8 == 0 {
                engine.detach(bad.id);
                lives += 1;
                bad = Byzantine::new(engine, lives, &tcp, &udp);
            }
        });
    }
    assert!(engine.serves(good.id));
}
