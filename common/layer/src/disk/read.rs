//! Reading a file system from a device.

use alloc::vec::Vec;

use super::check::check;
use super::space::Space;
use super::superblock::Superblock;
use crate::read::{Expected, Found, Read, Source, transaction};
use crate::record::Record;
use crate::superblock::SUPERBLOCKS;
use crate::transaction::Sum;
use crate::tree::Tree;
use crate::{BLOCK, Error};

/// Blocks that are freed by a transaction: its number, the first, and how many.
pub(super) type Freed = (u64, u64, u64);

/// A file system that was read.
#[derive(Debug)]
pub struct Loaded {
    /// What tells it, and where reading began.
    pub superblock: Superblock,
    /// What it says.
    pub tree: Tree,
    /// The block behind the last transaction.
    pub(super) end: u64,
    /// The last transaction's number.
    pub(super) sequence: u64,
    /// What that says is on the disk.
    pub(super) said: u64,
    /// Sum of its header.
    pub(super) last: u64,
    /// Behind it is one that is not whole.
    pub(super) torn: bool,
    pub(super) space: Space,
    pub(super) freed: Vec<Freed>,
}

/// Reads the file system of a device of so many blocks; of records it has at most `most` bytes.
///
/// # Errors
/// There is none, it is damaged, it is larger than that, or the device cannot be read. Transactions at the end that are not whole
/// are no error: they are not there.
pub fn load(source: &mut impl Source, blocks: u64, most: usize) -> Result<Loaded, Error> {
    let mut found = [[0; BLOCK as usize]; SUPERBLOCKS as usize];
    for (at, block) in (0..).zip(&mut found) {
        source.read(at * BLOCK, block)?;
    }
    let superblock = Superblock::choose(&found, blocks)?;
    let (mut all, mut torn) = transactions(source, &superblock, most)?;
    let data = superblock.first_data()..blocks;
    // All that were there say the truth, also those that are not whole.
    let durable = all.last().map_or(0, |last| last.header.durable);
    for (i, read) in all.iter().enumerate() {
        if read.header.sequence > durable && !data_is_whole(source, &superblock, read, &data)? {
            torn = true;
            all.truncate(i);
            break;
        }
    }
    let Some(last) = all.last() else { return Err(Error::Damaged) };
    let (end, sequence, sum) = (last.head_end(), last.header.sequence, last.sum);
    // Only what stays is asked the next time.
    let said = last.header.durable;
    let (mut tree, mut freed) = (Tree::default(), Vec::new());
    for read in &all {
        let number = read.header.sequence;
        // Those up to there are not summed again: nobody asks for what they freed.
        let late = number > said;
        tree.apply_all(&read.records, |block, count| {
            if late {
                freed.push((number, block, count));
            }
        })?;
    }
    check(&mut tree)?;
    let space = space_of(&tree, &data, &mut freed)?;
    Ok(Loaded { superblock, tree, end, sequence, said, last: sum, torn, space, freed })
}

/// The transactions of the half that is read, and whether there is one behind them that is not whole.
fn transactions(
    source: &mut impl Source,
    superblock: &Superblock,
    most: usize,
) -> Result<(Vec<Read>, bool), Error> {
    let mut all: Vec<Read> = Vec::new();
    let mut left = most;
    loop {
        let last = all.last();
        let expected = Expected {
            salt: superblock.salt,
            at: last.map_or(superblock.start, Read::head_end),
            end: superblock.end_of_half(),
            sequence: superblock.sequence + all.len() as u64,
            previous: last.map(|last| last.sum),
            most: left,
        };
        match transaction(source, &expected)? {
            Found::Whole(read) if read.header.checkpoint != all.is_empty() => {
                return Err(Error::Corrupt("a checkpoint is not where one has to be"));
            }
            Found::Whole(read) => {
                left -= read.records.len();
                all.push(read);
            }
            Found::Torn => return Ok((all, true)),
            Found::Nothing => return Ok((all, false)),
        }
    }
}

/// Whether a transaction's data is what it was.
fn data_is_whole(
    source: &mut impl Source,
    superblock: &Superblock,
    read: &Read,
    data: &core::ops::Range<u64>,
) -> Result<bool, Error> {
    // A checkpoint brings none of its own.
    if read.header.checkpoint {
        return Ok(true);
    }
    let mut bytes = alloc::vec![0; 64 << 10];
    let mut sum = Sum::new(superblock.salt);
    let mut left = read.header.blocks;
    let mut rest = &read.records[..];
    while !rest.is_empty() {
        let (record, behind) = Record::decode(rest)?;
        rest = behind;
        let Record::Data { pages, block, .. } = record else { continue };
        let inside = block >= data.start && block.checked_add(pages).is_some_and(|end| end <= data.end);
        if !inside || pages > left {
            return Err(Error::Corrupt("data lies nowhere"));
        }
        left -= pages;
        let (mut at, end) = (block * BLOCK, (block + pages) * BLOCK);
        while at < end {
            let want = (end - at).min(bytes.len() as u64) as usize;
            if source.read(at, &mut bytes[..want])? < want {
                return Err(Error::Io);
            }
            sum.add(&bytes[..want]);
            at += want as u64;
        }
    }
    Ok(left == 0 && sum.value() == read.header.data_sum)
}

/// What is free: neither a file has it, nor would a reader ask for its sum.
fn space_of(tree: &Tree, data: &core::ops::Range<u64>, freed: &mut Vec<Freed>) -> Result<Space, Error> {
    let mut space = Space::new(data.start, data.end);
    let contents = tree.files.values().filter_map(|file| file.content.as_ref());
    for (_, pages, block) in contents.flat_map(|content| content.blocks.runs()) {
        if !space.claim(block, pages) {
            return Err(Error::Corrupt("two files have one block, or it lies nowhere"));
        }
    }
    // What a transaction freed that only a part of is left of has other owners by now.
    freed.retain(|(_, block, count)| space.claim(*block, *count));
    Ok(space)
}
