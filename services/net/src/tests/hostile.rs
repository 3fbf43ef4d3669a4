//! Domains that do not keep to the protocol, or use it against their neighbours.

#![allow(clippy::disallowed_methods, reason = "a test may fail for want of a thread")]

use doppel_abi_service::OBJECTS;
use doppel_service::Heartbeat;
use rustix::time::ClockId;

use super::datagrams::{Gram, any, host, host_socket};
use super::*;

/// CPU time of this thread, which is the engine's.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap()
}

/// Whether the engine, with nothing to do, uses less than half of a while. On a loaded host it is less anyway.
fn is_calm(engine: &mut Engine, mut meanwhile: impl FnMut()) -> bool {
    let (begun, before) = (Instant::now(), cpu_time());
    while begun.elapsed() < Duration::from_millis(300) {
        meanwhile();
        engine.turn(Some(Duration::from_millis(20))).unwrap();
    }
    cpu_time() - before < begun.elapsed() / 2
}

/// Asks for what is refused, until the ring of requests has no room.
fn fill_requests(g: &mut Guest) {
    while g.requests.room(&g.map.get::<Requests>(at(layout::REQUESTS)).ring()).unwrap() > 0 {
        g.ask(Request::Close { socket: 77, reset: false });
    }
}

#[test]
fn one_that_does_not_take_its_answers_is_looked_at_when_it_does() {
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    let mut asked = 0;
    // More than both rings have room for.
    for _ in 0..4 {
        let before = g.tickets;
        fill_requests(&mut g);
        asked += g.tickets - before;
        for _ in 0..20 {
            engine.turn(Some(Duration::ZERO)).unwrap();
        }
    }
    assert!(is_calm(&mut engine, || ()));
    // One answer after the other, without a word but the one it owes for room.
    let mut taken = 0;
    until(&mut engine, |_| {
        let ring = g.map.get::<Answers>(at(layout::ANSWERS)).ring();
        while g.answers.pop(&ring).unwrap().is_some() {
            taken += 1;
        }
        if g.answers.release(&ring) {
            g.ring();
        }
        (taken == asked).then_some(())
    });
}

#[test]
fn one_that_only_rings_costs_little() {
    let mut engine = Engine::new().unwrap();
    let g = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    let bells: &Bells = g.map.get(at(layout::TO_SERVICE));
    let over = std::sync::atomic::AtomicBool::new(false);
    let calm = std::thread::scope(|s| {
        s.spawn(|| {
            // All the marks there are, and the bell, as fast as it can.
            while !over.load(Ordering::Relaxed) {
                for n in (0..OBJECTS).step_by(61) {
                    bells.mark(n);
                }
                g.ring();
            }
        });
        let calm = is_calm(&mut engine, || ());
        over.store(true, Ordering::Relaxed);
        calm
    });
    assert!(calm && engine.serves(g.id));
    // It is heard again when it has something to say.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut g = g;
    engine.set_rules(g.id, to_loopback());
    connected(&mut engine, &mut g, server.local_addr().unwrap());
}

/// How many steps the engine takes until `f` has something.
fn beats<T>(engine: &mut Engine, f: impl FnMut(&mut Engine) -> Option<T>) -> u32 {
    let heart = Heartbeat::new().unwrap();
    let (file, alarm) = (heart.file().try_clone_to_owned(), heart.alarm().try_clone_to_owned());
    engine.set_heart(Heartbeat::open(file.unwrap(), alarm.unwrap()).unwrap());
    let before = heart.count();
    until(engine, f);
    (heart.count() - before) / 2
}

#[test]
fn a_flood_of_small_datagrams_is_many_steps() {
    let (sink, port) = host_socket();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, allowed("10.88.0.1"), Vec::new());
    let mut grams: Vec<Gram> =
        (0..8).map(|n| Gram::new(&mut engine, &mut g, n, any(5000 + n as u16))).collect();
    let each = 1000;
    for gram in &mut grams {
        for _ in 0..each {
            gram.send(&g, host(port), b"");
        }
        g.mark(gram.number());
    }
    let all = each * grams.len() as u64;
    // A watchdog judges steps by their time; nobody is killed for what a domain wants of it.
    let steps = beats(&mut engine, |_| (g.counts.read().sent.packets == all).then_some(()));
    assert!(u64::from(steps) > all / 256, "{steps} steps");
    drop(sink);
}

#[test]
fn a_datagram_socket_that_is_closed_as_a_stream_is_ends_nothing() {
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    let mut gram = Gram::new(&mut engine, &mut g, 4, any(5000));
    let _ = Writer::default().close(&g.socket(4).up());
    g.mark(4);
    gram.send(&g, host(1), b"to nobody");
    g.mark(4);
    until(&mut engine, |_| (g.counts.read().sent.drops == 1).then_some(()));
}

#[test]
fn the_end_of_a_domain_with_many_connections_is_many_steps() {
    let mut engine = Engine::new().unwrap();
    let g = Guest::new(&mut engine, 1, allowed("10.88.0.1"), Vec::new());
    let mut g = g;
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = end_of(host(server.local_addr().unwrap().port()));
    let mut peers = Vec::new();
    for n in 0..300 {
        g.socket(n).reset();
        let ticket = g.ask(Request::Connect { socket: n, from: own(1, 0), to });
        assert_eq!(done(&mut engine, &mut g, ticket), 0);
        peers.push(server.accept().unwrap().0);
    }
    engine.detach(g.id);
    for peer in &peers {
        peer.set_nonblocking(true).unwrap();
    }
    let steps = beats(&mut engine, |_| {
        peers.retain_mut(|p| p.read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock));
        peers.is_empty().then_some(())
    });
    assert!(steps >= 4, "{steps} steps");
}

#[test]
fn a_domain_with_many_busy_streams_leaves_a_neighbour_its_share() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = host(server.local_addr().unwrap().port());
    let mut engine = Engine::new().unwrap();
    let flood = Guest::new(&mut engine, 1, allowed("10.88.0.1"), Vec::new());
    let neighbour = Guest::new(&mut engine, 2, allowed("10.88.0.1"), Vec::new());
    let mut ends = Vec::new();
    let mut streams = Vec::new();
    for (mut g, count) in [(flood, 32), (neighbour, 1)] {
        let mut all = Vec::new();
        for n in 0..count {
            g.socket(n).reset();
            let ticket = g.ask(Request::Connect { socket: n, from: own(1, 0), to: end_of(to) });
            assert_eq!(done(&mut engine, &mut g, ticket), 0);
            all.push(Connection::new(n));
            ends.push(server.accept().unwrap().0);
        }
        streams.push((g, all));
    }
    // Whoever sends is never the one that waits: buffers are full at each turn, peers take all there is.
    for end in &ends {
        end.set_nonblocking(true).unwrap();
    }
    let mut bytes = vec![0; 1 << 20];
    until(&mut engine, |_| {
        for (g, all) in &mut streams {
            for c in all {
                while c.send(g, &bytes[..1 << 18]) > 0 {}
                g.mark(c.n);
            }
        }
        for end in &mut ends {
            while matches!(end.read(&mut bytes), Ok(1..)) {}
        }
        (streams[1].0.counts.read().sent.bytes > 16 << 20).then_some(())
    });
    let [flood, neighbour] = [0, 1].map(|i| streams[i].0.counts.read().sent.bytes);
    // 32 times as much if all were equal but the domains.
    assert!(flood < neighbour * 6, "{flood} bytes beside {neighbour}");
}

#[test]
fn one_that_broke_the_protocol_takes_nobody_with_it_when_it_ends() {
    let mut engine = Engine::new().unwrap();
    let mut bad = Guest::new(&mut engine, 1, Rules::default(), Vec::new());
    let ring = bad.map.get::<Requests>(at(layout::REQUESTS)).ring();
    bad.requests.push(&ring, &[u64::MAX; 8]).unwrap();
    let _ = bad.requests.publish(&ring);
    bad.ring();
    let id = bad.id;
    until(&mut engine, |e| (!e.serves(id)).then_some(()));
    // Who comes next has its place.
    let next = Guest::new(&mut engine, 2, Rules::default(), Vec::new());
    engine.set_rules(id, Rules::default());
    engine.set_name(id, "d2".into());
    engine.detach(id);
    assert!(engine.serves(next.id) && !engine.serves(id));
    assert!(engine.held(next.id).is_some() && engine.held(id).is_none());
}
