//! Arbitrary acts of two domains' guest kernels on their channels to a storage service: it goes on, changes nothing outside their
//! volumes, and serves a third.
#![no_main]

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use doppel_abi_service::storage::{Operation, Request, SIZE};
use doppel_abi_service::{Answers, ChannelHeader, Requests, layout};
use doppel_ring::{Consumer, Producer};
use doppel_storage::{ClientId, Engine, Volume, node_memory};
use doppel_sys::shared::SharedMap;

#[path = "../../services/storage/src/tests/acts.rs"]
mod acts;

use acts::Hostile;

/// What is made once, as it takes long.
struct World {
    engine: Engine,
    /// Has a volume, which each run finds as the last one left it, and something beside it.
    directory: PathBuf,
    volumes: [Volume; 2],
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        // In memory, where nothing waits for a disk.
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory").keep();
        let root = directory.join("volume");
        std::fs::create_dir(&root).expect("a volume");
        std::fs::write(directory.join("x"), "outside").expect("a file");
        let volumes = [false, true].map(|read_only| Volume::open(&root, read_only).expect("a volume"));
        World { engine: Engine::new(1, false).expect("a poll"), directory, volumes }
    })
}

/// A client of the engine: its channel and doorbell.
fn attach(world: &World) -> (OwnedFd, OwnedFd, ClientId) {
    let (memory, doorbell) = doppel_service::make(SIZE).expect("memory for a channel");
    let bell = doorbell.try_clone().expect("a descriptor");
    let volumes = [0, 1, 0].map(|n| {
        let Volume { root, read_only, devices, .. } = &world.volumes[n];
        let root = root.try_clone().expect("a descriptor");
        Volume { root, read_only: *read_only, disk: None, bound: None, devices: *devices }
    });
    let nodes = node_memory().expect("memory for nodes");
    let id = world.engine.attach(&memory, bell, &nodes, volumes.into()).expect("a client more");
    (memory, doorbell, id)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let world = world();
    let engine = &world.engine;
    let mut clients = Vec::new();
    let mut bytes = bytes.iter().copied();
    let mut hostile: Vec<Hostile> = (0..2)
        .map(|_| {
            let (memory, doorbell, id) = attach(world);
            clients.push(id);
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
    assert_eq!(std::fs::read(world.directory.join("x")).expect("it is there"), b"outside");
    let (memory, _doorbell, id) = attach(world);
    clients.push(id);
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
            return clients.into_iter().for_each(|id| engine.detach(id));
        }
        engine.turn().expect("it goes on");
    }
    panic!("a neighbour is not heard");
});
