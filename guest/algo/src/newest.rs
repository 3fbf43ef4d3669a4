//! The newest of what happened, by number.
//!
//! Key type: [`Newest`], a ring that allocates only when it is given room.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// The newest `N` values: number `n` is at `n % N`.
#[derive(Debug)]
pub struct Newest<T, const N: usize> {
    kept: Vec<T>,
    /// The number of the next one.
    next: u64,
}

impl<T, const N: usize> Default for Newest<T, N> {
    fn default() -> Self {
        Self { kept: Vec::new(), next: 0 }
    }
}

/// Room for `N` values.
#[derive(Debug)]
pub struct Room<T, const N: usize>(Vec<T>);

impl<T, const N: usize> Room<T, N> {
    /// Allocates it.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new() -> Result<Self, TryReserveError> {
        let mut room = Vec::new();
        room.try_reserve_exact(N)?;
        Ok(Self(room))
    }
}

impl<T: Copy, const N: usize> Newest<T, N> {
    /// Takes this room if it has none; allocates and frees nothing. What is given back is not needed.
    #[must_use = "freeing it may take a lock"]
    pub fn take(&mut self, room: Room<T, N>) -> Option<Room<T, N>> {
        if self.kept.capacity() >= N {
            return Some(room);
        }
        self.kept = room.0;
        None
    }

    /// The newest one.
    pub fn last(&mut self) -> Option<&mut T> {
        self.kept.get_mut(self.next.checked_sub(1)? as usize % N)
    }

    /// Adds one, in the place of the oldest if all places are taken. Without room it is lost, and has no number.
    pub fn push(&mut self, value: T) {
        let has_room = self.kept.len() < self.kept.capacity();
        match self.kept.get_mut(self.next as usize % N) {
            Some(place) => *place = value,
            None if has_room => self.kept.push(value),
            None => return,
        }
        self.next += 1;
    }

    /// The number of the next one.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The first one with this number or a higher one, and its number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<(u64, T)> {
        let number = number.max(self.next.saturating_sub(N as u64));
        if number >= self.next {
            return None;
        }
        self.kept.get(number as usize % N).map(|value| (number, *value))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let mut ring = Newest::<u32, 4>::default();
        ring.push(9);
        assert_eq!((ring.next(), ring.get(0), ring.last()), (0, None, None));
        assert!(ring.take(Room::new().unwrap()).is_none());
        for value in 0..3 {
            ring.push(value);
        }
        assert_eq!((ring.get(0), ring.get(2), ring.get(3)), (Some((0, 0)), Some((2, 2)), None));
        // More room changes nothing.
        assert!(ring.take(Room::new().unwrap()).is_some());
        for value in 3..7 {
            ring.push(value);
        }
        assert_eq!((ring.get(0), ring.get(5), ring.get(7)), (Some((3, 3)), Some((5, 5)), None));
        *ring.last().unwrap() += 10;
        assert_eq!((ring.get(6), ring.next()), (Some((6, 16)), 7));
    }
}
