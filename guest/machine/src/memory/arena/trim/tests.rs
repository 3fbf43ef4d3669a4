use alloc::vec;
use alloc::vec::Vec;

use super::super::pages::tests::Memory;
use super::super::{CHUNK_ORDER, alloc_small, class_of, cut_page, free_small};
use super::*;

fn page_of(block: *mut u8) -> u64 {
    block.addr() as u64 / PAGE * PAGE
}

/// As many blocks of a class as a page holds.
fn pageful(h: &Header, c: usize) -> Vec<*mut u8> {
    (0..per_page(c)).map(|_| alloc_small(h, c)).collect()
}

fn free(h: &Header, c: usize, blocks: &[*mut u8]) {
    for at in blocks {
        // SAFETY: each was handed out by `alloc_small` of this class, and is given back once.
        unsafe { free_small(h, c, *at) };
    }
}

#[test]
fn a_page_goes_once_all_of_its_blocks_are_free() {
    let memory = Memory::new();
    let h = Header::new(memory.pages());
    let mut counts = vec![0; 4096];
    let c = class_of(1024).unwrap();
    let (first, second) = (pageful(&h, c), pageful(&h, c));
    free(&h, c, &first);
    free(&h, c, &second[1..]);
    release_class(&h, c, &mut counts);
    assert_eq!(alloc_pages(&h, 0).0, first[0]);
    // The other's free blocks are still to be had.
    let again: Vec<_> = second[1..].iter().map(|_| alloc_small(&h, c)).collect();
    assert!(again.iter().all(|b| second[1..].contains(b)));
}

#[test]
fn a_page_that_another_class_took_over_meanwhile_stays_in_use() {
    let memory = Memory::new();
    let h = Header::new(memory.pages());
    let mut counts = vec![0; 4096];
    let (small, large) = (class_of(1024).unwrap(), class_of(2048).unwrap());
    let blocks = pageful(&h, small);
    // The next page is not cut from the same chunk.
    for _ in 1..1 << CHUNK_ORDER {
        cut_page(&h);
    }
    free(&h, small, &blocks);
    release_class(&h, small, &mut counts);
    // While trim looks through a class, others make use of what it gave back of those before.
    let (taken, other) = (pageful(&h, large), alloc_small(&h, large));
    assert_eq!(page_of(taken[0]), page_of(blocks[0]));
    assert_ne!(page_of(other), page_of(blocks[0]));
    free(&h, large, &taken[..1]);
    release_class(&h, large, &mut counts);
    // One of its two blocks is in use.
    assert_ne!(alloc_pages(&h, 0).0.addr() as u64, page_of(taken[1]));
}
