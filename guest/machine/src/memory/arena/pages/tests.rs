use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::vec::Vec;

use super::*;

const SIZE: u64 = 256 << 20;

/// Memory for an arena, of which only the table is touched.
pub(in super::super) struct Memory(*mut u8);

impl Memory {
    fn layout() -> Layout {
        Layout::from_size_align(SIZE as usize, 1 << 21).unwrap()
    }

    pub(in super::super) fn new() -> Self {
        // SAFETY: the layout is not empty.
        Self(unsafe { alloc_zeroed(Self::layout()) })
    }

    pub(in super::super) fn pages(&self) -> Pages {
        Pages::new(self.0.expose_provenance() as u64, SIZE)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0, Self::layout()) };
    }
}

fn next(x: &mut u64) -> u64 {
    *x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *x >> 20
}

#[test]
fn blocks_are_aligned_disjoint_and_merge_again() {
    let memory = Memory::new();
    let mut p = memory.pages();
    let (mut held, mut x) = (Vec::<(u64, usize)>::new(), 7);
    for _ in 0..30_000 {
        if next(&mut x).is_multiple_of(2) && !held.is_empty() {
            let (at, order) = held.swap_remove(next(&mut x) as usize % held.len());
            p.free(at, order, false);
        } else {
            let order = next(&mut x) as usize % 9;
            let Some((at, _)) = p.alloc(order) else { continue };
            assert!(p.number(at).is_multiple_of(1 << order) && p.number(at) + (1 << order) <= p.count());
            let end = |(at, order): (u64, usize)| at + (PAGE << order);
            assert!(held.iter().all(|h| end((at, order)) <= h.0 || end(*h) <= at));
            held.push((at, order));
        }
    }
    for (at, order) in held.drain(..) {
        p.free(at, order, false);
    }
    let used = p.used();
    let (at, _) = p.alloc(used.ilog2() as usize).unwrap();
    assert_eq!(at, p.address(0), "all is one block again");
    assert_eq!(p.used(), used, "which is not made of fresh pages");
}

#[test]
fn dirty_blocks_are_taken_once_and_come_back_clean() {
    let memory = Memory::new();
    let mut p = memory.pages();
    let (mut held, mut x) = (Vec::new(), 3);
    for _ in 0..2000 {
        let order = next(&mut x) as usize % 4;
        held.push((p.alloc(order).unwrap().0, order));
    }
    assert!(!p.dirty_much());
    // The rest stays in use, so that the spared ones do not become one block with others.
    let spared = held[500].0;
    for (at, order) in held.drain(..500).filter(|h| h.0 < spared).collect::<Vec<_>>() {
        p.free(at, order, false);
    }
    let few = p.dirty;
    for (at, order) in held.drain(1..1000) {
        p.free(at, order, false);
    }
    assert!(p.dirty_much());
    let all = p.dirty - few;
    let (mut found, mut given) = ([(0, 0); 8], 0);
    let spare = spared - p.start;
    loop {
        let n = p.take_dirty(spare, &mut found);
        if n == 0 {
            break;
        }
        for (at, order) in &found[..n] {
            assert!(*at >= p.start + spare);
            given += 1 << order;
            p.free(*at, *order, true);
        }
    }
    assert_eq!((given, p.dirty), (all, few));
    p.taint(SIZE);
    assert!(p.dirty >= few + given);
    // What comes out says whether it was given back.
    while p.dirty > 0 {
        let n = p.take_dirty(0, &mut found);
        found[..n].iter().for_each(|(at, order)| p.free(*at, *order, true));
    }
    assert!(p.alloc(0).is_some_and(|(_, zeroed)| zeroed));
}

#[test]
fn words_hold_what_was_put_in() {
    let w = Word { next: NUMBER, prev: 5, order: 19, clean: true };
    let u = Word::unpack(w.pack());
    assert_eq!((u.next, u.prev, u.order, u.clean), (NUMBER, 5, 19, true));
    let u = Word::unpack(Word { next: 0, prev: NUMBER, order: 1, clean: false }.pack());
    assert_eq!((u.next, u.prev, u.order, u.clean), (0, NUMBER, 1, false));
}
