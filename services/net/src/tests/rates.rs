//! Bytes a second.

use super::datagrams::{Gram, any, host, host_socket};
use super::*;

/// Rules that let a domain reach the host, at these rates.
fn at_rates(outbound: Option<u64>, inbound: Option<u64>) -> Rules {
    Rules { rates: Rates { outbound, inbound }, ..allowed("10.88.0.1") }
}

/// What a rate lets through in a time, at most: the burst, and what is too small to count.
fn most(rate: u64, time: Duration) -> u64 {
    65_536.max(rate / 10) + rate * u64::try_from(time.as_micros()).unwrap() / 1_000_000 + 16
}

#[test]
fn a_stream_waits_for_its_rate_in_either_direction() {
    const RATE: u64 = 1_000_000;
    let begun = Instant::now();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = host(server.local_addr().unwrap().port());
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, at_rates(Some(RATE), Some(RATE)), Vec::new());
    let mut c = connected(&mut engine, &mut g, to);
    let (mut peer, _) = server.accept().unwrap();
    peer.set_nonblocking(true).unwrap();
    let bytes = vec![7; 1 << 20];
    // Both ways at once, and more than a burst.
    let total = 300_000;
    until(&mut engine, |_| {
        c.send(&g, &bytes);
        let _ = peer.write(&bytes);
        let _ = peer.read(&mut vec![0; 1 << 20]);
        let _ = c.receive(&g).expect("no end");
        let Traffic { sent, received } = g.counts.read();
        for moved in [sent.bytes, received.bytes] {
            assert!(moved <= most(RATE, begun.elapsed()), "{moved} bytes in {:?}", begun.elapsed());
        }
        (sent.bytes > total && received.bytes > total).then_some(())
    });
    // Without rates the rest goes at once, though nothing else happens.
    engine.set_rules(g.id, allowed("10.88.0.1"));
    let sent = g.counts.read().sent.bytes;
    until(&mut engine, |_| {
        c.send(&g, &bytes);
        let _ = peer.read(&mut vec![0; 1 << 20]);
        (g.counts.read().sent.bytes > sent + (8 << 20)).then_some(())
    });
}

#[test]
fn datagrams_wait_for_their_rate() {
    const RATE: u64 = 100_000;
    let (server, port) = host_socket();
    server.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, at_rates(Some(RATE), None), Vec::new());
    let mut c = Gram::new(&mut engine, &mut g, 4, any(5000));
    for _ in 0..100 {
        c.send(&g, host(port), &[1; 1000]);
    }
    g.mark(4);
    let mut got = 0;
    until(&mut engine, |_| {
        while server.recv(&mut [0; 2000]).is_ok() {
            got += 1;
            assert!(got * 1000 <= most(RATE, begun.elapsed()) + 1000, "{got} in {:?}", begun.elapsed());
        }
        (got == 100).then_some(())
    });
    assert_eq!(g.counts.read().sent.drops, 0);
}
