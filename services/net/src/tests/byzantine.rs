//! A domain that writes whatever it likes wherever it can, at any time, beside one that behaves.

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;

use super::acts::Hostile;
use super::*;

/// Numbers without an end, by xorshift.
struct Dice(u64);

impl Iterator for Dice {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Some((self.0 >> 32) as u8)
    }
}

/// How bad hostile domains are, one after the other.
const TEMPERS: [u8; 5] = [0, 1, 8, 64, 255];

/// Its own network and the host's first ports, where nobody is; it need not bother others.
fn rules() -> Rules {
    let rule = |pattern: &str, action| Rule::new(pattern.parse().unwrap(), action);
    let outbound = vec![rule("10.88.0.0/16", Action::Allow), rule("any", Action::Deny)];
    Rules { outbound, ..Rules::default() }
}

/// A hostile domain, which acts on a thread of its own until it is dropped.
struct Byzantine {
    id: ClientId,
    over: std::sync::Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Byzantine {
    fn new(engine: &mut Engine, seed: u64, tcp: &TcpListener, udp: &UdpSocket) -> Self {
        let (memory, doorbell) = doppel_service::make(SIZE).unwrap();
        let published = vec![
            Published { port: 1, protocol: Protocol::Tcp, socket: tcp.try_clone().unwrap().into() },
            Published { port: 2, protocol: Protocol::Udp, socket: udp.try_clone().unwrap().into() },
        ];
        let settings = Settings {
            network: "back".into(),
            name: "byzantine".into(),
            ip4: Ipv4Addr::new(10, 88, 0, 3),
            ip6: Ipv6Addr::new(0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, 3),
            rules: rules(),
            published,
            resolver: None,
            counts: Ledger::new().unwrap().entry(3),
            log: None,
        };
        let id = engine.attach(&memory, doorbell.try_clone().unwrap(), settings).unwrap();
        let over = std::sync::Arc::new(AtomicBool::new(false));
        let (mut hostile, ends) =
            (Hostile::new(&memory, doorbell, TEMPERS[seed as usize % TEMPERS.len()]), over.clone());
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                hostile.act(&mut dice);
            }
        });
        Self { id, over, thread: Some(thread) }
    }
}

impl Drop for Byzantine {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// An echo over a connection of `g` to the host, so many bytes of it; `meanwhile` has the engine before each look.
fn echo(engine: &mut Engine, g: &mut Guest, bytes: usize, mut meanwhile: impl FnMut(&mut Engine)) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut s, _) = server.accept().unwrap();
        let mut bytes = vec![0; 65536];
        loop {
            match s.read(&mut bytes).unwrap() {
                0 => return,
                n => s.write_all(&bytes[..n]).unwrap(),
            }
        }
    });
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
