//! Arbitrary acts of two domains' guest kernels on their channels to a network service: it goes on, and serves a third.
#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use doppel_abi_service::net::{Request, SIZE};
use doppel_abi_service::{Answers, ChannelHeader, Requests, layout};
use doppel_net::{Action, Engine, Ledger, Memberships, Quota, Rule, Rules, Settings};
use doppel_ring::{Consumer, Producer, Ticket};
use doppel_sys::shared::SharedMap;

#[path = "../../services/net/src/tests/acts.rs"]
mod acts;

use acts::Hostile;

/// The domains' network alone: nobody else is to be bothered.
fn rules() -> Rules {
    let rule = |pattern: &str, action| Rule::new(pattern.parse().expect("a pattern"), action);
    let outbound = vec![
        rule("10.88.0.1", Action::Deny),
        rule("10.88.0.0/16", Action::Allow),
        rule("any", Action::Deny),
    ];
    Rules { outbound, ..Rules::default() }
}

/// A client of the engine: its channel and doorbell.
fn attach(engine: &mut Engine, last: u8) -> (OwnedFd, OwnedFd) {
    static LEDGER: OnceLock<Arc<Ledger>> = OnceLock::new();
    let (memory, doorbell) = doppel_service::make(SIZE).expect("memory for a channel");
    let settings = Settings {
        networks: Memberships::of("fuzz"),
        internal: false,
        name: format!("d{last}"),
        ip4: Ipv4Addr::new(10, 88, 0, last),
        ip6: Ipv6Addr::new(0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, last.into()),
        served: doppel_net::ServedAddresses::default(),
        rules: rules(),
        published: Vec::new(),
        resolver: None,
        counts: LEDGER.get_or_init(|| Ledger::new().expect("memory for a ledger")).entry(last.into()),
        log: None,
        quota: Quota::default(),
    };
    let bell = doorbell.try_clone().expect("a descriptor");
    engine.attach(&memory, bell, settings).expect("a client more");
    (memory, doorbell)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut engine = Engine::new().expect("a poll");
    let mut bytes = bytes.iter().copied();
    let mut hostile: Vec<Hostile> = [3, 4]
        .map(|last| {
            let (memory, doorbell) = attach(&mut engine, last);
            Hostile::new(&memory, doorbell, bytes.next().unwrap_or(0))
        })
        .into();
    while bytes.len() > 0 {
        for one in &mut hostile {
            one.act(&mut bytes);
        }
        engine.turn(Some(Duration::ZERO)).expect("it goes on");
    }
    // Whatever they did.
    let (memory, doorbell) = attach(&mut engine, 5);
    let map = SharedMap::new(memory.as_fd(), SIZE as usize).expect("memory");
    let header: &ChannelHeader = map.get(0);
    use std::sync::atomic::Ordering::SeqCst;
    header.guest_epoch.store(header.epoch.load(SeqCst), SeqCst);
    let mut requests = Producer::default();
    let ring = map.get::<Requests>(layout::REQUESTS as usize).ring();
    let entry = Request::Close { socket: 0, reset: false }.encode(Ticket(1));
    assert_eq!(requests.push(&ring, &entry), Ok(true));
    let _ = requests.publish(&ring);
    rustix::io::write(&doorbell, &1u64.to_ne_bytes()).expect("a doorbell");
    let answers: &Answers = map.get(layout::ANSWERS as usize);
    let taken = Consumer::default();
    for _ in 0..100 {
        if taken.waiting(&answers.ring()) != Ok(0) {
            return;
        }
        engine.turn(Some(Duration::ZERO)).expect("it goes on");
    }
    panic!("a neighbour is not heard");
});
