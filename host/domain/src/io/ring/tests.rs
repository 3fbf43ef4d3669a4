//! The host's ring ends against an honest and a hostile domain.

use std::io::{Seek, Write};
use std::os::fd::AsFd;

use rustix::fs::MemfdFlags;

use super::*;

fn area() -> SharedMap {
    let fd = rustix::fs::memfd_create("ring-test", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, control::SIZE).unwrap();
    SharedMap::new(fd.as_fd(), usize::try_from(control::SIZE).unwrap()).unwrap()
}

fn file() -> std::fs::File {
    rustix::fs::memfd_create("bytes", MemfdFlags::CLOEXEC).unwrap().into()
}

/// Appends bytes to an output ring as a domain would.
fn produce(map: &SharedMap, offsets: RingOffsets, bytes: &[u8]) {
    let header = offsets.header(map);
    let head = header.head.load(Ordering::Relaxed);
    for (i, byte) in (0u32..).zip(bytes) {
        let (offset, _) = offsets.run(head.wrapping_add(i), 1);
        map.write(offset, &[*byte]);
    }
    header.head.store(head.wrapping_add(u32::try_from(bytes.len()).unwrap()), Ordering::Release);
}

fn take(out: &mut OutputRing, map: &SharedMap, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let n = out.peek(map, &mut bytes).unwrap();
    out.advance(map, n);
    bytes.truncate(n);
    bytes
}

#[test]
fn output_keeps_its_order_around_the_end() {
    let map = area();
    let mut out = OutputRing::new(1);
    let mut written: Vec<u8> = Vec::new();
    let mut expected: Vec<u8> = Vec::new();
    for round in 0u32..200 {
        let bytes: Vec<u8> = (0..997).map(|i: u32| (i.wrapping_mul(31) + round).to_le_bytes()[0]).collect();
        produce(&map, out.offsets, &bytes);
        expected.extend(&bytes);
        loop {
            let bytes = take(&mut out, &map, 700);
            if bytes.is_empty() {
                break;
            }
            written.extend(bytes);
        }
        assert!(out.sleep(&map).unwrap());
    }
    assert!(written == expected && expected.len() > 2 * RING_BYTES as usize);
}

#[test]
fn indices_wrap_at_32_bits() {
    let map = area();
    let mut out = OutputRing::new(2);
    out.tail = u32::MAX - 2;
    out.offsets.header(&map).head.store(u32::MAX - 2, Ordering::Relaxed);
    produce(&map, out.offsets, b"abcdef");
    assert_eq!(out.available(&map).unwrap(), 6);
    let mut all = take(&mut out, &map, 100);
    all.extend(take(&mut out, &map, 100));
    assert_eq!((all.as_slice(), out.tail), (&b"abcdef"[..], 3));
}

#[test]
fn an_impossible_index_is_a_broken_peer() {
    let map = area();
    let mut out = OutputRing::new(1);
    for head in [RING_BYTES + 1, 1 << 31, u32::MAX] {
        out.offsets.header(&map).head.store(head, Ordering::Relaxed);
        assert!(out.available(&map).is_err() && out.sleep(&map).is_err() && out.discard(&map).is_err());
        assert!(out.peek(&map, &mut [0; 10]).is_err());
    }
    out.offsets.header(&map).head.store(RING_BYTES, Ordering::Relaxed);
    assert_eq!(out.available(&map).unwrap(), RING_BYTES, "a full ring is none");

    let mut input = InputRing::new(0);
    for tail in [1, RING_BYTES, u32::MAX - RING_BYTES] {
        input.offsets.header(&map).tail.store(tail, Ordering::Relaxed);
        assert!(input.has_room(&map).is_err(), "{tail}");
        assert!(matches!(input.fill_from(&map, file().as_fd()), Err(Stop::Broken)));
        assert!(input.push(&map, b"x").is_err());
    }
}

#[test]
fn a_domain_cannot_move_the_hosts_own_index() {
    let map = area();
    let mut out = OutputRing::new(1);
    produce(&map, out.offsets, b"one");
    take(&mut out, &map, 100);
    // It writes to the word that is the host's.
    out.offsets.header(&map).tail.store(77, Ordering::Relaxed);
    produce(&map, out.offsets, b"two");
    assert_eq!(take(&mut out, &map, 100), b"two");
}

#[test]
fn input_stops_when_full_and_asks_for_room() {
    let map = area();
    let mut input = InputRing::new(0);
    let mut source = file();
    source.write_all(&vec![7u8; 2 * RING_BYTES as usize]).unwrap();
    source.rewind().unwrap();
    while input.has_room(&map).unwrap() {
        assert!(input.fill_from(&map, source.as_fd()).unwrap() > 0);
    }
    let header = input.offsets.header(&map);
    assert_eq!((input.head, header.producer_waits.load(Ordering::Relaxed)), (RING_BYTES, 1));
    header.tail.store(10, Ordering::Relaxed);
    assert!(input.has_room(&map).unwrap());
    assert_eq!(input.fill_from(&map, source.as_fd()).unwrap(), 10);
}

#[test]
fn pushed_input_goes_around_the_end_and_no_further_than_the_room() {
    let map = area();
    let mut input = InputRing::new(0);
    let first = RING_BYTES as usize - 3;
    assert_eq!(input.push(&map, &vec![1; first]).unwrap(), first);
    input.offsets.header(&map).tail.store(u32::try_from(first).unwrap(), Ordering::Relaxed);
    assert_eq!(input.push(&map, b"abcdef").unwrap(), 6);
    let mut seen = [0; 3];
    map.read(input.offsets.data, &mut seen);
    assert_eq!(&seen, b"def");
    let rest = RING_BYTES as usize - 6;
    assert_eq!(input.push(&map, &vec![2; 2 * RING_BYTES as usize]).unwrap(), rest);
    assert_eq!(input.push(&map, b"x").unwrap(), 0);
}

#[test]
fn wake_up_requests_are_taken_once() {
    let map = area();
    let (out, input) = (OutputRing::new(1), InputRing::new(0));
    out.offsets.header(&map).producer_waits.store(1, Ordering::Relaxed);
    input.offsets.header(&map).consumer_waits.store(5, Ordering::Relaxed);
    assert!(out.take_producer_waits(&map) && input.take_consumer_waits(&map));
    assert!(!out.take_producer_waits(&map) && !input.take_consumer_waits(&map));
    let before = registers(&map).event_seq.load(Ordering::Relaxed);
    post(&map, 0b101);
    post(&map, 0b010);
    assert_eq!(registers(&map).pending.load(Ordering::Relaxed), 0b111);
    assert_eq!(registers(&map).event_seq.load(Ordering::Relaxed), before + 2);
}

#[test]
fn a_successor_goes_on_where_its_predecessor_stopped() {
    let map = area();
    let mut out = OutputRing::new(1);
    produce(&map, out.offsets, b"one two three");
    assert_eq!(take(&mut out, &map, 4), b"one ");
    // Killed after "two " was safe, and before it said so.
    let mut next = OutputRing::new(1);
    next.resume(&map, Some(8));
    assert_eq!(take(&mut next, &map, 64), b"three");
    // What is behind, or further than anything, is no index.
    for nonsense in [Some(3), Some(1000), None] {
        let mut next = OutputRing::new(1);
        next.resume(&map, nonsense);
        assert_eq!(next.taken(), 13);
    }
    let mut input = InputRing::new(0);
    assert_eq!(input.push(&map, b"abc").unwrap(), 3);
    let mut next = InputRing::new(0);
    next.resume(&map);
    assert_eq!(next.push(&map, b"de").unwrap(), 2);
    assert_eq!(next.offsets.header(&map).head.load(Ordering::Relaxed), 5);
    assert!(!next.is_closed(&map));
    next.close(&map);
    assert!(next.is_closed(&map));
}
