//! Which pages of running clones are equal: partial hashing (Cloning L4Linux, 2007, §3.3.1).
//!
//! A page is hashed level by level, each level sampling more of it than the last; the levels' keys, in order, make
//! its hash value. The [`Index`] is a tree of these keys: a page stays at the first level where it is alone, so most
//! pages that no other resembles are only ever hashed by their first bytes. When a second page comes to the same
//! key, both go one level down, and the search continues in that subtree. Pages with all keys equal are compared in
//! full; those that differ still (a collision) stay side by side.
//!
//! Pages are written while they are known here. Keys that no longer hold are found when the page is looked at
//! again; a page for which that, or a write to it after it was shared, happened more than [`HOT`] times is hot and
//! left alone. Nothing here is believed when memory is remapped: the caller compares once more, with the domain
//! standing still.
//!
//! Boundary: pure; memory is reached through [`Memory`].

mod index;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

pub use index::Counts;
use index::{Index, IndexPosition};

use crate::format::is_zero;

/// Bytes of a page.
pub const PAGE: usize = doppel_abi_machine::layout::PAGE as usize;
/// Content of a page.
pub type Page = [u8; PAGE];
/// Number of hash levels; the full comparison comes on top.
pub const LEVELS: usize = 3;
/// What each level samples, and the bits of its key (§4.3.1, figures 3.3 and 4.5).
pub const SAMPLES: [(usize, usize, u32); LEVELS] = [(0, 64, 16), (64, 1024, 16), (1024, PAGE, 32)];
/// So often may a page be written after it was hashed or shared; then it is hot.
pub const HOT: u8 = 3;

/// Key of a page at one level.
pub type Hasher = fn(level: usize, page: &Page) -> u32;

/// The keys that are used outside of tests.
#[must_use]
pub fn key(level: usize, page: &Page) -> u32 {
    let (from, to, bits) = SAMPLES[level];
    // Truncated to the level's size on purpose.
    (xxh3_64(&page[from..to]) >> (64 - bits)) as u32
}

/// The memory that is searched.
pub trait Memory {
    /// Names a page of a process.
    type Id: Copy + Eq + Hash + Debug;
    /// Reads a page as it is now; false if it is gone or not its owner's alone any more.
    fn read(&mut self, id: Self::Id, into: &mut Page) -> bool;
    /// Keeps a page for sharing; none if there is no room.
    fn keep(&mut self, page: &Page) -> Option<u64>;
    /// Reads a page that was kept; false if that fails.
    fn read_kept(&mut self, at: u64, into: &mut Page) -> bool;
}

/// What was found out about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All zeros.
    Zero,
    /// Written too often.
    Hot,
    /// No other page is known to be equal.
    Unique,
    /// Equal to the page that was kept here.
    Equal(u64),
    /// Equal to another, but there is no room to keep it.
    Full,
}

/// What is remembered of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    state: State,
    writes: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not in the index.
    #[default]
    Out,
    /// In the index under these keys.
    Listed(IndexPosition),
    /// Shared; when it is seen again as a page of its own, it was written.
    Shared,
    /// Left alone for ever.
    Hot,
}

/// Equal pages among those it is shown.
#[derive(Debug)]
pub struct Sharer<M: Memory> {
    index: Index<M::Id>,
    pages: HashMap<M::Id, Record>,
    hasher: Hasher,
    hot: u64,
}

/// A page of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry<I> {
    /// Of a process.
    Own(I),
    /// Kept for sharing.
    Kept(u64),
}

/// What became of pages that were met on the way.
#[derive(Debug)]
enum Met<I> {
    /// It is still in the index, under more keys.
    Moved(I, IndexPosition),
    /// It was written since it was listed, or is gone: not in the index any more.
    Stale(I),
    /// It was equal, and its place is taken by the kept page.
    Replaced(I),
}

impl<M: Memory> Default for Sharer<M> {
    fn default() -> Self {
        Self::with_hasher(key)
    }
}

impl<M: Memory> Sharer<M> {
    /// Uses other keys: tests do, to see collisions.
    #[must_use]
    pub fn with_hasher(hasher: Hasher) -> Self {
        Self { index: Index::default(), pages: HashMap::new(), hasher, hot: 0 }
    }

    /// Looks at a page that is its process' own and has this content.
    pub fn look(&mut self, memory: &mut M, id: M::Id, page: &Page) -> Verdict {
        let mut record = self.pages.get(&id).copied().unwrap_or_default();
        let zero = is_zero(page);
        match record.state {
            State::Hot => return Verdict::Hot,
            State::Listed(spot) if !zero && spot.holds(self.hasher, page) => return Verdict::Unique,
            State::Listed(spot) => {
                self.index.remove(spot, Entry::Own(id));
                self.written(&mut record);
            }
            State::Shared => self.written(&mut record),
            State::Out => {}
        }
        if record.state == State::Hot {
            self.pages.insert(id, record);
            return Verdict::Hot;
        }
        record.state = State::Out;
        if zero {
            self.pages.insert(id, record);
            return Verdict::Zero;
        }
        let mut met = Vec::new();
        let (verdict, state) = match self.index.find(memory, self.hasher, id, page, &mut met) {
            index::Found::Listed(spot) => (Verdict::Unique, State::Listed(spot)),
            index::Found::Equal(at) => (Verdict::Equal(at), State::Out),
            index::Found::Full => (Verdict::Full, State::Out),
        };
        record.state = state;
        self.pages.insert(id, record);
        for met in met {
            self.note(met);
        }
        verdict
    }

    fn note(&mut self, met: Met<M::Id>) {
        let (Met::Moved(id, _) | Met::Stale(id) | Met::Replaced(id)) = met;
        let Some(mut record) = self.pages.get(&id).copied() else { return };
        match met {
            Met::Moved(_, spot) => record.state = State::Listed(spot),
            Met::Replaced(_) => record.state = State::Out,
            Met::Stale(_) => {
                record.state = State::Out;
                self.written(&mut record);
            }
        }
        self.pages.insert(id, record);
    }

    /// Counts a write to a page that is not in the index any more.
    fn written(&mut self, record: &mut Record) {
        record.writes += 1;
        if record.writes > HOT {
            record.state = State::Hot;
            self.hot += 1;
        }
    }

    /// The page now is a mapping of the kept one, or of zeros.
    pub fn shared(&mut self, id: M::Id) {
        let record = self.pages.entry(id).or_default();
        if record.state == State::Out {
            record.state = State::Shared;
        }
    }

    /// Whether looking at the page is of no use.
    #[must_use]
    pub fn is_hot(&self, id: M::Id) -> bool {
        self.pages.get(&id).is_some_and(|r| r.state == State::Hot)
    }

    /// Forgets pages that are no more.
    pub fn forget(&mut self, gone: impl Fn(M::Id) -> bool) {
        let index = &mut self.index;
        let hot = &mut self.hot;
        self.pages.retain(|&id, record| {
            let gone = gone(id);
            match record.state {
                State::Listed(spot) if gone => index.remove(spot, Entry::Own(id)),
                State::Hot if gone => *hot -= 1,
                _ => {}
            }
            !gone
        });
    }

    /// How often what happened in the index.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.index.counts
    }

    /// Number of hot pages.
    #[must_use]
    pub fn hot(&self) -> u64 {
        self.hot
    }

    /// Frequencies of collisions as in Table 5.2.
    #[must_use]
    pub fn collisions(&self) -> Vec<LevelReport> {
        let c = &self.index.counts;
        let level = |i: usize| LevelReport {
            level: i + 1,
            sample_from: SAMPLES[i].0,
            sample_to: SAMPLES[i].1,
            key_bits: SAMPLES[i].2,
            lookups: c.lookups[i],
            matches: c.matches[i],
            collisions: c.collisions[i],
            frequency: if c.lookups[i] == 0 { 0.0 } else { c.collisions[i] as f64 / c.lookups[i] as f64 },
        };
        (0..LEVELS).map(level).collect()
    }
}

/// One hash level's figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LevelReport {
    /// From 1 on.
    pub level: usize,
    /// First byte it samples.
    pub sample_from: usize,
    /// End of its sample.
    pub sample_to: usize,
    /// Bits of its key.
    pub key_bits: u32,
    /// Pages whose key was looked up at this level.
    pub lookups: u64,
    /// Of these, how many met a page with the same key.
    pub matches: u64,
    /// Of these, how many met no equal page: the keys collided.
    pub collisions: u64,
    /// Collisions a lookup.
    pub frequency: f64,
}
