//! Arbitrary acts of two domains' guest kernels on their channels to a storage service: it goes on, changes nothing outside their
//! volumes, and serves a third.
#![no_main]

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use doppel_abi_service::storage::{Operation, Request, SIZE};
use doppel_abi_service::{Answers, ChannelHeader, Requests, layout};
use doppel_ring::{Consumer, Producer};
use doppel_storage::{Engine, Volume, node_memory};
use doppel_sys::shared::SharedMap;

#[path = "../../services/storage/src/tests/acts.rs"]
mod acts;

use acts::Hostile;

/// A directory with a volume, which each run finds as the last one left it, and something beside it.
fn directory() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory").keep();
        std::fs::create_dir(dir.join("volume")).expect("a volume");
        std::fs::write(dir.join("x"), "outside").expect("a file");
        dir
    })
}

/// A client of the engine: its channel and doorbell.
fn attach(engine: &Engine, read_only: bool) -> (OwnedFd, OwnedFd) {
    let (memory, doorbell) = doppel_service::make(SIZE).expect("memory for a channel");
    let bell = doorbell.try_clone().expect("a descriptor");
    let volume = || Volume::open(&directory().join("volume"), read_only).expect("a volume");
    let nodes = node_memory().expect("memory for nodes");
    engine.attach(&memory, bell, &nodes, vec![volume(), volume(), volume()]).expect("a client more");
    (memory, doorbell)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let engine = Engine::new(1, false).expect("a poll");
    let mut bytes = bytes.iter().copied();
    let mut hostile: Vec<Hostile> = (0..2)
        .map(|_| {
            let (memory, doorbell) = attach(&engine, false);
            Hostile::new(&memory, doorbell, bytes.next().unwrap_or(0))
        })
        .collect();
    while bytes.len() > 0 {
        for one in &mut hostile {
            one.act(&mut bytes);
        }
        engine.turn().expect("it goes on");
    }
    // Whatever they did.
    assert_eq!(std::fs::read(directory().join("x")).expect("it is there"), b"outside");
    let (memory, _doorbell) = attach(&engine, true);
    let map = SharedMap::new(memory.as_fd(), SIZE as usize).expect("memory");
    let header: &ChannelHeader = map.get(0);
    use std::sync::atomic::Ordering::SeqCst;
    header.guest_epoch.store(header.epoch.load(SeqCst), SeqCst);
    let mut requests = Producer::default();
    let ring = map.get::<Requests>(layout::REQUESTS as usize).ring();
    let entry = Request::new(Operation::GetAttr, 0).encode();
    assert_eq!(requests.push(&ring, &entry), Ok(true));
    let _ = requests.publish(&ring);
    let answers: &Answers = map.get(layout::ANSWERS as usize);
    let taken = Consumer::default();
    for _ in 0..100 {
        if taken.waiting(&answers.ring()) != Ok(0) {
            return;
        }
        engine.turn().expect("it goes on");
    }
    panic!("a neighbour is not heard");
});
