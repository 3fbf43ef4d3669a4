//! Whether it pays that a thread stays with a domain for which it has waited for a device (`engine/stays.rs`).

use std::sync::atomic::{AtomicU32, Ordering};

/// After so many stays in vain only one in [`SELDOM`] is tried.
const VAIN: u32 = 4;
const SELDOM: u32 = 32;

/// Whether stays with a client were of use lately.
#[derive(Debug, Default)]
pub(crate) struct Stays(AtomicU32);

impl Stays {
    /// Whether to try one.
    pub fn pays(&self) -> bool {
        let vain = self.0.load(Ordering::Relaxed);
        let tries = vain < VAIN || vain.is_multiple_of(SELDOM);
        if !tries {
            self.0.store(vain.wrapping_add(1), Ordering::Relaxed);
        }
        tries
    }

    pub fn ended(&self, of_use: bool) {
        let vain = if of_use { 0 } else { self.0.load(Ordering::Relaxed).wrapping_add(1).max(1) };
        self.0.store(vain, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_nothing_is_seldom_waited_for() {
        let stays = Stays::default();
        let tries = (0..320).filter(|_| {
            let pays = stays.pays();
            if pays {
                stays.ended(false);
            }
            pays
        });
        assert_eq!(tries.count(), 4 + 9);
        while !stays.pays() {}
        stays.ended(true);
        assert!(stays.pays());
    }
}
