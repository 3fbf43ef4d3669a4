//! The lookup table: a tree with one floor a hash level.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use super::{Entry, Hasher, LEVELS, Memory, Met, PAGE, Page};

/// Where a page is listed: its keys down to the level at which it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexPosition {
    keys: [u32; LEVELS],
    depth: usize,
}

impl IndexPosition {
    /// Whether the page still has these keys.
    pub fn holds(&self, hasher: Hasher, page: &Page) -> bool {
        (0..self.depth).all(|level| hasher(level, page) == self.keys[level])
    }
}

/// Under one key of one level.
#[derive(Debug)]
enum Node<I> {
    /// The only page with this key: its next keys are not known.
    One(Entry<I>),
    /// Several: by their keys of the next level.
    More(BTreeMap<u32, Node<I>>),
    /// Last level: pages with all keys equal, whether by content or by collision.
    Alike(Vec<Entry<I>>),
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Keys looked up, by level.
    pub lookups: [u64; LEVELS],
    /// Keys that were there, by level.
    pub matches: [u64; LEVELS],
    /// Keys that were there although no equal page was: by level.
    pub collisions: [u64; LEVELS],
    /// Pages compared in full.
    pub compared: u64,
    /// Pages found equal.
    pub equal: u64,
}

#[derive(Debug)]
pub(super) struct Index<I> {
    root: BTreeMap<u32, Node<I>>,
    pub counts: Counts,
}

impl<I> Default for Index<I> {
    fn default() -> Self {
        Self { root: BTreeMap::new(), counts: Counts::default() }
    }
}

/// What a search came to.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing equal; the page is listed now.
    Listed(IndexPosition),
    /// This kept page is equal.
    Equal(u64),
    /// An equal one is there, but could not be kept.
    Full,
}

/// What a listed page turned out to be.
enum Look {
    /// Unchanged as far as its keys go.
    Sound,
    Stale,
}

impl<I: Copy + Eq + Debug> Index<I> {
    /// Searches for `page` and lists it as `id` if it is new. `met` gets what became of other pages.
    pub fn find<M: Memory<Id = I>>(
        &mut self,
        memory: &mut M,
        hasher: Hasher,
        id: I,
        page: &Page,
        met: &mut Vec<Met<I>>,
    ) -> Found {
        let counts = &mut self.counts;
        let mut keys = [0; LEVELS];
        let mut other = [0u8; PAGE];
        let mut floor = &mut self.root;
        for level in 0..LEVELS {
            keys[level] = hasher(level, page);
            let spot = IndexPosition { keys, depth: level + 1 };
            counts.lookups[level] += 1;
            let node = match floor.entry(keys[level]) {
                Slot::Vacant(slot) => {
                    slot.insert(Node::One(Entry::Own(id)));
                    if level > 0 {
                        counts.collisions[level - 1] += 1;
                    }
                    return Found::Listed(spot);
                }
                Slot::Occupied(slot) => slot.into_mut(),
            };
            if let Node::One(entry) = *node {
                if let Look::Stale = read(memory, hasher, entry, &spot, &mut other) {
                    // It does not belong here any more: the place is free.
                    *node = Node::One(Entry::Own(id));
                    met.extend(stale(entry));
                    if level > 0 {
                        counts.collisions[level - 1] += 1;
                    }
                    return Found::Listed(spot);
                }
                if level + 1 < LEVELS {
                    let next = hasher(level + 1, &other);
                    *node = Node::More(BTreeMap::from([(next, Node::One(entry))]));
                    let mut moved = IndexPosition { keys, depth: level + 2 };
                    moved.keys[level + 1] = next;
                    if let Entry::Own(i) = entry {
                        met.push(Met::Moved(i, moved));
                    }
                } else {
                    *node = Node::Alike(vec![entry]);
                }
            }
            counts.matches[level] += 1;
            match node {
                Node::More(next) => floor = next,
                Node::Alike(entries) => {
                    return alike(entries, memory, hasher, id, page, &spot, counts, met);
                }
                Node::One(_) => unreachable!("made to more above"),
            }
        }
        unreachable!("the last level has no further one")
    }

    /// Takes a page out.
    pub fn remove(&mut self, spot: IndexPosition, entry: Entry<I>) {
        remove(&mut self.root, &spot.keys[..spot.depth], entry);
    }
}

/// Compares in full with pages that have all keys in common.
#[allow(clippy::too_many_arguments, reason = "the end of `Index::find`, cut off for its length")]
fn alike<M: Memory>(
    entries: &mut Vec<Entry<M::Id>>,
    memory: &mut M,
    hasher: Hasher,
    id: M::Id,
    page: &Page,
    spot: &IndexPosition,
    counts: &mut Counts,
    met: &mut Vec<Met<M::Id>>,
) -> Found {
    let mut other = [0u8; PAGE];
    let mut twin = None;
    let mut i = 0;
    while i < entries.len() {
        if let Look::Stale = read(memory, hasher, entries[i], spot, &mut other) {
            met.extend(stale(entries.remove(i)));
            continue;
        }
        counts.compared += 1;
        if other == *page {
            match entries[i] {
                Entry::Kept(at) => {
                    counts.equal += 1;
                    return Found::Equal(at);
                }
                // A kept one may follow: what was listed can have become equal to it since, all keys staying the same.
                Entry::Own(id) => twin = twin.or(Some((i, id))),
            }
        }
        i += 1;
    }
    if let Some((i, id)) = twin {
        counts.equal += 1;
        let Some(at) = memory.keep(page) else { return Found::Full };
        entries[i] = Entry::Kept(at);
        met.push(Met::Replaced(id));
        return Found::Equal(at);
    }
    counts.collisions[LEVELS - 1] += u64::from(!entries.is_empty());
    entries.push(Entry::Own(id));
    Found::Listed(*spot)
}

/// Reads a listed page and sees whether the keys of `spot` still hold.
fn read<M: Memory>(
    memory: &mut M,
    hasher: Hasher,
    entry: Entry<M::Id>,
    spot: &IndexPosition,
    into: &mut Page,
) -> Look {
    let there = match entry {
        Entry::Own(id) => memory.read(id, into),
        Entry::Kept(at) => memory.read_kept(at, into),
    };
    if there && spot.holds(hasher, into) { Look::Sound } else { Look::Stale }
}

fn stale<I>(entry: Entry<I>) -> Option<Met<I>> {
    match entry {
        Entry::Own(id) => Some(Met::Stale(id)),
        Entry::Kept(_) => None,
    }
}

fn remove<I: Copy + Eq>(floor: &mut BTreeMap<u32, Node<I>>, keys: &[u32], entry: Entry<I>) {
    let Some((key, rest)) = keys.split_first() else { return };
    let Some(node) = floor.get_mut(key) else { return };
    let empty = match node {
        Node::One(e) => *e == entry,
        Node::More(next) => {
            remove(next, rest, entry);
            next.is_empty()
        }
        Node::Alike(entries) => {
            entries.retain(|e| *e != entry);
            entries.is_empty()
        }
    };
    if empty {
        floor.remove(key);
    }
}
