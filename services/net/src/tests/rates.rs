//! Bytes a second.

use super::datagrams::{Gram, any, host, host_socket};
use super::*;

/// Rules that let a domain reach the host, at these rates.
fn at_rates(outbound: Option<u64>, inbound: Option<u64>) -> Rules {
    Rules { rates: Rates { outbound, inbound, ..Rates::default() }, ..allowed("10.88.0.1") }
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

/// Two domains that always have more to send, and who takes all of it.
struct Busy {
    guests: Vec<(Guest, Vec<Connection>)>,
    sinks: Vec<TcpStream>,
}

impl Busy {
    const STREAMS: u32 = 12;

    fn new(engine: &mut Engine, rates: [Rates; 2]) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = host(server.local_addr().unwrap().port());
        let (mut guests, mut sinks) = (Vec::new(), Vec::new());
        for (last, rates) in [1, 2].into_iter().zip(rates) {
            let rules = Rules { rates, ..allowed("10.88.0.1") };
            let mut g = Guest::new(engine, last, rules, Vec::new());
            let mut all = Vec::new();
            for n in 0..Self::STREAMS {
                g.socket(n).reset();
                let from = own(last, 40000 + u16::try_from(n).unwrap());
                let ticket = g.ask(Request::Connect { socket: n, from, to: end_of(to) });
                assert_eq!(done(engine, &mut g, ticket), 0);
                all.push(Connection::new(n));
                let sink = server.accept().unwrap().0;
                sink.set_nonblocking(true).unwrap();
                sinks.push(sink);
            }
            guests.push((g, all));
        }
        Self { guests, sinks }
    }

    /// How many bytes each has sent meanwhile.
    fn sent(&mut self, engine: &mut Engine, until: impl Fn(u64) -> bool) -> [u64; 2] {
        let sent = |busy: &Self| [0, 1].map(|i: usize| busy.guests[i].0.counts.read().sent.bytes);
        let (bytes, mut room, before) = (vec![7; 1 << 18], vec![0; 1 << 20], sent(self));
        loop {
            for (g, connections) in &mut self.guests {
                for c in connections {
                    c.send(g, &bytes);
                }
            }
            engine.turn(Some(Duration::ZERO)).unwrap();
            for sink in &mut self.sinks {
                while sink.read(&mut room).is_ok_and(|n| n > 0) {}
            }
            let (now, then) = (sent(self), before);
            let moved = [now[0] - then[0], now[1] - then[1]];
            if until(moved[0] + moved[1]) {
                return moved;
            }
        }
    }
}

#[test]
fn bytes_are_shared_by_weight_and_a_change_holds_at_once() {
    let mut engine = Engine::new().unwrap();
    let of = |weight| Rates { weight, ..Rates::default() };
    let mut busy = Busy::new(&mut engine, [of(Some(400)), of(None)]);
    let ratio = |engine: &mut Engine, busy: &mut Busy| {
        busy.sent(engine, |bytes| bytes > 4 << 20);
        let [a, b] = busy.sent(engine, |bytes| bytes > 96 << 20);
        a as f64 / b as f64
    };
    let heavy = ratio(&mut engine, &mut busy);
    // Turns are charged by the clock, which goes on while the host has others run.
    assert!(heavy > 2.0, "{heavy}");
    engine.set_rules(busy.guests[0].0.id, allowed("10.88.0.1"));
    let alike = ratio(&mut engine, &mut busy);
    assert!((0.5..2.0).contains(&alike), "{alike}");
}
