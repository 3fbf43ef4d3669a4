//! Writing a layer: transactions behind each other, checkpoints, and giving blocks back.

use alloc::vec::Vec;

use crate::BLOCK;
use crate::read::Loaded;
use crate::record::Record;
use crate::superblock::{SUPERBLOCKS, Superblock};
use crate::transaction::{Header, Sum, Transaction};
use crate::tree::Tree;

/// The file. A power cut loses any of the writes since the last sync, or parts of them.
pub trait Store {
    /// Why something could not be done.
    type Error;

    /// Writes at a byte position.
    ///
    /// # Errors
    /// It could not be written whole.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// The same, and what was written, also before, survives a power cut from here on.
    ///
    /// # Errors
    /// It could not be written whole, or may not survive.
    fn write_synced(&mut self, at: u64, bytes: &[u8]) -> Result<(), Self::Error> {
        self.write(at, bytes)?;
        self.sync()
    }

    /// What was written survives a power cut from here on.
    ///
    /// # Errors
    /// It may not.
    fn sync(&mut self) -> Result<(), Self::Error>;

    /// These bytes are not needed any more.
    fn punch(&mut self, at: u64, len: u64);

    /// Nothing lies behind this place any more; what does not end there may stay as it is.
    fn cut(&mut self, _at: u64) {}
}

/// Pages of a file that a transaction writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The file's number.
    pub ino: u64,
    /// The first page.
    pub page: u64,
    /// How many.
    pub pages: u64,
}

/// Bytes that are written at once.
const CHUNK: usize = 256 << 10;
/// Blocks that hold nothing any more before they are given back.
const FREED: u64 = 1024;
/// Transactions behind the last checkpoint that a clean end leaves.
const CLEAN: usize = 8;
/// Blocks of a hole that is worth it: to make one changes the host's metadata, as a sync does, and leaves the file in pieces. Smaller ones wait until
/// what lies beside them is free too, unless they come to so many blocks, and to more than this part of what the layer has.
const HOLE: u64 = 16;
const WASTE: u64 = 2048;
const WASTE_PART: u64 = 8;
/// Blocks of records since the last checkpoint before there is another one, if that is not larger itself.
const HEADS: u64 = 1024;
/// Blocks of a transaction that is small; after so many small ones in a row that were synced each, room is made for the next ones: so many
/// blocks.
const SMALL: u64 = 16;
const ROW: u32 = 8;
const ROOM: u64 = 64;

/// A layer that is being written.
#[derive(Debug)]
pub struct Writer {
    superblock: Superblock,
    tree: Tree,
    /// Where the next transaction goes.
    end: u64,
    /// The last transaction.
    sequence: u64,
    /// The last one that is on the disk.
    durable: u64,
    /// The block behind that one.
    durable_end: u64,
    /// The block behind the one that the last header says is on the disk: data before it is not summed when the layer is read, and
    /// may go.
    unsummed_end: u64,
    /// Sum of the last one's header.
    last: u64,
    /// Blocks of headers and records since reading would begin.
    heads: Vec<(u64, u64)>,
    /// Blocks of the last checkpoint's records.
    checkpoint: u64,
    /// Blocks that hold nothing any more once what was written is on the disk.
    freed: Vec<(u64, u64)>,
    /// Of those, blocks that are in holes too small to be made.
    waits: u64,
    /// Blocks before this one are somebody else's too, and stay.
    floor: u64,
    /// Of those, what would have been given back.
    held: Vec<(u64, u64)>,
    /// The block behind what the file has already: zeros behind the end.
    room: u64,
    /// Small transactions in a row that were synced each.
    row: u32,
}

impl Writer {
    /// Goes on with a layer that was read.
    ///
    /// # Errors
    /// What the store says.
    pub fn open<S: Store>(loaded: Loaded, store: &mut S) -> Result<Self, S::Error> {
        let Loaded { superblock, tree, end, sequence, heads, durable, last, torn } = loaded;
        if torn {
            // A transaction that was not whole must never become so by what is written in its place.
            store.write(end * BLOCK, &[0; BLOCK as usize])?;
            store.sync()?;
        }
        let checkpoint = heads.first().map_or(0, |(_, blocks)| *blocks);
        // A clean end leaves few, and gives all back.
        let freed = if heads.len() > CLEAN { unused(&tree, &heads, end) } else { Vec::new() };
        Ok(Self {
            superblock,
            tree,
            end,
            sequence,
            durable: durable.0,
            durable_end: durable.1,
            unsummed_end: durable.1,
            last,
            heads,
            checkpoint,
            freed,
            waits: 0,
            floor: 0,
            held: Vec::new(),
            room: end,
            row: 0,
        })
    }

    /// What is in the file now is somebody else's too, who reads it: nothing of it is given back from here on.
    pub fn share(&mut self) {
        self.floor = self.end;
        self.held.append(&mut self.freed);
    }

    /// Nobody else reads it any more, but for what is before this byte.
    pub fn unshare(&mut self, end: u64) {
        self.floor = end / BLOCK;
        self.freed.append(&mut self.held);
    }

    /// What the layer says.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Bytes up to the layer's end, holes included.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end * BLOCK
    }

    /// Whether it says nothing yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sequence < self.superblock.sequence
    }

    /// Whether all that was written is on the disk.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durable == self.sequence
    }

    /// Writes a transaction with these records and pages; `read` gives bytes of pages: the file, the first page, room for them.
    ///
    /// Gives the block of the first page; the others follow in their order.
    ///
    /// # Errors
    /// What the store says. Then the layer is what it was.
    pub fn commit<S: Store>(
        &mut self,
        store: &mut S,
        transaction: Transaction,
        pages: &[Pages],
        read: impl FnMut(u64, u64, &mut [u8]),
    ) -> Result<u64, S::Error> {
        self.put(store, transaction, pages, read, false)
    }

    /// The same, and it survives a power cut from here on.
    ///
    /// # Errors
    /// As above.
    pub fn commit_synced<S: Store>(
        &mut self,
        store: &mut S,
        transaction: Transaction,
        pages: &[Pages],
        read: impl FnMut(u64, u64, &mut [u8]),
    ) -> Result<u64, S::Error> {
        let begin = self.end;
        let block = self.put(store, transaction, pages, read, true)?;
        self.is_synced();
        self.row = if self.end - begin <= SMALL { self.row.saturating_add(1) } else { 0 };
        if self.row >= ROW {
            self.make_room(store);
        }
        Ok(block)
    }

    /// Has the file end behind what the next transactions take: a sync need not write down then that it has become longer, and where the new
    /// blocks are, which takes a file system twice as long as the bytes.
    fn make_room<S: Store>(&mut self, store: &mut S) {
        if self.end + SMALL <= self.room {
            return;
        }
        let from = self.end.max(self.room);
        let zeros = alloc::vec![0; ((self.end + ROOM - from) * BLOCK) as usize];
        // Without room it is only slower.
        if store.write(from * BLOCK, &zeros).is_ok() {
            self.room = self.end + ROOM;
        }
        self.row = ROW;
    }

    /// Has the file end where the layer does.
    pub fn trim<S: Store>(&mut self, store: &mut S) {
        if self.room > self.end {
            store.cut(self.end * BLOCK);
            self.room = self.end;
        }
        self.row = 0;
    }

    fn put<S: Store>(
        &mut self,
        store: &mut S,
        mut transaction: Transaction,
        pages: &[Pages],
        mut read: impl FnMut(u64, u64, &mut [u8]),
        synced: bool,
    ) -> Result<u64, S::Error> {
        let last = if synced { S::write_synced } else { S::write };
        let head = transaction.head_with(pages.len() * Record::DATA_BYTES);
        let data = self.end + head;
        let mut block = data;
        for run in pages {
            let Pages { ino, page, pages } = *run;
            transaction.add(&Record::Data { ino, page, pages, block });
            block += pages;
        }
        let records = transaction.records().to_vec();
        let blocks = block - self.end - head;
        let mut sum = Sum::new(self.superblock.salt);
        let mut out = Vec::new();
        let small = (head + blocks) * BLOCK <= CHUNK as u64;
        if small {
            out.resize((head * BLOCK) as usize, 0);
        }
        let mut at = (self.end + head) * BLOCK;
        for run in pages {
            let mut done = 0;
            while done < run.pages {
                let have = out.len();
                let room =
                    if small { run.pages } else { ((CHUNK - have) as u64 / BLOCK).min(run.pages - done) };
                out.resize(have + (room * BLOCK) as usize, 0);
                read(run.ino, run.page + done, &mut out[have..]);
                sum.add(&out[have..]);
                done += room;
                if !small && out.len() == CHUNK {
                    store.write(at, &out)?;
                    at += out.len() as u64;
                    out.clear();
                }
            }
        }
        let header = self.header(false, blocks, sum.value());
        let first = transaction.finish(&header, self.superblock.salt);
        if small {
            out[..first.len()].copy_from_slice(&first);
            last(store, self.end * BLOCK, &out)?;
        } else {
            if !out.is_empty() {
                store.write(at, &out)?;
            }
            last(store, self.end * BLOCK, &first)?;
        }
        self.last = Header::sum_of(&first);
        self.took(head, blocks, &records);
        Ok(data)
    }

    fn header(&self, checkpoint: bool, blocks: u64, data_sum: u64) -> Header {
        let (sequence, durable) = (self.sequence + 1, self.durable);
        let previous = self.last;
        Header { sequence, durable, previous, checkpoint, records: 0, blocks, records_sum: 0, data_sum }
    }

    /// What was written survives a power cut.
    fn is_synced(&mut self) {
        self.durable = self.sequence;
        self.durable_end = self.end;
    }

    /// A transaction is in the file.
    fn took(&mut self, head: u64, blocks: u64, records: &[u8]) {
        self.unsummed_end = self.durable_end;
        self.heads.push((self.end, head));
        self.end += head + blocks;
        self.sequence += 1;
        let freed = &mut self.freed;
        let applied = self.tree.apply_all(records, |block, count| freed.push((block, count)));
        debug_assert!(applied.is_ok());
    }

    /// What was written survives a power cut from here on. Now and then it makes a checkpoint, and gives blocks back.
    ///
    /// # Errors
    /// What the store says.
    pub fn sync<S: Store>(&mut self, store: &mut S) -> Result<(), S::Error> {
        if !self.is_durable() {
            store.sync()?;
            self.is_synced();
        }
        let heads: u64 = self.heads.iter().map(|(_, blocks)| blocks).sum();
        if heads > HEADS.max(self.checkpoint * 3) {
            self.write_checkpoint(store)?;
        }
        let freed: u64 = self.freed.iter().map(|(_, blocks)| blocks).sum();
        if freed >= FREED + self.waits {
            self.give_back(store, WASTE.max(self.tree.pages() / WASTE_PART));
        }
        Ok(())
    }

    /// Makes a checkpoint, from which reading begins, and gives all blocks back that are not needed: at a clean end.
    ///
    /// # Errors
    /// What the store says.
    pub fn close<S: Store>(&mut self, store: &mut S) -> Result<(), S::Error> {
        self.sync(store)?;
        // Few are read as fast.
        if self.heads.len() > CLEAN {
            self.write_checkpoint(store)?;
        }
        self.give_back(store, 0);
        self.trim(store);
        Ok(())
    }

    fn write_checkpoint<S: Store>(&mut self, store: &mut S) -> Result<(), S::Error> {
        let all = self.tree.checkpoint();
        let header = self.header(true, 0, Sum::new(self.superblock.salt).value());
        let bytes = all.finish(&header, self.superblock.salt);
        for (chunk, at) in bytes.chunks(CHUNK).zip((self.end * BLOCK..).step_by(CHUNK)) {
            store.write(at, chunk)?;
        }
        store.sync()?;
        let superblock = self.superblock.next(self.end, self.sequence + 1);
        store.write(superblock.block() * BLOCK, &superblock.encode())?;
        store.sync()?;
        self.superblock = superblock;
        self.last = Header::sum_of(&bytes);
        self.sequence += 1;
        self.durable = self.sequence;
        self.checkpoint = bytes.len() as u64 / BLOCK;
        self.freed.append(&mut self.heads);
        self.heads.push((self.end, self.checkpoint));
        self.unsummed_end = self.end;
        self.end += self.checkpoint;
        self.durable_end = self.end;
        Ok(())
    }

    /// Punches holes where nothing is needed any more, but for small ones if these come to no more than `waste` blocks. What was written is on the
    /// disk.
    fn give_back<S: Store>(&mut self, store: &mut S, waste: u64) {
        let floor = self.floor;
        // No run lies on both sides: what was written before the floor was moved ends there.
        self.held.extend(self.freed.extract_if(.., |(block, _)| *block < floor));
        self.freed.sort_unstable();
        let later = self.freed.split_off(self.freed.partition_point(|(block, _)| *block < self.unsummed_end));
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (block, count) in core::mem::replace(&mut self.freed, later) {
            match runs.last_mut() {
                Some((start, len)) if *start + *len == block => *len += count,
                _ => runs.push((block, count)),
            }
        }
        self.waits = 0;
        let small = runs.extract_if(.., |(_, count)| *count < HOLE).collect::<Vec<_>>();
        let waits: u64 = small.iter().map(|(_, count)| count).sum();
        if waits <= waste {
            self.waits = waits;
            self.freed.extend(small);
        } else {
            runs.extend(small);
        }
        runs.into_iter().for_each(|(block, count)| store.punch(block * BLOCK, count * BLOCK));
    }
}

/// Blocks between the superblocks and the end that hold nothing: their holes may be there, or were waited for when the writer was killed.
fn unused(tree: &Tree, heads: &[(u64, u64)], end: u64) -> Vec<(u64, u64)> {
    let mut used = heads.to_vec();
    for file in tree.files.values() {
        used.extend(
            file.content.iter().flat_map(|c| c.blocks.runs()).map(|(_, count, block)| (block, count)),
        );
    }
    used.sort_unstable();
    let (mut gaps, mut from) = (Vec::new(), SUPERBLOCKS);
    for (block, count) in used.into_iter().chain([(end, 0)]) {
        if block > from {
            gaps.push((from, block - from));
        }
        from = from.max(block + count);
    }
    gaps
}
