//! The map of a layer: two bits for each block.

use std::io;

use crate::{BLOCK, File, MAP_AT};

/// Blocks of a byte of the map.
const OF_BYTE: u64 = 4;
/// Blocks of a page of the map.
pub(crate) const OF_PAGE: u64 = BLOCK * OF_BYTE;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Below.
    Hole,
    /// In this layer.
    Data,
    /// Nowhere: it is zero.
    Zero,
}

impl State {
    fn of(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Hole,
            1 => Self::Data,
            // Nobody writes 3.
            _ => Self::Zero,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::Hole => 0,
            Self::Data => 1,
            Self::Zero => 2,
        }
    }
}

/// Bytes of the map of a disk of so many bytes: whole pages.
#[must_use]
pub fn map_bytes(size: u64) -> u64 {
    (size / BLOCK).div_ceil(OF_PAGE) * BLOCK
}

/// A part of a map, as it is read and written.
#[derive(Debug)]
pub(crate) struct Part {
    /// The first block, and how many there are.
    first: u64,
    count: u64,
    /// The bytes that tell of them, and of some beside.
    bytes: Vec<u8>,
}

impl Part {
    /// Reads what a map says of these blocks.
    pub fn read(map: &impl File, first: u64, count: u64) -> io::Result<Self> {
        let (from, to) = (first / OF_BYTE, (first + count).div_ceil(OF_BYTE));
        // At most some pages: callers see to it.
        let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)];
        map.read(MAP_AT + from, &mut bytes)?;
        Ok(Self { first, count, bytes })
    }

    /// Writes it.
    pub fn write(&self, map: &impl File) -> io::Result<()> {
        map.write(MAP_AT + self.first / OF_BYTE, &self.bytes)
    }

    fn place(&self, block: u64) -> (usize, u32) {
        let byte = block / OF_BYTE - self.first / OF_BYTE;
        (usize::try_from(byte).unwrap_or(usize::MAX), (block % OF_BYTE * 2) as u32)
    }

    /// Where a block is.
    pub fn get(&self, block: u64) -> State {
        let (byte, shift) = self.place(block);
        State::of(self.bytes[byte] >> shift)
    }

    /// Changes it; whether it was something else.
    pub fn set(&mut self, block: u64, state: State) -> bool {
        let (byte, shift) = self.place(block);
        let old = self.bytes[byte];
        self.bytes[byte] = old & !(3 << shift) | state.bits() << shift;
        self.bytes[byte] != old
    }

    /// Its blocks.
    pub fn blocks(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.count
    }
}
