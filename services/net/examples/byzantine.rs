//! What a stream of a domain gets while another one on its service scribbles on its channel: `byzantine [REPEATS]`.
//!
//! Between both is a domain's network service as it is, on the main thread; their guest kernels are played by threads. It is
//! compared with the same stream beside nothing, and beside a thread that burns the CPU, because there may be fewer CPUs
//! than threads. The last line has the median ratio to the latter. For `bench/workloads/network_neighbours.py`.

#![allow(clippy::disallowed_methods, reason = "a test may fail for want of a thread")]

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use doppel_abi_service::net::{End, Request};
use doppel_net::{
    Action, ClientId, Counts, Engine, Ledger, Memberships, Published, Quota, Rule, Rules, Settings, Transport,
};

#[path = "../src/tests/acts.rs"]
mod acts;
#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../src/tests/guest.rs"]
mod guest;
#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../src/tests/hostile_domain.rs"]
mod hostile_domain;

use guest::{Connection, Guest, done};
use hostile_domain::Byzantine;

/// Of a measurement, and until the stream flows.
const TIME: Duration = Duration::from_secs(1);
const BEFORE: Duration = Duration::from_millis(200);
/// A domain that broke the protocol has no network any more; it takes another one so long to come.
const START: Duration = Duration::from_millis(10);

/// Who is beside the stream.
#[derive(Clone, Copy)]
enum Beside {
    Nobody,
    ReadyQueue,
    Byzantine,
}

/// Bytes of a stream from a domain to the host in [`TIME`].
fn measure(beside: Beside, seed: u64) -> u64 {
    let mut engine = Engine::new().expect("a service");
    let pattern = "127.0.0.0/8".parse().expect("a pattern");
    let rules = Rules { outbound: vec![Rule::new(pattern, Action::Allow)], ..Rules::default() };
    let mut good = Guest::new(&mut engine, 1, rules, Vec::new());
    let (server, counted) = (TcpListener::bind("127.0.0.1:0").expect("a port"), Arc::new(AtomicU64::new(0)));
    let to = End {
        ip: Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(),
        port: server.local_addr().expect("an address").port(),
    };
    let from = End { ip: Ipv4Addr::new(10, 88, 0, 1).to_ipv6_mapped().octets(), port: 40000 };
    good.socket(0).reset();
    let ticket = good.ask(Request::Connect { socket: 0, from, to });
    assert_eq!(done(&mut engine, &mut good, ticket), 0, "it is not connected");
    let over = Arc::new(AtomicBool::new(false));
    let count = counted.clone();
    let sink = std::thread::spawn(move || {
        let (mut s, _) = server.accept().expect("a caller");
        let mut bytes = vec![0; 64 << 10];
        // A reset is an end as well.
        while let Ok(n @ 1..) = s.read(&mut bytes) {
            count.fetch_add(n as u64, Ordering::Relaxed);
        }
    });
    let ends = over.clone();
    let neighbour = std::thread::spawn(move || {
        let (mut c, bytes) = (Connection::new(0), vec![1; 64 << 10]);
        while !ends.load(Ordering::Relaxed) {
            if c.send(&good, &bytes) == 0 {
                std::thread::yield_now();
            }
        }
        good
    });
    let ends = over.clone();
    let busy = matches!(beside, Beside::ReadyQueue).then(|| {
        std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    });
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    tcp.set_nonblocking(true).and_then(|()| udp.set_nonblocking(true)).expect("sockets that do not block");
    let mut lives = seed;
    let mut bad = matches!(beside, Beside::Byzantine).then(|| Byzantine::new(&mut engine, lives, &tcp, &udp));
    let mut broke = None;
    let begun = Instant::now();
    let mut before = None;
    while begun.elapsed() < BEFORE + TIME {
        engine.turn(Some(Duration::from_millis(1))).expect("a turn");
        if before.is_none() && begun.elapsed() >= BEFORE {
            before = Some(counted.load(Ordering::Relaxed));
        }
        if let Some(b) = &mut bad
            && !engine.serves(b.id)
            && broke.get_or_insert_with(Instant::now).elapsed() >= START
        {
            (lives, broke) = (lives + 1, None);
            *b = Byzantine::new(&mut engine, lives, &tcp, &udp);
        }
    }
    let bytes = counted.load(Ordering::Relaxed) - before.expect("it has begun");
    over.store(true, Ordering::Relaxed);
    drop(bad);
    busy.map(std::thread::JoinHandle::join).transpose().expect("the busy thread ends");
    let good = neighbour.join().expect("the neighbour ends");
    assert!(engine.serves(good.id), "the neighbour has lost its network");
    engine.detach(good.id);
    drop(engine);
    sink.join().expect("the sink ends");
    bytes
}

#[allow(clippy::cast_precision_loss, reason = "bytes of a second")]
fn main() {
    let repeats = std::env::args().nth(1).map_or(5, |n| n.parse().expect("REPEATS: a number"));
    let mut found = [const { Vec::new() }; 3];
    for seed in 0..repeats {
        for (beside, found) in
            [Beside::Nobody, Beside::ReadyQueue, Beside::Byzantine].into_iter().zip(&mut found)
        {
            found.push(measure(beside, seed) as f64 / TIME.as_secs_f64());
        }
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let [alone, busy, byzantine] = &mut found;
    let mut ratios = byzantine.iter().zip(&*busy).map(|(bad, busy)| bad / busy).collect();
    let ratio = median(&mut ratios);
    println!("alone {:.0} MB/s", median(alone) / 1e6);
    println!("beside a busy loop {:.0} MB/s", median(busy) / 1e6);
    println!("beside a byzantine domain {:.0} MB/s", median(byzantine) / 1e6);
    println!("ratio {ratio:.3}");
}
