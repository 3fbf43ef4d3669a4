//! Reading a layer from its first transaction on.

use alloc::vec::Vec;

use crate::superblock::{SUPERBLOCKS, Superblock};
use crate::transaction::{Header, MAX_RECORDS, Sum};
use crate::tree::Tree;
use crate::{BLOCK, Error};

/// The file.
pub trait Source {
    /// Reads at a byte position; gives how many bytes, fewer than asked for only at the file's end.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<usize, Error>;
}

/// A layer that was read.
#[derive(Debug)]
pub struct Loaded {
    /// Where reading began.
    pub superblock: Superblock,
    /// What it says.
    pub tree: Tree,
    /// The block behind the last transaction: the next one goes there.
    pub end: u64,
    /// The last transaction's number; one less than the superblock's if there is none.
    pub sequence: u64,
    /// Blocks of headers and records of transactions: the first, and how many.
    pub heads: Vec<(u64, u64)>,
    /// The last transaction that is known to be on the disk, and the block behind it.
    pub durable: (u64, u64),
    /// Sum of the last transaction's header.
    pub last: u64,
    /// Behind it is one that is not whole.
    pub torn: bool,
}

/// A transaction that was read.
pub(crate) struct Read {
    pub header: Header,
    /// Sum of its header.
    pub sum: u64,
    pub at: u64,
    pub records: Vec<u8>,
}

/// What a transaction has to be, and where.
pub(crate) struct Expected {
    pub salt: u64,
    /// The block, and the one where none can be.
    pub at: u64,
    pub end: u64,
    pub sequence: u64,
    /// Sum of the header of the one before, if there is one.
    pub previous: Option<u64>,
    /// Most bytes of records.
    pub most: usize,
}

/// What is where a transaction may be.
pub(crate) enum Found {
    Nothing,
    /// One whose records are not whole.
    Torn,
    Whole(Read),
}

impl Read {
    /// The block behind header and records.
    pub fn head_end(&self) -> u64 {
        self.at + self.header.head()
    }

    /// The block behind data that follows those.
    fn end(&self) -> u64 {
        self.head_end() + self.header.blocks
    }
}

/// Reads a layer.
///
/// # Errors
/// It is none, it is damaged, or the file cannot be read. A last transaction that is not whole is no error: it is not there.
pub fn load(source: &mut impl Source) -> Result<Loaded, Error> {
    let mut blocks = [[0; BLOCK as usize]; SUPERBLOCKS as usize];
    for (at, block) in (0..).zip(&mut blocks) {
        source.read(at * BLOCK, block)?;
    }
    let superblock = Superblock::choose(&blocks)?;
    let mut all: Vec<Read> = Vec::new();
    let mut torn = loop {
        let expected = Expected {
            salt: superblock.salt,
            at: all.last().map_or(superblock.start, Read::end),
            end: u64::MAX,
            sequence: superblock.sequence.wrapping_add(all.len() as u64),
            previous: all.last().map(|last| last.sum),
            most: MAX_RECORDS,
        };
        match transaction(source, &expected)? {
            Found::Whole(next) => all.push(next),
            Found::Torn => break true,
            Found::Nothing => break false,
        }
    };
    // What the last one found on the disk is whole; what came later is looked at.
    let durable = all.last().map_or(0, |last| last.header.durable);
    if let Some(first) =
        all.iter().position(|t| t.header.sequence > durable && !data_is_whole(source, &superblock, t))
    {
        torn = true;
        all.truncate(first);
    }
    if all.is_empty() && superblock.generation > 1 {
        return Err(Error::Damaged);
    }
    let mut tree = Tree::default();
    for read in &all {
        if read.header.checkpoint {
            tree = Tree::default();
        }
        tree.apply_all(&read.records, |_, _| {})?;
    }
    Ok(Loaded {
        superblock,
        tree,
        end: all.last().map_or(superblock.start, Read::end),
        sequence: superblock.sequence + all.len() as u64 - 1,
        heads: all.iter().map(|read| (read.at, read.header.head())).collect(),
        durable: known_durable(&superblock, &all),
        last: all.last().map_or(0, |read| read.sum),
        torn,
    })
}

/// The last transaction that another says is on the disk, and the block behind it.
fn known_durable(superblock: &Superblock, all: &[Read]) -> (u64, u64) {
    let said = all.last().map_or(0, |last| last.header.durable);
    let last = all.iter().rev().find(|read| read.header.sequence <= said);
    last.map_or((superblock.sequence.wrapping_sub(1), superblock.start), |r| (r.header.sequence, r.end()))
}

/// The transaction that is expected at a place.
pub(crate) fn transaction(source: &mut impl Source, expected: &Expected) -> Result<Found, Error> {
    let mut bytes = [0; Header::BYTES];
    let Expected { salt, at, .. } = *expected;
    let start = at.checked_mul(BLOCK).ok_or(Error::Corrupt("a transaction lies nowhere"))?;
    if at >= expected.end || source.read(start, &mut bytes)? < bytes.len() {
        return Ok(Found::Nothing);
    }
    let follows = |h: &Header| {
        h.sequence == expected.sequence
            && expected.previous.is_none_or(|sum| sum == h.previous)
            && at.saturating_add(h.head()) <= expected.end
    };
    let Some(header) = Header::decode(&bytes, salt).filter(follows) else {
        return Ok(Found::Nothing);
    };
    if header.records as usize > expected.most {
        return Err(Error::TooLarge);
    }
    // Space is made as bytes come, so that a length that is not true costs nothing.
    const CHUNK: usize = 256 << 10;
    let (len, mut records) = (header.records as usize, Vec::new());
    while records.len() < len {
        let have = records.len();
        records.resize(len.min(have + CHUNK), 0);
        let want = records.len() - have;
        if source.read(start + (Header::BYTES + have) as u64, &mut records[have..])? < want {
            return Ok(Found::Torn);
        }
    }
    if Sum::of(salt, &records) != header.records_sum {
        return Ok(Found::Torn);
    }
    Ok(Found::Whole(Read { header, sum: Header::sum_of(&bytes), at, records }))
}

/// Whether a transaction's data is what it was.
fn data_is_whole(source: &mut impl Source, superblock: &Superblock, read: &Read) -> bool {
    let mut bytes = alloc::vec![0; 64 << 10];
    let mut sum = Sum::new(superblock.salt);
    let mut at = (read.at + read.header.head()) * BLOCK;
    let mut left = read.header.blocks * BLOCK;
    while left > 0 {
        let want = left.min(bytes.len() as u64) as usize;
        match source.read(at, &mut bytes[..want]) {
            Ok(n) if n == want => sum.add(&bytes[..n]),
            _ => return false,
        }
        at += want as u64;
        left -= want as u64;
    }
    sum.value() == read.header.data_sum
}
