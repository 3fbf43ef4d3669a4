//! What a domain may have of the network service at once, and how what it had is given back.

use doppel_abi_service::net::BUFFER;
use rustix::time::ClockId;

use super::datagrams::{Gram, any, host, host_socket};
use super::*;

fn with(engine: &mut Engine, quota: Quota) -> Guest {
    Guest::with_quota(engine, 1, allowed("10.88.0.1"), Vec::new(), None, quota)
}

fn connect(engine: &mut Engine, g: &mut Guest, socket: u32, to: SocketAddr) -> u16 {
    g.socket(socket).reset();
    let ticket = g.ask(Request::Connect { socket, from: own(1, 0), to: end_of(to) });
    done(engine, g, ticket)
}

/// Bytes of a channel's memory that are there.
fn resident(g: &Guest) -> u64 {
    rustix::fs::fstat(&g.memory).unwrap().st_blocks.cast_unsigned() * 512
}

/// So many connections, and the host's ends of them.
fn connections(engine: &mut Engine, g: &mut Guest, count: u32) -> Vec<(Connection, TcpStream)> {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = host(server.local_addr().unwrap().port());
    let connect = |n| {
        assert_eq!(connect(engine, g, n, to), 0);
        let peer = server.accept().unwrap().0;
        peer.set_nonblocking(true).unwrap();
        (Connection::new(n), peer)
    };
    (0..count).map(connect).collect()
}

#[test]
fn sockets_are_limited_and_closed_ones_do_not_count() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = host(server.local_addr().unwrap().port());
    let mut engine = Engine::new().unwrap();
    let mut g = with(&mut engine, Quota { sockets: 3, ..Quota::default() });
    for _ in 0..3 {
        for n in 0..3 {
            assert_eq!(connect(&mut engine, &mut g, n, to), 0);
        }
        assert_eq!(i32::from(connect(&mut engine, &mut g, 3, to)), Errno::MFILE.raw_os_error());
        for n in 0..3 {
            let ticket = g.ask(Request::Close { socket: n, reset: true });
            assert_eq!(done(&mut engine, &mut g, ticket), 0);
        }
    }
}

#[test]
fn without_ports_a_connection_and_a_datagram_socket_fail_as_on_linux() {
    let (server, (_ear, port)) = (TcpListener::bind("127.0.0.1:0").unwrap(), host_socket());
    let to = host(server.local_addr().unwrap().port());
    let mut engine = Engine::new().unwrap();
    let mut g = with(&mut engine, Quota { ports: 2, ..Quota::default() });
    let found: Vec<_> = (0..3).map(|n| i32::from(connect(&mut engine, &mut g, n, to))).collect();
    assert_eq!(found, [0, 0, Errno::ADDRNOTAVAIL.raw_os_error()]);
    let mut peer = |n: u32| {
        let _ = Gram::new(&mut engine, &mut g, n, any(5000 + n as u16));
        let ticket = g.ask(Request::Peer { socket: n, to: end_of(host(port)) });
        i32::from(done(&mut engine, &mut g, ticket))
    };
    // Ports of UDP are others.
    assert_eq!([10, 11, 12].map(&mut peer), [0, 0, Errno::AGAIN.raw_os_error()]);
}

#[test]
fn what_is_received_and_not_taken_stays_within_the_quota_and_none_of_it_is_lost() {
    const EACH: usize = 300_000;
    const COUNT: u32 = 40;
    let mut engine = Engine::new().unwrap();
    let mut g = with(&mut engine, Quota { memory: 1 << 20, ..Quota::default() });
    let mut all = connections(&mut engine, &mut g, COUNT);
    let text: Vec<u8> = (0..EACH).map(|i| (i ^ i >> 8) as u8).collect();
    let mut sent = vec![0; all.len()];
    let mut offer = |all: &mut Vec<(Connection, TcpStream)>| {
        for ((_, peer), sent) in all.iter_mut().zip(&mut sent) {
            *sent += peer.write(&text[*sent..]).unwrap_or(0);
        }
    };
    // Nobody reads: as much comes as there may, and it stays so.
    let before = resident(&g);
    let mut last = (0, 0);
    until(&mut engine, |_| {
        offer(&mut all);
        let now = g.counts.read().received.bytes;
        last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
        (now > 0 && last.1 == 100).then_some(())
    });
    // A page for each is there in any case, and it is whole pages.
    let most = (1 << 20) + u64::from(COUNT) * 2 * 4096;
    assert!(resident(&g) - before <= most, "{} of {most}", resident(&g) - before);
    let mut got = vec![Vec::new(); all.len()];
    until(&mut engine, |_| {
        offer(&mut all);
        for ((c, _), got) in all.iter_mut().zip(&mut got) {
            got.extend(c.receive(&g).unwrap());
        }
        got.iter().all(|g| g.len() == EACH).then_some(())
    });
    assert!(got.iter().all(|g| *g == text));
    assert!(resident(&g) - before <= most);
}

#[test]
fn an_unread_stream_has_the_pages_that_the_domain_touches_and_goes_on_when_there_are_more() {
    const PAGE: usize = 4096;
    let mut engine = Engine::new().unwrap();
    let mut g = with(&mut engine, Quota { memory: 63 * PAGE as u64, ..Quota::default() });
    let touch = |g: &Guest, pages: std::ops::Range<usize>| {
        pages.for_each(|n| g.map.write(at(down_buffer(0)) + n * PAGE, &[0]));
    };
    touch(&g, 0..2);
    let mut all = connections(&mut engine, &mut g, 1);
    let (c, peer) = &mut all[0];
    let text: Vec<u8> = (0..100_000).map(|i| (i ^ i >> 8) as u8).collect();
    peer.set_nonblocking(false).unwrap();
    peer.write_all(&text).unwrap();
    for (first, end) in [(0, 2), (2, 3), (3, 9)] {
        let most = end * PAGE - 320;
        if first > 0 {
            touch(&g, first..end);
            // Nothing is read, as by a program that only looks.
            assert!(c.down.offer(&g.socket(0).down()), "it does not wait");
            g.mark(0);
        }
        let waiting = |g: &Guest| c.down.waiting(&g.socket(0).down()).unwrap() as usize;
        until(&mut engine, |_| (waiting(&g) >= most).then_some(()));
        for _ in 0..20 {
            engine.turn(Some(Duration::from_millis(1))).unwrap();
        }
        assert_eq!(waiting(&g), most);
    }
    let mut got = Vec::new();
    until(&mut engine, |_| {
        got.extend(c.receive(&g).unwrap());
        (got.len() == text.len()).then_some(())
    });
    assert!(got == text);
}

#[test]
fn what_a_domain_leaves_is_given_back_by_steps_far_below_the_watchdogs_budget() {
    let mut engine = Engine::new().unwrap();
    let mut g = with(&mut engine, Quota { memory: 1 << 30, ..Quota::default() });
    let mut all = connections(&mut engine, &mut g, 300);
    // The domain has touched all of them.
    for n in 0..300 {
        g.map.write(at(down_buffer(n)), &vec![0; BUFFER as usize]);
    }
    let bytes = vec![7; 1 << 20];
    until(&mut engine, |_| {
        for (_, peer) in &mut all {
            let _ = peer.write(&bytes);
        }
        (resident(&g) > 300 * 250_000).then_some(())
    });
    engine.detach(g.id);
    let cpu_time = || Duration::try_from(rustix::time::clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let (mut longest, mut steps) = (Duration::ZERO, 0);
    let end = Instant::now() + Duration::from_secs(30);
    while resident(&g) > 16 << 20 {
        let before = cpu_time();
        engine.turn(Some(Duration::ZERO)).unwrap();
        longest = longest.max(cpu_time() - before);
        steps += 1;
        assert!(Instant::now() < end, "{} bytes are left", resident(&g));
    }
    // 75 MB in one go took longer than a service domain may without a step: 50 ms of CPU time.
    assert!(steps > 50 && longest < Duration::from_millis(25), "{steps} steps, the longest of {longest:?}");
}
