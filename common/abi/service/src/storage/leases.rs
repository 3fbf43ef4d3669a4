//! Leases: whether a domain may keep what it knows of a volume, because nobody else has that.
//!
//! Each volume has a word that whoever knows all its users writes and the guest kernel reads at each use of what it keeps. Another
//! word is another lease: what was kept under one is nothing worth under the next. The guest kernel says how many files of a volume
//! have bytes that the service has not seen, so that who takes a lease back can wait for them.

use core::sync::atomic::{AtomicU32, Ordering};

use super::VOLUMES;
use crate::layout;

/// Where the [`Leases`] are in a channel.
pub const LEASES: u64 = 256 << 10;

const COUNT: usize = VOLUMES as usize;
/// It is given.
const GIVEN: u32 = 1;
/// Writes may wait in the domain.
const DELAYED: u32 = 2;
/// It is another one every moment ([`MOMENT`]).
const BRIEF: u32 = 4;
const STEP: u32 = 8;
/// How long what is kept under a brief lease is worth something: 2 to the power of this, in nanoseconds, which is a second.
const MOMENT: u32 = 30;

/// What a domain may keep of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// What it has read.
    Reads,
    /// What it has written as well, for a while.
    Writes,
    /// What it has read, for a second at most, although others may change it.
    Recent,
}

/// A lease as the guest kernel has read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease(u32);

impl Lease {
    /// None.
    pub const NONE: Self = Self(0);

    /// Whether there is one.
    #[must_use]
    pub fn is_held(self) -> bool {
        self.0 & GIVEN != 0
    }

    /// Whether writes may wait.
    #[must_use]
    pub fn may_delay(self) -> bool {
        self.0 & DELAYED != 0
    }

    /// What it is at this moment, in nanoseconds of a clock that does not go back.
    #[must_use]
    pub fn at(self, now: impl FnOnce() -> u64) -> Self {
        if self.0 & BRIEF == 0 { self } else { Self(self.0.wrapping_add((now() >> MOMENT) as u32 * STEP)) }
    }

    /// The same one by a number that is so much larger ([`Leases::last`]): it is told from those of a channel before this.
    #[must_use]
    pub fn behind(self, last: u32) -> Self {
        if self.is_held() { Self(self.0.wrapping_add(last & !(STEP - 1))) } else { self }
    }

    /// A number for it, other than 0 if there is one.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// A page of the channel: the leases of all volumes.
#[repr(C)]
#[derive(Debug)]
pub struct Leases {
    /// Whoever gives them.
    words: [AtomicU32; COUNT],
    /// The guest kernel's: files with bytes that the service has not seen.
    unwritten: [AtomicU32; COUNT],
}

impl Leases {
    fn word(&self, volume: u64) -> Option<&AtomicU32> {
        usize::try_from(volume).ok().and_then(|n| self.words.get(n))
    }

    fn count(&self, volume: u64) -> Option<&AtomicU32> {
        usize::try_from(volume).ok().and_then(|n| self.unwritten.get(n))
    }

    /// Gives a volume's lease, a new one if there is one.
    pub fn give(&self, volume: u64, keeps: Keeps) {
        let bits = match keeps {
            Keeps::Reads => GIVEN,
            Keeps::Writes => GIVEN | DELAYED,
            Keeps::Recent => GIVEN | BRIEF,
        };
        if let Some(word) = self.word(volume) {
            let count = word.load(Ordering::Relaxed) & !(STEP - 1);
            word.store(count.wrapping_add(STEP) | bits, Ordering::SeqCst);
        }
    }

    /// Takes it back. What was written under it may be under way ([`Self::is_written`]).
    pub fn take_back(&self, volume: u64) {
        if let Some(word) = self.word(volume) {
            let count = word.load(Ordering::Relaxed) & !(STEP - 1);
            word.store(count.wrapping_add(STEP), Ordering::SeqCst);
        }
    }

    /// What the guest kernel may rely on now.
    #[must_use]
    pub fn lease(&self, volume: u64) -> Lease {
        let held = self.word(volume).map(|word| Lease(word.load(Ordering::SeqCst)));
        held.filter(|lease| lease.is_held()).unwrap_or_default()
    }

    /// No lease that was given or taken back so far has a number beyond this.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.words.iter().map(|word| word.load(Ordering::SeqCst) & !(STEP - 1)).max().unwrap_or(0)
    }

    /// Whether the service has seen all that was written, as the guest kernel says.
    #[must_use]
    pub fn is_written(&self, volume: u64) -> bool {
        self.count(volume).is_none_or(|count| count.load(Ordering::SeqCst) == 0)
    }

    /// A file has such bytes now. The lease is to be looked at again afterwards.
    pub fn begin_file(&self, volume: u64) {
        if let Some(count) = self.count(volume) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// It has none any more.
    pub fn end_file(&self, volume: u64) {
        if let Some(count) = self.count(volume) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

// Pinned: docs/services.md.
const _: () = {
    assert!(size_of::<Leases>() == 512);
    assert!(LEASES + size_of::<Leases>() as u64 <= layout::SERVICE);
    assert!(LEASES >= layout::ANSWERS + size_of::<crate::Answers>() as u64);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn leases() -> Leases {
        let words = || core::array::from_fn(|_| AtomicU32::new(0));
        Leases { words: words(), unwritten: words() }
    }

    #[test]
    fn each_lease_is_another_one() {
        let leases = leases();
        assert_eq!(leases.lease(3), Lease::NONE);
        leases.give(3, Keeps::Reads);
        let first = leases.lease(3);
        assert!(first.is_held() && !first.may_delay() && first.number() != 0);
        assert_eq!(leases.lease(2), Lease::NONE);
        leases.give(3, Keeps::Writes);
        let second = leases.lease(3);
        assert!(second.may_delay() && second != first);
        leases.take_back(3);
        assert_eq!(leases.lease(3), Lease::NONE);
        leases.give(3, Keeps::Reads);
        let third = leases.lease(3);
        assert!(third != first && third != second && !third.may_delay());
        // In another channel they begin anew.
        let (other, last) = (self::leases(), leases.last());
        assert_eq!(other.lease(3).behind(last), Lease::NONE);
        other.give(3, Keeps::Reads);
        let fourth = other.lease(3).behind(last);
        assert!(fourth.is_held() && !fourth.may_delay() && ![first, second, third].contains(&fourth));
    }

    #[test]
    fn a_brief_lease_is_another_one_every_second() {
        let leases = leases();
        leases.give(3, Keeps::Recent);
        let lease = leases.lease(3);
        let at = |now: u64| lease.at(|| now);
        assert!(at(0).is_held() && !at(0).may_delay());
        assert_eq!(at(5), at(1_000_000_000));
        assert_ne!(at(5), at(1_100_000_000));
        assert!((0..1000).all(|n| at(n << 30) != at((n + 1) << 30) && at(n << 30).is_held()));
        leases.give(3, Keeps::Reads);
        assert_eq!(leases.lease(3).at(|| panic!("it stays as it is")), leases.lease(3));
    }

    #[test]
    fn a_volume_that_is_none_has_no_lease() {
        let leases = leases();
        leases.give(VOLUMES, Keeps::Writes);
        leases.begin_file(u64::MAX);
        assert!(!leases.lease(VOLUMES).is_held() && leases.is_written(VOLUMES));
    }

    #[test]
    fn what_is_not_written_is_counted() {
        let leases = leases();
        leases.begin_file(1);
        leases.begin_file(1);
        leases.end_file(1);
        assert!(!leases.is_written(1) && leases.is_written(0));
        leases.end_file(1);
        assert!(leases.is_written(1));
    }
}
