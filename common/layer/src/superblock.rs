//! The first two blocks.

use crate::transaction::Sum;
use crate::{BLOCK, Error};

/// How many there are; they are the first blocks.
pub const SUPERBLOCKS: u64 = 2;

const MAGIC: u64 = u64::from_le_bytes(*b"DOPLAYER");
const VERSION: u32 = 1;

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Rises with each that is written.
    pub generation: u64,
    /// What tells the image whose files this layer changes.
    pub image: [u8; 32],
    /// Random: no other layer's blocks have right sums here.
    pub salt: u64,
    /// The block of the first transaction.
    pub start: u64,
    /// Its sequence number.
    pub sequence: u64,
}

impl Superblock {
    /// That of a new layer.
    #[must_use]
    pub fn new(image: [u8; 32], salt: u64) -> Self {
        Self { generation: 1, image, salt, start: SUPERBLOCKS, sequence: 1 }
    }

    /// The next one, where reading begins at another transaction.
    #[must_use]
    pub fn next(&self, start: u64, sequence: u64) -> Self {
        Self { generation: self.generation + 1, start, sequence, ..*self }
    }

    /// The block where it is written: never that of the one before.
    #[must_use]
    pub fn block(&self) -> u64 {
        self.generation % SUPERBLOCKS
    }

    /// As a block.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK as usize] {
        let words = [MAGIC, u64::from(VERSION), self.generation, self.salt, self.start, self.sequence];
        sealed(&words, &self.image)
    }

    /// From a block; none if it is not valid.
    fn decode(block: &[u8; BLOCK as usize]) -> Result<Option<Self>, Error> {
        let Some(([_, _, generation, salt, start, sequence], image)) = opened(block, MAGIC, VERSION)? else {
            return Ok(None);
        };
        let found = Self { generation, image, salt, start, sequence };
        Ok(Some(found).filter(|s| s.start >= SUPERBLOCKS && s.generation < u64::MAX))
    }

    /// The one that counts.
    ///
    /// # Errors
    /// None is valid, or the newest is of a newer format.
    pub fn choose(blocks: &[[u8; BLOCK as usize]; SUPERBLOCKS as usize]) -> Result<Self, Error> {
        let [a, b] = [Self::decode(&blocks[0])?, Self::decode(&blocks[1])?];
        a.into_iter().chain(b).max_by_key(|s| s.generation).ok_or(Error::NotLayer)
    }
}

/// A block of words, of which the first two are the magic and the version, and bytes, with the sum of both behind them.
pub(crate) fn sealed(words: &[u64], bytes: &[u8]) -> [u8; BLOCK as usize] {
    let mut block = [0; BLOCK as usize];
    for (to, word) in block.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let (at, end) = (words.len() * 8, words.len() * 8 + bytes.len());
    block[at..end].copy_from_slice(bytes);
    let sum = Sum::of(0, &block[..end]);
    block[end..end + 8].copy_from_slice(&sum.to_le_bytes());
    block
}

/// Words and bytes of a block.
type Opened<const WORDS: usize, const BYTES: usize> = ([u64; WORDS], [u8; BYTES]);

/// What [`sealed`] was given; none if it is no such block, or torn.
///
/// # Errors
/// It is of another version.
pub(crate) fn opened<const WORDS: usize, const BYTES: usize>(
    block: &[u8; BLOCK as usize],
    magic: u64,
    version: u32,
) -> Result<Option<Opened<WORDS, BYTES>>, Error> {
    let word = |i: usize| block.as_chunks().0.get(i).map_or(0, |w| u64::from_le_bytes(*w));
    let end = WORDS * 8 + BYTES;
    if word(0) != magic || word(end / 8) != Sum::of(0, &block[..end]) {
        return Ok(None);
    }
    let found = word(1) as u32;
    if found != version {
        return Err(Error::Version(found));
    }
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(&block[WORDS * 8..end]);
    Ok(Some((core::array::from_fn(word), bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the sum is of.
    const BYTES: usize = 80;

    #[test]
    fn the_newest_valid_one_counts() {
        let first = Superblock::new([7; 32], 9);
        let second = first.next(10, 4);
        assert_ne!(first.block(), second.block());
        let mut blocks = [[0; BLOCK as usize]; 2];
        assert_eq!(Superblock::choose(&blocks), Err(Error::NotLayer));
        blocks[first.block() as usize] = first.encode();
        assert_eq!(Superblock::choose(&blocks), Ok(first));
        blocks[second.block() as usize] = second.encode();
        assert_eq!(Superblock::choose(&blocks), Ok(second));
        // It was torn as it was written.
        blocks[second.block() as usize][60] ^= 1;
        assert_eq!(Superblock::choose(&blocks), Ok(first));
    }

    #[test]
    fn a_newer_format_is_told() {
        let mut block = Superblock::new([0; 32], 0).encode();
        block[8] = 2;
        let sum = Sum::of(0, &block[..BYTES]);
        block[BYTES..BYTES + 8].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Superblock::choose(&[block, [0; BLOCK as usize]]), Err(Error::Version(2)));
    }
}
