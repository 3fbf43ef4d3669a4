//! A domain whose guest kernel does what it likes, on a thread of its own. The example `byzantine` is made of it too.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use doppel_abi_service::net::SIZE;

use super::acts::Hostile;
use super::{
    Action, ClientId, Engine, Ledger, Memberships, Published, Quota, Rule, Rules, Settings, Transport,
};

/// Numbers without an end, by xorshift.
pub(super) struct Dice(pub(super) u64);

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
pub(super) struct Byzantine {
    pub(super) id: ClientId,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Byzantine {
    pub(super) fn new(engine: &mut Engine, seed: u64, tcp: &TcpListener, udp: &UdpSocket) -> Self {
        let (memory, doorbell) = doppel_service::make(SIZE).unwrap();
        let published = vec![
            Published { port: 1, protocol: Transport::Tcp, socket: tcp.try_clone().unwrap().into() },
            Published { port: 2, protocol: Transport::Udp, socket: udp.try_clone().unwrap().into() },
        ];
        let settings = Settings {
            networks: Memberships::of("back"),
            internal: false,
            name: "byzantine".into(),
            ip4: Ipv4Addr::new(10, 88, 0, 3),
            ip6: Ipv6Addr::new(0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, 3),
            served: Default::default(),
            rules: rules(),
            published,
            resolver: None,
            counts: Ledger::new().unwrap().entry(3),
            log: None,
            quota: Quota::default(),
        };
        let id = engine.attach(&memory, doorbell.try_clone().unwrap(), settings).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (mut hostile, ends) =
            (Hostile::new(&memory, doorbell, TEMPERS[seed as usize % TEMPERS.len()]), over.clone());
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        #[allow(clippy::disallowed_methods, reason = "a test may fail for want of a thread")]
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
