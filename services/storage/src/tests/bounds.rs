//! Bounds of volumes: no more than that is used, and what is given back can be used again.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use doppel_abi_service::storage::{Amount, Operation, Request, Used, flags};
use doppel_sys::shared::SharedMap;

use super::Bench;
use super::guest::{self, Guest};
use crate::{Bound, Engine, Volume, count, nodes};

const ENOSPC: u16 = 28;
const MOST: Amount = Amount { bytes: 1 << 20, inodes: 20 };

/// The file that says what is used, which the volume's users share.
fn used_file(root: &Path) -> OwnedFd {
    let path = root.with_file_name("used");
    let open = File::options().read(true).write(true).create(true).truncate(false).open(path);
    open.unwrap().into()
}

fn bounded(root: &Path) -> Volume {
    let used = used_file(root);
    if rustix::fs::fstat(&used).unwrap().st_size == 0 {
        count(&File::open(root).unwrap().into(), &used).unwrap();
    }
    Volume::open(root, false).unwrap().with_bound(Some(Bound { most: MOST, used: Some(used) }))
}

fn bench() -> Bench {
    Bench::with(|root| vec![bounded(root)])
}

impl Bench {
    fn used(&self) -> Amount {
        SharedMap::new(used_file(&self.root).as_fd(), 4096).unwrap().get::<Used>(0).now()
    }

    /// What is used if it is counted anew.
    fn counted(&self) -> Amount {
        let used = tempfile::tempfile().unwrap().into();
        count(&File::open(&self.root).unwrap().into(), &used).unwrap();
        SharedMap::new(used.as_fd(), 4096).unwrap().get::<Used>(0).now()
    }
}

/// Writes until there is no room; how many bytes that were.
fn fill(guest: &mut Guest, file: u64) -> u64 {
    let mut at = 0;
    loop {
        match guest.write(file, at, &[7; 50_000]) {
            Ok(n) => at += n,
            Err(error) => {
                assert_eq!(error, ENOSPC);
                return at;
            }
        }
    }
}

#[test]
fn a_volume_takes_no_more_than_it_may_and_all_of_that() {
    let mut bench = bench();
    let guest = &mut bench.guest;
    let file = guest.create(0, "file").unwrap();
    let wrote = fill(guest, file);
    assert!((MOST.bytes - 65_536..=MOST.bytes).contains(&wrote), "{wrote}");
    // What has its room is written still, what needs some is not.
    assert_eq!(guest.write(file, 10, &[8; 50_000]), Ok(50_000));
    assert_eq!(guest.allocate(file, 0, 0, 2 << 20), Err(ENOSPC));
    assert_eq!(guest.create(0, "more"), Err(ENOSPC));
    // A hole needs none, and what is given back can be used again.
    guest.truncate(file, 8 << 20).unwrap();
    assert_eq!(guest.write(file, 4 << 20, b"x"), Err(ENOSPC));
    guest.truncate(file, 4096).unwrap();
    assert_eq!(guest.write(file, 4 << 20, &[1; 40_000]), Ok(40_000));
    let (used, counted) = (bench.used(), bench.counted());
    assert_eq!(used, counted);
    bench.guest.unlink(0, "file").unwrap();
    bench.guest.forget(file, 1);
    bench.guest.list(0).unwrap();
    assert_eq!(bench.used(), bench.counted());
}

#[test]
fn there_are_no_more_files_than_there_may_be() {
    let mut bench = bench();
    let guest = &mut bench.guest;
    let mut made = Vec::new();
    while let Ok(node) = guest.make(0, &format!("d{}", made.len()), 0o040_755) {
        made.push(node);
    }
    // The volume's root is one.
    assert_eq!(made.len() as u64, MOST.inodes - 1);
    assert_eq!(guest.create(0, "more"), Err(ENOSPC));
    assert_eq!(guest.symlink(0, "more", b"x"), Err(ENOSPC));
    assert_eq!(guest.tmpfile(0), Err(ENOSPC));
    guest.rename(0, "d0", 0, "d1", 0).unwrap();
    // It is in use still.
    assert_eq!(guest.create(0, "more"), Err(ENOSPC));
    guest.forget(made[1], 1);
    guest.symlink(0, "more", b"x").unwrap();
    assert_eq!(guest.create(0, "yet another"), Err(ENOSPC));
    guest.rmdir(0, "d2").unwrap();
    guest.forget(made[2], 1);
    guest.create(0, "yet another").unwrap();
    assert_eq!(bench.used().inodes, bench.counted().inodes);
}

#[test]
fn what_is_open_is_used_until_it_is_closed() {
    let mut bench = bench();
    let guest = &mut bench.guest;
    let file = guest.create(0, "file").unwrap();
    guest.write(file, 0, &[1; 600_000 / 3]).unwrap();
    guest.write(file, 200_000, &[1; 200_000]).unwrap();
    guest.unlink(0, "file").unwrap();
    let before = bench.used();
    assert!(before.bytes > 400_000, "{before:?}");
    // Written further, it has no name, and is used.
    bench.guest.write(file, 400_000, &[1; 100_000]).unwrap();
    assert!(bench.used().bytes >= before.bytes + 98_000);
    bench.guest.forget(file, 1);
    bench.guest.list(0).unwrap();
    assert_eq!(bench.used(), bench.counted());
    // One that never had a name, and one that is not in use.
    let nameless = bench.guest.tmpfile(0).unwrap();
    bench.guest.write(nameless, 0, &[1; 100_000]).unwrap();
    assert!(bench.used().bytes > bench.counted().bytes + 98_000);
    bench.guest.forget(nameless, 1);
    let unused = bench.guest.create(0, "unused").unwrap();
    bench.guest.write(unused, 0, &[1; 100_000]).unwrap();
    let request = Request { flags: flags::UNUSED, ..Request::new(Operation::Unlink, 0) };
    bench.guest.named(request, b"unused").unwrap();
    assert_eq!(bench.used(), bench.counted());
}

#[test]
fn who_shares_a_volume_shares_its_bound() {
    let (memory, doorbell) = guest::channel();
    let mut other = guest::guest(&memory, &doorbell);
    let mut bench = Bench::with_another(
        |root| vec![bounded(root)],
        |engine, root| {
            engine.attach(&memory, doorbell, &nodes::memory().unwrap(), vec![bounded(root)]).unwrap();
        },
    );
    let file = bench.guest.create(0, "file").unwrap();
    fill(&mut bench.guest, file);
    let theirs = other.lookup(0, "file").unwrap();
    assert_eq!(other.write(theirs, 2 << 20, b"x"), Err(ENOSPC));
    // It is open there.
    other.read(theirs, 0, 1).unwrap();
    bench.guest.unlink(0, "file").unwrap();
    bench.guest.forget(file, 1);
    assert_eq!(bench.guest.create(0, "next"), Err(ENOSPC));
    other.forget(theirs, 1);
    other.list(0).unwrap();
    bench.guest.create(0, "next").unwrap();
    assert_eq!(bench.used(), bench.counted());
}

#[test]
fn another_service_goes_on_counting() {
    let mut bench = bench();
    let file = bench.guest.create(0, "file").unwrap();
    bench.guest.write(file, 0, &[1; 200_000]).unwrap();
    let engine = Arc::new(Engine::new(2, true).unwrap());
    let (memory, doorbell) = guest::channel();
    let mut guest = guest::guest(&memory, &doorbell);
    let volumes = vec![bounded(&bench.root)];
    engine.attach(&memory, doorbell, &nodes::memory().unwrap(), volumes).unwrap();
    let threads = engine.start().unwrap();
    let next = guest.create(0, "next").unwrap();
    assert!(fill(&mut guest, next) < MOST.bytes - 200_000);
    engine.stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(bench.used(), bench.counted());
}

#[test]
fn a_volume_that_is_a_file_is_bounded_without_being_counted() {
    let mut bench = Bench::with(|root| {
        let file = root.with_file_name("layer");
        std::fs::write(&file, "x").unwrap();
        vec![Volume::open(&file, false).unwrap().with_bytes(1 << 20)]
    });
    let guest = &mut bench.guest;
    assert!((MOST.bytes - 65_536..=MOST.bytes).contains(&fill(guest, 0)));
    guest.truncate(0, 0).unwrap();
    assert_eq!(guest.write(0, 0, b"x"), Ok(1));
}

#[test]
fn a_bound_is_what_the_file_system_is() {
    let mut bench = bench();
    bench.guest.call(Request::new(Operation::StatFs, 0)).unwrap();
    let words = bench.guest.text(7 * 8);
    let word = |i: usize| u64::from_le_bytes(*words.as_chunks().0.get(i).unwrap());
    assert_eq!((word(1) * word(2), word(5)), (MOST.bytes, MOST.inodes));
    let used = bench.used();
    assert_eq!(word(6), MOST.inodes - used.inodes);
    assert!(word(3) * word(1) <= MOST.bytes - used.bytes && word(4) <= word(3));
}
