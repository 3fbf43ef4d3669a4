//! Images and exports damaged at random, with their checksums made right again: a bounded run of what `fuzz/` does
//! without bounds.
#![forbid(unsafe_code)]

mod common;

use doppel_abi_machine::frozen::{HEADER_SIZE, SEGMENT_SIZE};

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound as u64).expect("below a usize")
    }
}

/// Changes one to four things.
fn mutate(bytes: &mut Vec<u8>, n: &mut Numbers) {
    const WORDS: [u64; 12] =
        [0, 1, 2, 4095, 4096, 8192, 20480, 24576, 1 << 20, 1 << 40, u64::MAX - 4095, u64::MAX];
    let tables = (HEADER_SIZE + 7 * SEGMENT_SIZE) as usize;
    for _ in 0..=n.below(4) {
        let end = bytes.len().max(1);
        match n.below(8) {
            // Where the numbers are.
            0..4 => {
                let at = n.below(tables.min(end) / 8 + 1) * 8 + [0, 4][n.below(2)];
                let word = WORDS[n.below(WORDS.len())].to_le_bytes();
                for (i, b) in word.iter().enumerate().take(if n.below(2) == 0 { 4 } else { 8 }) {
                    if let Some(place) = bytes.get_mut(at + i) {
                        *place = *b;
                    }
                }
            }
            4 | 5 => {
                let at = n.below(tables.min(end));
                if let Some(place) = bytes.get_mut(at) {
                    *place = n.below(256) as u8;
                }
            }
            6 => {
                let at = n.below(end);
                if let Some(place) = bytes.get_mut(at) {
                    *place ^= 1 << n.below(8);
                }
            }
            _ => bytes.resize(n.below(8) * 4096 + [0, 0, 0, 17][n.below(4)], 0),
        }
    }
}

#[test]
fn mutated_images() {
    let (store, good, mut n) = (common::TempStore::new(), common::sound_image(), Numbers(2007));
    assert_eq!(store.exercise(&good), 1, "the image they are made of is sound");
    let mut taken = 0;
    for _ in 0..4000 {
        let mut bytes = good.clone();
        mutate(&mut bytes, &mut n);
        taken += store.exercise(&bytes);
    }
    // Else the checksums stop everything and nothing behind them is tested.
    assert!(taken > 200, "only {taken} were taken for sound");
}

#[test]
fn mutated_images_with_an_ancestor() {
    let (store, good, mut n) = (common::TempStore::new(), common::sound_child(), Numbers(77));
    assert_eq!(store.exercise(&good), 1, "the image they are made of is sound");
    let mut taken = 0;
    for _ in 0..1000 {
        let mut bytes = good.clone();
        mutate(&mut bytes, &mut n);
        taken += store.exercise(&bytes);
    }
    assert!(taken > 50, "only {taken} were taken for sound");
}

#[test]
fn another_ancestor_is_refused() {
    let (store, child, mut n) = (common::TempStore::new(), common::sound_child(), Numbers(9));
    let good = common::sound_image();
    for _ in 0..300 {
        let mut ancestor = good.clone();
        mutate(&mut ancestor, &mut n);
        for forged in [false, true] {
            if forged {
                common::forge(&mut ancestor);
            }
            // What the child needs of it is in its first and only chunk.
            let taken = store.exercise_beside(&child, &ancestor);
            assert_eq!(taken, usize::from(ancestor == good), "a file that is not its ancestor");
        }
    }
    for len in [0, 1, 100, 4096, good.len() - 1] {
        assert_eq!(store.exercise_beside(&child, &good[..len]), 0, "{len} bytes of its ancestor");
    }
    assert_eq!(store.exercise_beside(&child, &child), 0, "it cannot be its own");
}

#[test]
fn mutated_exports() {
    let store = common::TempStore::new();
    let (good, mut n) = (store.export_of(&common::sound_image()), Numbers(5));
    assert_eq!(store.exercise(&good), 1, "the export they are made of is sound");
    for _ in 0..2000 {
        let mut bytes = good.clone();
        mutate(&mut bytes, &mut n);
        store.exercise(&bytes);
    }
}
