//! What burdens the service while others would notice: it waits, all of it is done in the end, and nothing else waits with it.

use super::datagrams::{Gram, any, host, host_socket};
use super::*;

/// An engine in which others would always notice.
fn strained() -> Engine {
    let mut engine = Engine::new().unwrap();
    engine.pressure.always = true;
    engine
}

#[test]
fn what_waits_is_done_in_the_end_and_sockets_close_after_it() {
    const SOCKETS: u32 = 100;
    const EACH: u64 = 50;
    let (_ear, port) = host_socket();
    let mut engine = strained();
    let mut g = Guest::new(&mut engine, 1, allowed("10.88.0.1"), Vec::new());
    for n in 0..SOCKETS {
        let mut c = Gram::new(&mut engine, &mut g, n, any(5000 + n as u16));
        (0..EACH).for_each(|_| c.send(&g, host(port), b"hello"));
    }
    let begun = Instant::now();
    for n in 0..SOCKETS {
        let ticket = g.ask(Request::Close { socket: n, reset: false });
        assert_eq!(done(&mut engine, &mut g, ticket), 0);
    }
    assert_eq!(g.counts.read().sent.packets, u64::from(SOCKETS) * EACH);
    assert!(begun.elapsed() > Duration::from_millis(10), "nothing waited");
}

#[test]
fn a_stream_goes_on_while_datagrams_of_its_domain_wait() {
    let (_ear, port) = host_socket();
    let (to, echo) = echo_server();
    let mut engine = strained();
    let mut g = Guest::new(&mut engine, 1, allowed("10.88.0.1"), Vec::new());
    let mut c = connected(&mut engine, &mut g, host(to.port()));
    let mut grams: Vec<_> =
        (10..90).map(|n| Gram::new(&mut engine, &mut g, n, any(5000 + n as u16))).collect();
    for gram in &mut grams {
        (0..200).for_each(|_| gram.send(&g, host(port), b"hello"));
    }
    let (mut asked, mut back) = (0, 0);
    until(&mut engine, |_| {
        asked += c.send(&g, &[7; 1000][..1000 - asked]);
        back += c.receive(&g).unwrap().len();
        (back == 1000).then_some(())
    });
    assert!(g.counts.read().sent.packets < 80 * 200, "all datagrams were sent first");
    c.end(&g);
    until(&mut engine, |_| c.receive(&g).is_none().then_some(()));
    echo.join().unwrap();
}

#[test]
fn who_moves_much_does_it_in_pieces_while_others_wait_for_answers() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = host(server.local_addr().unwrap().port());
    let bytes = vec![7; 1 << 20];
    for awaited in [false, true] {
        let mut engine = Engine::new().unwrap();
        let mut g = Guest::new(&mut engine, 1, allowed("10.88.0.1"), Vec::new());
        let mut c = connected(&mut engine, &mut g, to);
        let (mut peer, _) = server.accept().unwrap();
        peer.set_nonblocking(true).unwrap();
        engine.pressure.always = awaited;
        let (mut before, mut most) = (0, 0);
        until(&mut engine, |_| {
            let sent = g.counts.read().sent.bytes;
            most = most.max(sent - before);
            before = sent;
            let _ = peer.read(&mut vec![0; 1 << 20]);
            c.send(&g, &bytes);
            (sent > 4 << 20).then_some(())
        });
        assert_eq!(most <= 64 << 10, awaited, "{most} bytes in a turn");
    }
}
