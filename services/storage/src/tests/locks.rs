//! Locks hold against everybody but the domain itself.

use std::fs::File;
use std::os::fd::AsFd;

use doppel_abi_service::storage::lock::{EXCLUSIVE, LAST, TEST, UNLOCK, WHOLE};
use doppel_sys::record_lock::{self, Range};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::{Bench, guest};
use crate::Volume;
use crate::nodes::{self, LOCKED};

const END: u64 = i64::MAX as u64;

fn number(errno: Errno) -> u16 {
    u16::try_from(errno.raw_os_error()).unwrap()
}

/// Whether the host may lock these bytes of a file now, exclusively.
fn is_free(file: &File, start: u64, end: u64) -> bool {
    let range = Range { start, end };
    let free = record_lock::lock(file.as_fd(), range, true).is_ok();
    record_lock::unlock(file.as_fd(), range).unwrap();
    free
}

fn is_whole_free(file: &File) -> bool {
    let free = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
    rustix::fs::flock(file, FlockOperation::Unlock).unwrap();
    free
}

#[test]
fn ranges_are_locked_on_the_host() {
    let mut b = Bench::new();
    let node = b.guest.create(0, "file").unwrap();
    let host = File::options().read(true).write(true).open(b.path("file")).unwrap();
    b.guest.lock(node, (10, 19), EXCLUSIVE).unwrap();
    // The domain itself is not kept out by what it has.
    b.guest.lock(node, (15, END), EXCLUSIVE).unwrap();
    assert!(!is_free(&host, 1 << 40, 1 << 40) && is_free(&host, 0, 9));
    b.guest.lock(node, (12, 12), UNLOCK).unwrap();
    assert!(is_free(&host, 12, 12) && !is_free(&host, 11, 11) && !is_free(&host, 13, 13));
    // Shared ones keep writers out alone.
    b.guest.lock(node, (0, END), 0).unwrap();
    assert!(record_lock::lock(host.as_fd(), Range { start: 5, end: 5 }, false).is_ok());
    assert_eq!(b.guest.lock(node, (0, END), EXCLUSIVE), Err(number(Errno::AGAIN)));
    b.guest.lock(node, (0, END), UNLOCK | LAST).unwrap();
    assert!(is_free(&host, 0, END));
}

#[test]
fn what_conflicts_is_told() {
    let mut b = Bench::new();
    let node = b.guest.create(0, "file").unwrap();
    let host = File::options().read(true).write(true).open(b.path("file")).unwrap();
    assert_eq!(b.guest.lock(node, (0, END), TEST | EXCLUSIVE).unwrap().value, 0);
    for (exclusive, range) in [(false, Range { start: 3, end: 9 }), (true, Range { start: 100, end: END })] {
        record_lock::unlock(host.as_fd(), Range::ALL).unwrap();
        record_lock::lock(host.as_fd(), range, exclusive).unwrap();
        let answer = b.guest.lock(node, (0, END), TEST | EXCLUSIVE).unwrap();
        assert_eq!(answer.value, 1 + u64::from(exclusive));
        assert_eq!(b.guest.text(16), [range.start.to_le_bytes(), range.end.to_le_bytes()].concat());
    }
    for bad in [(3, 2), (0, u64::MAX), (u64::MAX, u64::MAX)] {
        for how in [0, EXCLUSIVE, TEST] {
            assert_eq!(b.guest.lock(node, bad, how), Err(number(Errno::INVAL)));
        }
    }
}

#[test]
fn whole_files_and_directories_are_locked() {
    let mut b = Bench::new();
    b.guest.create(0, "file").unwrap();
    b.guest.make(0, "dir", 0o040_755).unwrap();
    for name in ["file", "dir", "."] {
        let node = if name == "." { 0 } else { b.guest.lookup(0, name).unwrap() };
        let host = File::open(b.path(name)).unwrap();
        b.guest.lock(node, (0, 0), WHOLE | EXCLUSIVE).unwrap();
        assert!(!is_whole_free(&host), "{name}");
        b.guest.lock(node, (0, 0), WHOLE).unwrap();
        assert!(rustix::fs::flock(&host, FlockOperation::NonBlockingLockShared).is_ok());
        assert_eq!(b.guest.lock(node, (0, 0), WHOLE | EXCLUSIVE), Err(number(Errno::AGAIN)));
        rustix::fs::flock(&host, FlockOperation::Unlock).unwrap();
        b.guest.lock(node, (0, 0), WHOLE | UNLOCK).unwrap();
        assert!(is_whole_free(&host));
        // Given back, a file has none.
        if node != 0 {
            b.guest.lock(node, (0, 0), WHOLE).unwrap();
            b.guest.forget(node, 2);
            b.guest.attributes(0).unwrap();
            assert!(is_whole_free(&host), "{name}");
        }
    }
    let link = b.guest.symlink(0, "link", b"file").unwrap();
    assert_eq!(b.guest.lock(link, (0, 0), WHOLE), Err(number(Errno::INVAL)));
}

#[test]
fn domains_keep_each_other_out() {
    let mut second = None;
    let mut b = Bench::with_another(
        |root| vec![Volume::open(root, false).unwrap()],
        |engine, root| {
            let (memory, doorbell) = guest::channel();
            second = Some(guest::guest(&memory, &doorbell));
            let volumes = vec![Volume::open(root, true).unwrap()];
            engine.attach(&memory, doorbell, &nodes::memory().unwrap(), volumes).unwrap();
        },
    );
    let mut second = second.unwrap();
    let node = b.guest.create(0, "file").unwrap();
    let same = second.lookup(0, "file").unwrap();
    b.guest.lock(node, (0, 9), EXCLUSIVE).unwrap();
    assert_eq!(second.lock(same, (9, 20), 0), Err(number(Errno::AGAIN)));
    second.lock(same, (10, 20), 0).unwrap();
    // A volume that is only read takes no exclusive locks of ranges, as a descriptor that only reads.
    assert_eq!(second.lock(same, (30, 31), EXCLUSIVE), Err(number(Errno::BADF)));
    b.guest.lock(node, (0, 9), UNLOCK | LAST).unwrap();
    second.lock(same, (0, 9), 0).unwrap();
}

#[test]
fn locked_files_are_bounded() {
    let mut b = Bench::new();
    let mut failed = None;
    for i in 0..=LOCKED {
        let node = b.guest.create(0, &format!("f{i}")).unwrap();
        if let Err(error) = b.guest.lock(node, (0, 0), 0) {
            failed = Some((i, error));
            break;
        }
    }
    let (at, error) = failed.expect("there is no bound");
    assert_eq!(error, number(Errno::NOLCK));
    let first = b.guest.lookup(0, "f0").unwrap();
    b.guest.lock(first, (0, END), UNLOCK | LAST).unwrap();
    let last = b.guest.lookup(0, &format!("f{at}")).unwrap();
    b.guest.lock(last, (0, 0), 0).unwrap();
}
