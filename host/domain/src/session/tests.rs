//! The host's end of sessions against a domain that writes whatever it likes wherever it can.

use doppel_abi_machine::session::SessionHeader;
use doppel_abi_machine::session::{SESSION_RING_COUNT, SESSION_RINGS};
use doppel_abi_machine::{RING_BYTES, RING_DATA, RING_STRIDE, RingHeader};

use super::*;
use crate::peer::{self, Peer};
use crate::session::slots::Slots;
use crate::session::slots::header;
use crate::session::slots::offset;

impl Peer {
    fn open(&self) -> Result<Session, Error> {
        let config = peer::exec();
        Session::open(&self.core, &config, Output::Kept, false)
    }
}

/// Where a ring of a slot begins.
fn ring_at(slot: usize, index: usize) -> usize {
    offset(slot, SESSION_RINGS + index as u64 * RING_STRIDE)
}

/// Prints as an honest domain does.
fn print(map: &SharedMap, slot: usize, bytes: &[u8]) {
    let at = ring_at(slot, ring::STDOUT);
    let header: &RingHeader = map.get(at);
    let head = header.head.load(Ordering::Relaxed);
    for (i, byte) in (0u32..).zip(bytes) {
        let place = (head.wrapping_add(i) % RING_BYTES) as usize;
        map.write(at + usize::try_from(RING_DATA).unwrap() + place, &[*byte]);
    }
    header.head.store(head.wrapping_add(u32::try_from(bytes.len()).unwrap()), Ordering::Release);
}

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound as u64).unwrap()
    }

    fn word(&mut self) -> u32 {
        const ODD: [u32; 9] = [0, 1, 2, 3, RING_BYTES - 1, RING_BYTES, RING_BYTES + 1, 1 << 31, u32::MAX];
        match self.below(3) {
            0 => u32::try_from(self.below(1 << 31)).unwrap(),
            _ => ODD[self.below(ODD.len())],
        }
    }
}

/// Writes a word into the header of the slot or of one of its rings.
fn scribble(map: &SharedMap, slot: usize, n: &mut Numbers) {
    let (start, words) = match n.below(SESSION_RING_COUNT + 1) {
        0 => (offset(slot, 0), size_of::<SessionHeader>() / 4),
        ring => (ring_at(slot, ring - 1), size_of::<RingHeader>() / 4),
    };
    map.write(start + 4 * n.below(words), &n.word().to_le_bytes());
}

#[test]
fn scribbling_hurts_nobody_else() {
    let peer = Peer::new();
    let map = &peer.core.map;
    let mut n = Numbers(1);
    let mut honest = peer.open().unwrap();
    let mut printed = Vec::new();
    let mut broken = 0;
    for round in 0..400u32 {
        let mut hostile = peer.open().unwrap();
        let slot = hostile.slot;
        for _ in 0..50 {
            scribble(map, slot, &mut n);
            let before = hostile.captured().stdout.len() + hostile.captured().stderr.len();
            match n.below(8) {
                0 => assert!(hostile.write_input(&[7; 100]) <= 100),
                1 => hostile.resize(1, 2),
                2 => hostile.signal(i32::try_from(n.below(100)).unwrap() - 10),
                3 if n.below(20) == 0 => hostile.close_input(),
                _ => {}
            }
            let step = hostile.step();
            let got = hostile.captured().stdout.len() + hostile.captured().stderr.len() - before;
            assert!(got <= 2 * RING_BYTES as usize, "a step moves no more than the rings hold: {got}");
            assert!(step.started.is_none_or(|pid| (1..PID_MAX).contains(&pid)));
            if let Some(end) = step.end {
                assert!(end != SessionEnd::DomainEnded, "nobody ended");
                broken += u32::from(end == SessionEnd::Broken);
                break;
            }
        }
        // It scribbles on while the host lets go; then the slot is free again, and clean.
        scribble(map, slot, &mut n);
        drop(hostile);
        scribble(map, slot, &mut n);
        header(map, slot).left.store(1, Ordering::Release);

        let line = format!("line {round}\n");
        print(map, honest.slot, line.as_bytes());
        printed.extend(line.bytes());
        assert_eq!(honest.step().end, None);
    }
    assert_eq!(honest.captured().stdout, printed);
    assert!(broken > 20, "what is impossible is found: {broken}");
}

#[test]
fn a_slot_is_the_hosts_until_it_is_let_go() {
    let peer = Peer::new();
    let map = &peer.core.map;
    let mut all: Vec<Session> = (0..SESSIONS).map(|_| peer.open().unwrap()).collect();
    // It says that it has left all of them, while the host has not.
    for slot in 0..SESSIONS {
        header(map, slot).left.store(1, Ordering::Release);
    }
    assert!(peer.open().is_err());
    let slot = all.pop().unwrap().slot;
    let again = peer.open().unwrap();
    assert_eq!(again.slot, slot);
    assert_eq!(header(map, slot).left.load(Ordering::Acquire), 0, "with clean pages");
    // One that the domain never leaves stays taken: nobody else's memory is given to two.
    drop(again);
    assert!(peer.open().is_err());
}

#[test]
fn a_successor_goes_on_with_what_was_not_safe() {
    /// Takes all, and calls safe what it is told to.
    #[derive(Default)]
    struct Taken {
        pieces: Vec<(u32, Vec<u8>)>,
        safe: u32,
    }
    #[derive(Clone, Default)]
    struct To(Arc<std::sync::Mutex<Taken>>);
    impl crate::Sink for To {
        fn put(&mut self, _: Stream, at: u32, bytes: &[u8]) -> std::io::Result<usize> {
            lock(&self.0).pieces.push((at, bytes.to_vec()));
            Ok(bytes.len())
        }
        fn safe(&self, stream: Stream) -> Option<u32> {
            Some(if stream == Stream::Stdout { lock(&self.0).safe } else { 0 })
        }
    }
    let peer = Peer::new();
    let map = &peer.core.map;
    let to = To::default();
    let config = peer::exec();
    let mut session =
        Session::open_kept(&peer.core, &config, Output::To(Box::new(to.clone())), "mine").unwrap();
    assert_eq!(session.write_input(b"in"), 2);
    print(map, 0, b"one two");
    session.step();
    lock(&to.0).safe = 4;
    session.step();
    let tail = || map.get::<RingHeader>(ring_at(0, ring::STDOUT)).tail.load(Ordering::Relaxed);
    assert_eq!((tail(), lock(&to.0).pieces.clone()), (4, vec![(0, b"one two".to_vec())]));
    // Another connection of the same process.
    session.rewind();
    session.step();
    assert_eq!(lock(&to.0).pieces.last(), Some(&(4, b"two".to_vec())));
    // Another process; this one says nothing any more.
    std::mem::forget(session);
    header(map, 0).status.store(5 << 8, Ordering::Relaxed);
    header(map, 0).state.store(session_state::ENDED, Ordering::Release);
    // Half written, as a slot is whose host dies before it asks; and one that was released.
    header(map, 1).request_len.store(9, Ordering::Relaxed);
    InputRing::session(1, ring::STDIN).close(map);
    *lock(&peer.core.sessions) = Slots::adopt(map);
    let left = lock(&peer.core.sessions).take_left();
    assert_eq!(left, [(0, "mine".to_owned())]);
    let next = To::default();
    lock(&next.0).safe = 4;
    let mut session = Session::resume(&peer.core, 0, true, Output::To(Box::new(next.clone())));
    assert_eq!((session.given(), session.taken()), (2, [4, 0]));
    assert_eq!(session.step().end, Some(SessionEnd::Exited(5)));
    assert_eq!(lock(&next.0).pieces, [(4, b"two".to_vec())]);
    assert_eq!(session.write_input(b"put"), 3);
    assert_eq!(session.given(), 5);
    let other = peer.open().unwrap();
    assert!(other.slot == 1 && other.input_open && !other.input.is_closed(map));
    drop(session);
    *lock(&peer.core.sessions) = Slots::adopt(map);
    assert!(lock(&peer.core.sessions).take_left().is_empty(), "it was released");
}
