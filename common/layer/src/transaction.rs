//! Transactions: what is written at once, and is there whole or not at all.

use alloc::vec::Vec;

use xxhash_rust::xxh64::Xxh64;

use crate::BLOCK;
use crate::record::Record;

const MAGIC: u64 = u64::from_le_bytes(*b"DOPLTRAN");
/// Most bytes of records in one transaction.
pub const MAX_RECORDS: usize = 1 << 30;

/// A running sum of bytes (XXH64).
pub struct Sum(Xxh64);

impl Sum {
    /// Of no bytes.
    #[must_use]
    pub fn new(salt: u64) -> Self {
        Self(Xxh64::new(salt))
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.digest()
    }

    /// Of these bytes.
    #[must_use]
    pub fn of(salt: u64, bytes: &[u8]) -> u64 {
        xxhash_rust::xxh64::xxh64(bytes, salt)
    }
}

/// The first bytes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One more than that of the transaction before.
    pub sequence: u64,
    /// All up to this one were on the disk when it was written.
    pub durable: u64,
    /// Sum of the header of the transaction before: what follows another one there is not this one's successor.
    pub previous: u64,
    /// It says all there is; what was before counts no more.
    pub checkpoint: bool,
    /// Bytes of records, behind the header.
    pub records: u32,
    /// Blocks of data.
    pub blocks: u64,
    /// Sum of the records.
    pub records_sum: u64,
    /// Sum of the data.
    pub data_sum: u64,
}

impl Header {
    /// Its size in bytes.
    pub const BYTES: usize = 72;

    /// Where in these its own sum is.
    const SUM: usize = 64;

    /// As bytes.
    #[must_use]
    pub fn encode(&self, salt: u64) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let kind = u64::from(self.records) | u64::from(self.checkpoint) << 32;
        let sums = [self.records_sum, self.data_sum];
        let words = [MAGIC, self.sequence, self.durable, kind, self.blocks, sums[0], sums[1], self.previous];
        for (to, word) in out.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let sum = Sum::of(salt, &out[..Self::SUM]);
        out[Self::SUM..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The sum of a header's bytes, by which the next one knows it.
    #[must_use]
    pub fn sum_of(bytes: &[u8]) -> u64 {
        let sum = bytes.get(Self::SUM..Self::BYTES).and_then(|word| word.as_array());
        sum.map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// From bytes; none if they are no header of this layer.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES], salt: u64) -> Option<Self> {
        let word = |i: usize| bytes.as_chunks().0.get(i).map_or(0, |w| u64::from_le_bytes(*w));
        if word(0) != MAGIC || Self::sum_of(bytes) != Sum::of(salt, &bytes[..Self::SUM]) {
            return None;
        }
        let kind = word(3);
        let header = Self {
            sequence: word(1),
            durable: word(2),
            checkpoint: kind >> 32 != 0,
            records: kind as u32,
            blocks: word(4),
            records_sum: word(5),
            data_sum: word(6),
            previous: word(7),
        };
        (header.records as usize <= MAX_RECORDS && header.blocks < 1 << 52).then_some(header)
    }

    /// Blocks that header and records take.
    #[must_use]
    pub fn head(&self) -> u64 {
        head(self.records as usize)
    }
}

fn head(records: usize) -> u64 {
    ((Header::BYTES + records) as u64).div_ceil(BLOCK)
}

/// A transaction that is being made. Data is written first, behind where header and records will be: so records are complete,
/// or at least as long as they will be, before the first data block's place is known.
#[derive(Debug)]
pub struct Transaction {
    bytes: Vec<u8>,
}

impl Default for Transaction {
    fn default() -> Self {
        Self::new()
    }
}

impl Transaction {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: alloc::vec![0; Header::BYTES] }
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record<'_>) {
        record.encode(&mut self.bytes);
    }

    /// Adds records that were encoded before.
    pub fn add_encoded(&mut self, records: &[u8]) {
        self.bytes.extend_from_slice(records);
    }

    /// Bytes of records so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - Header::BYTES
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records.
    #[must_use]
    pub fn records(&self) -> &[u8] {
        &self.bytes[Header::BYTES..]
    }

    /// Blocks that header and records take with so many bytes of records more.
    #[must_use]
    pub fn head_with(&self, more: usize) -> u64 {
        head(self.len() + more)
    }

    /// The header and the records, as whole blocks. `head` is how many: as [`Self::head_with`] said.
    #[must_use]
    pub fn finish(mut self, header: &Header, salt: u64) -> Vec<u8> {
        let header = Header {
            records: self.len() as u32,
            records_sum: Sum::of(salt, &self.bytes[Header::BYTES..]),
            ..*header
        };
        let blocks = header.head();
        self.bytes[..Header::BYTES].copy_from_slice(&header.encode(salt));
        self.bytes.resize((blocks * BLOCK) as usize, 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_what_they_were() {
        let header = Header {
            sequence: 5,
            durable: 4,
            checkpoint: true,
            records: 100,
            blocks: 7,
            records_sum: 8,
            data_sum: 9,
            previous: 10,
        };
        assert_eq!(Header::decode(&header.encode(3), 3), Some(header));
        assert_eq!(Header::decode(&header.encode(3), 4), None, "another layer's");
        let mut torn = header.encode(3);
        torn[9] ^= 1;
        assert_eq!(Header::decode(&torn, 3), None);
    }
}
