//! The first block of a layer's file.

use crate::{BLOCK, MOST_BYTES};

/// A layer's name, which no other layer has.
pub type Id = [u8; 16];

const MAGIC: u64 = u64::from_le_bytes(*b"DOPPLDSK");
const VERSION: u64 = 1;

/// What a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub id: Id,
    /// The layer below it; none: it is the lowest.
    pub below: Option<Id>,
    /// Bytes of the disk whose topmost layer it is: whole blocks.
    pub size: u64,
    /// So many bytes of what is below can be seen through it; behind them holes are zeros.
    pub visible: u64,
}

impl Header {
    /// Bytes of an encoded one: less than a sector, which is written whole or not at all.
    pub const BYTES: usize = 80;

    /// As it stands in the file.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..48].copy_from_slice(&self.below.unwrap_or_default());
        bytes[48..56].copy_from_slice(&self.size.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.visible.to_le_bytes());
        let sum = xxhash_rust::xxh64::xxh64(&bytes[..64], 0);
        bytes[64..72].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, &'static str> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let id = |at: usize| {
            let mut id = [0; 16];
            id.copy_from_slice(&bytes[at..at + 16]);
            id
        };
        if word(0) != MAGIC {
            return Err("no layer of a disk");
        }
        if word(8) != VERSION {
            return Err("a layer of another version");
        }
        if word(64) != xxhash_rust::xxh64::xxh64(&bytes[..64], 0) {
            return Err("the header of a layer is damaged");
        }
        let below = Some(id(32)).filter(|id| *id != Id::default());
        let header = Self { id: id(16), below, size: word(48), visible: word(56) };
        if header.id == Id::default() || !is_size(header.size) || !header.visible.is_multiple_of(BLOCK) {
            return Err("the header of a layer has no meaning");
        }
        Ok(header)
    }
}

/// Whether a disk can have so many bytes.
pub(crate) fn is_size(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(BLOCK) && bytes <= MOST_BYTES
}
