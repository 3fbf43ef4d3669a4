//! The first two blocks of a device, and where everything else is.

use crate::superblock::{SUPERBLOCKS, opened, sealed};
use crate::{BLOCK, Error};

const MAGIC: u64 = u64::from_le_bytes(*b"DOPPELFS");
const VERSION: u32 = 1;
/// One in so many blocks is for each half of the log.
const SHARE: u64 = 32;
/// Blocks of a half: the fewest, and the most (records of one transaction have no more bytes).
const HALF: core::ops::RangeInclusive<u64> = 16..=1 << 18;
/// A log that has come so far is no honest one: numbers behind it are not counted on.
const LAST: u64 = 1 << 62;

/// Fewest blocks of a device.
pub const FEWEST: u64 = 256;

/// What tells a file system, and where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Rises with each that is written.
    pub generation: u64,
    /// Random: no other file system's blocks have right sums here.
    pub salt: u64,
    /// Blocks of each half of the log.
    pub half: u64,
    /// The block of the first transaction, a checkpoint: where one of the halves begins.
    pub start: u64,
    /// Its sequence number.
    pub sequence: u64,
    /// What tells it from all others, clones aside.
    pub uuid: [u8; 16],
}

impl Superblock {
    /// That of a new file system on a device of so many blocks.
    pub(super) fn new(blocks: u64, salt: u64, uuid: [u8; 16]) -> Self {
        let half = (blocks / SHARE).clamp(*HALF.start(), *HALF.end());
        Self { generation: 1, salt, half, start: SUPERBLOCKS, sequence: 1, uuid }
    }

    /// The next one: reading begins in the other half.
    pub(super) fn next(&self, sequence: u64) -> Self {
        Self { generation: self.generation + 1, start: self.other_half(), sequence, ..*self }
    }

    /// Where the half begins in which nothing is read.
    pub(super) fn other_half(&self) -> u64 {
        if self.start == SUPERBLOCKS { SUPERBLOCKS + self.half } else { SUPERBLOCKS }
    }

    /// The block behind the half that is read.
    pub(super) fn end_of_half(&self) -> u64 {
        self.start + self.half
    }

    /// The first block of data; those from here to the device's end are.
    #[must_use]
    pub fn first_data(&self) -> u64 {
        SUPERBLOCKS + 2 * self.half
    }

    /// The block where it is written: never that of the one before.
    pub(super) fn block(&self) -> u64 {
        self.generation % SUPERBLOCKS
    }

    /// As a block.
    pub(super) fn encode(&self) -> [u8; BLOCK as usize] {
        let words = [MAGIC, VERSION.into(), self.generation, self.salt, self.half, self.start, self.sequence];
        sealed(&words, &self.uuid)
    }

    /// From a block of a device of so many; none if it is not valid.
    fn decode(block: &[u8; BLOCK as usize], blocks: u64) -> Result<Option<Self>, Error> {
        let Some(([_, _, generation, salt, half, start, sequence], uuid)) = opened(block, MAGIC, VERSION)?
        else {
            return Ok(None);
        };
        let found = Self { generation, salt, half, start, sequence, uuid };
        if !HALF.contains(&half)
            || (start != SUPERBLOCKS && start != SUPERBLOCKS + half)
            || !(1..LAST).contains(&generation)
            || !(1..LAST).contains(&sequence)
        {
            return Err(Error::Corrupt("a superblock says what cannot be"));
        }
        if found.first_data() >= blocks {
            return Err(Error::Corrupt("the device is smaller than the file system"));
        }
        Ok(Some(found))
    }

    /// The one that counts, on a device of so many blocks.
    ///
    /// # Errors
    /// None is valid, or one is of a newer format.
    pub(super) fn choose(
        found: &[[u8; BLOCK as usize]; SUPERBLOCKS as usize],
        blocks: u64,
    ) -> Result<Self, Error> {
        let [a, b] = [Self::decode(&found[0], blocks)?, Self::decode(&found[1], blocks)?];
        a.into_iter().chain(b).max_by_key(|s| s.generation).ok_or(Error::NotLayer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_valid_one_counts() {
        let first = Superblock::new(1000, 9, [7; 16]);
        let second = first.next(4);
        assert_ne!(first.block(), second.block());
        let mut blocks = [[0; BLOCK as usize]; 2];
        let choose = |blocks: &_| Superblock::choose(blocks, 1000);
        assert_eq!(choose(&blocks), Err(Error::NotLayer));
        blocks[first.block() as usize] = first.encode();
        assert_eq!(choose(&blocks), Ok(first));
        blocks[second.block() as usize] = second.encode();
        assert_eq!(choose(&blocks), Ok(second));
        assert!(Superblock::choose(&blocks, second.first_data()).is_err(), "no room for data");
        // It was torn as it was written.
        blocks[second.block() as usize][60] ^= 1;
        assert_eq!(choose(&blocks), Ok(first));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = Superblock::new(1000, 9, [7; 16]);
        let wrong = [
            Superblock { half: 0, ..good },
            Superblock { half: u64::MAX, ..good },
            Superblock { start: 3, ..good },
            Superblock { sequence: u64::MAX, ..good },
            Superblock { generation: 0, ..good },
        ];
        for one in wrong {
            let found = Superblock::choose(&[one.encode(), [0; BLOCK as usize]], 1000);
            assert!(matches!(found, Err(Error::Corrupt(_))), "{one:?}");
        }
    }
}
