//! A hash table of named things, for directory caches: lookups compare with a name the thing itself knows.
//!
//! Key type: [`NameTable`]. Open addressing with linear probing; a removal moves later entries back, so there are
//! no tombstones and an emptied table probes like a new one.

use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// Mixes a name, eight bytes at a time.
#[must_use]
pub fn name_hash(name: &[u8]) -> u32 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = name.len() as u64;
    let (words, rest) = name.as_chunks::<8>();
    for w in words {
        h = (h.rotate_left(5) ^ u64::from_le_bytes(*w)).wrapping_mul(K);
    }
    let tail = rest.iter().rev().fold(0, |t, b| t << 8 | u64::from(*b));
    h = (h.rotate_left(5) ^ tail).wrapping_mul(K);
    (h >> 32) as u32
}

/// Things by name; each is stored with its name's [`name_hash`].
#[derive(Clone, Debug)]
pub struct NameTable<T> {
    /// A power of two, or empty.
    slots: Vec<Option<(u32, T)>>,
    len: usize,
}

impl<T> Default for NameTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }
}

impl<T> NameTable<T> {
    /// Number of things.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn position(&self, hash: u32, mut is: impl FnMut(&T) -> bool) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut i = hash as usize & mask;
        // There is always an empty slot.
        while let Some((h, t)) = &self.slots[i] {
            if *h == hash && is(t) {
                return Some(i);
            }
            i = (i + 1) & mask;
        }
        None
    }

    /// The thing with this hash that `is` accepts.
    pub fn find(&self, hash: u32, is: impl FnMut(&T) -> bool) -> Option<&T> {
        let i = self.position(hash, is)?;
        self.slots[i].as_ref().map(|(_, t)| t)
    }

    /// As [`Self::find`], to change it. Its name must stay.
    pub fn find_mut(&mut self, hash: u32, is: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let i = self.position(hash, is)?;
        self.slots[i].as_mut().map(|(_, t)| t)
    }

    /// Adds a thing whose name is not in the table.
    pub fn insert(&mut self, hash: u32, thing: T) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        self.len += 1;
        self.place(hash, thing);
    }

    fn place(&mut self, hash: u32, thing: T) {
        let mask = self.slots.len() - 1;
        let mut i = hash as usize & mask;
        while self.slots[i].is_some() {
            i = (i + 1) & mask;
        }
        self.slots[i] = Some((hash, thing));
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(8);
        let mut slots = Vec::with_capacity(size);
        slots.resize_with(size, || None);
        for (hash, thing) in core::mem::replace(&mut self.slots, slots).into_iter().flatten() {
            self.place(hash, thing);
        }
    }

    /// Takes a thing out.
    pub fn remove(&mut self, hash: u32, is: impl FnMut(&T) -> bool) -> Option<T> {
        let mut hole = self.position(hash, is)?;
        let (_, out) = self.slots[hole].take()?;
        self.len -= 1;
        let mask = self.slots.len() - 1;
        let mut i = (hole + 1) & mask;
        while let Some((h, _)) = &self.slots[i] {
            // An entry may move back to the hole unless its home lies behind the hole.
            let home = *h as usize & mask;
            if (i.wrapping_sub(home) & mask) >= (i.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[i].take();
                hole = i;
            }
            i = (i + 1) & mask;
        }
        Some(out)
    }

    /// All things, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, t)| t)
    }

    /// Takes out all things that `keep`, asked once for each, refuses; gives them.
    pub fn extract(&mut self, mut keep: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut out = Vec::new();
        let size = self.slots.len();
        let mut slots = Vec::with_capacity(size);
        slots.resize_with(size, || None);
        self.len = 0;
        for (hash, thing) in core::mem::replace(&mut self.slots, slots).into_iter().flatten() {
            if keep(&thing) {
                self.len += 1;
                self.place(hash, thing);
            } else {
                out.push(thing);
            }
        }
        out
    }
}
