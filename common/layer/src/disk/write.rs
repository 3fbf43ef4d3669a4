//! Writing a file system on a device.

use alloc::vec::Vec;

use super::check::ROOT;
use super::read::{Freed, Loaded};
use super::space::Space;
use super::superblock::Superblock;
use crate::BLOCK;
use crate::record::{Attributes, Record};
use crate::superblock::SUPERBLOCKS;
use crate::transaction::{Header, MAX_RECORDS, Sum, Transaction};
use crate::tree::Tree;
use crate::write::{Pages, Store};

/// Bytes that are written at once.
const CHUNK: usize = 256 << 10;
/// Blocks that were freed before they are used again.
const FREED: u64 = 1024;
/// Blocks of a log before there is a checkpoint, if that is not larger itself.
const LOG: u64 = 1024;
/// The same when it is closed: so many are read as fast.
const SHORT: u64 = 8;
/// Freed blocks in a row that are discarded; fewer are only used again.
const DISCARDED: u64 = 16;

/// Why something was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<E> {
    /// There is no room.
    NoSpace,
    /// The device says.
    Store(E),
    /// Nobody knows what is on the device, as a sync or a superblock failed: nothing is written until it is read again.
    Failed,
}

impl<E> From<E> for Refused<E> {
    fn from(e: E) -> Self {
        Self::Store(e)
    }
}

/// Pages of a file, and the first of the blocks where they are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Which.
    pub pages: Pages,
    /// Where.
    pub block: u64,
}

/// A file system that is being written.
#[derive(Debug)]
pub struct Writer {
    superblock: Superblock,
    tree: Tree,
    space: Space,
    /// Blocks of the data area.
    capacity: u64,
    /// Where the next transaction goes.
    end: u64,
    /// The last transaction, and the sum of its header.
    sequence: u64,
    last: u64,
    /// The last one that is on the disk.
    durable: u64,
    /// What the last one says of that.
    said: u64,
    /// The same of the last one that is on the disk: up to there nobody asks for sums of data.
    settled: u64,
    /// Blocks of the checkpoint with which the half begins.
    checkpoint: u64,
    freed: Vec<Freed>,
    /// Nothing was written yet; and whether something has to be overwritten first.
    fresh: Option<bool>,
    failed: bool,
}

/// Makes a file system on a device of so many blocks, at least [`super::FEWEST`]; `root` are the attributes of its root directory.
///
/// # Errors
/// What the device says.
pub fn format<S: Store>(
    store: &mut S,
    blocks: u64,
    salt: u64,
    uuid: [u8; 16],
    root: Attributes,
) -> Result<(), S::Error> {
    // What was there before must not count.
    store.write(0, &[0; (SUPERBLOCKS * BLOCK) as usize])?;
    store.sync()?;
    let superblock = Superblock::new(blocks, salt, uuid);
    let mut all = Transaction::new();
    all.add(&Record::Next { ino: ROOT + 1 });
    all.add(&Record::Inode { ino: ROOT, attributes: root });
    let header = checkpoint_header(superblock.sequence, 0, salt);
    store.write(superblock.start * BLOCK, &all.finish(&header, salt))?;
    store.sync()?;
    store.write(superblock.block() * BLOCK, &superblock.encode())?;
    store.sync()
}

fn checkpoint_header(sequence: u64, previous: u64, salt: u64) -> Header {
    let data_sum = Sum::new(salt).value();
    let durable = sequence - 1;
    Header { sequence, durable, previous, checkpoint: true, records: 0, blocks: 0, records_sum: 0, data_sum }
}

impl Writer {
    /// Goes on with what was read. Nothing is written yet.
    #[must_use]
    pub fn open(loaded: Loaded, blocks: u64) -> Self {
        let Loaded { superblock, tree, end, sequence, said, last, torn, space, freed } = loaded;
        let checkpoint = end - superblock.start;
        Self {
            capacity: blocks - superblock.first_data(),
            superblock,
            tree,
            space,
            end,
            sequence,
            last,
            durable: said,
            said,
            settled: said,
            checkpoint,
            freed,
            fresh: Some(torn),
            failed: false,
        }
    }

    /// What it says.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Blocks for data, used or not.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Blocks that files have.
    #[must_use]
    pub fn used(&self) -> u64 {
        let freed: u64 = self.freed.iter().map(|(_, _, count)| count).sum();
        self.capacity - self.space.total() - freed
    }

    /// Blocks for data that could be written now.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.space.total()
    }

    /// Bytes of records that say all there is, and the most there may be.
    #[must_use]
    pub fn records(&self) -> (u64, u64) {
        (self.tree.checkpoint().len() as u64, (self.superblock.half * BLOCK).min(MAX_RECORDS as u64))
    }

    /// Whether all that was written is on the disk.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durable == self.sequence && self.fresh.is_none()
    }

    /// Writes a transaction with these records and pages; `read` gives bytes of pages: the file, the first page, room for them. Gives
    /// where the pages are.
    ///
    /// # Errors
    /// There is no room, or what the device says. Then the file system is what it was.
    pub fn commit<S: Store>(
        &mut self,
        store: &mut S,
        mut transaction: Transaction,
        pages: &[Pages],
        read: impl FnMut(u64, u64, &mut [u8]),
    ) -> Result<Vec<Placed>, Refused<S::Error>> {
        self.begin(store)?;
        let placed = self.place(pages).ok_or(Refused::NoSpace)?;
        for Placed { pages: Pages { ino, page, pages }, block } in placed.iter().copied() {
            transaction.add(&Record::Data { ino, page, pages, block });
        }
        let done = self.write_all(store, transaction, &placed, read);
        if done.is_err() {
            placed.iter().for_each(|p| self.space.give(p.block, p.pages.pages));
        }
        done.map(|()| placed)
    }

    /// Finds room for pages; none if there is none for all.
    fn place(&mut self, pages: &[Pages]) -> Option<Vec<Placed>> {
        if pages.iter().map(|run| run.pages).sum::<u64>() > self.space.total() {
            return None;
        }
        let mut placed = Vec::new();
        for run in pages {
            let mut left = *run;
            while left.pages > 0 {
                let (block, count) = self.space.take(left.pages)?;
                placed.push(Placed { pages: Pages { pages: count, ..left }, block });
                left = Pages { page: left.page + count, pages: left.pages - count, ..left };
            }
        }
        Some(placed)
    }

    fn write_all<S: Store>(
        &mut self,
        store: &mut S,
        transaction: Transaction,
        placed: &[Placed],
        read: impl FnMut(u64, u64, &mut [u8]),
    ) -> Result<(), Refused<S::Error>> {
        let head = transaction.head_with(0);
        let whole = self.end + head <= self.superblock.end_of_half() && transaction.len() <= MAX_RECORDS;
        if !whole {
            return self.write_into_checkpoint(store, &transaction, placed, read);
        }
        let data_sum = self.write_data(store, placed, read)?;
        let records = transaction.records().to_vec();
        let (sequence, durable, previous) = (self.sequence + 1, self.durable, self.last);
        let blocks = placed.iter().map(|p| p.pages.pages).sum();
        let header = Header {
            sequence,
            durable,
            previous,
            checkpoint: false,
            records: 0,
            blocks,
            records_sum: 0,
            data_sum,
        };
        let bytes = transaction.finish(&header, self.superblock.salt);
        for (chunk, at) in bytes.chunks(CHUNK).zip((self.end * BLOCK..).step_by(CHUNK)) {
            store.write(at, chunk)?;
        }
        self.end += head;
        self.sequence = sequence;
        self.last = Header::sum_of(&bytes);
        self.said = durable;
        let freed = &mut self.freed;
        let applied = self.tree.apply_all(&records, |block, count| freed.push((sequence, block, count)));
        debug_assert!(applied.is_ok());
        Ok(())
    }

    /// Writes pages where they were placed; gives their sum.
    fn write_data<S: Store>(
        &self,
        store: &mut S,
        placed: &[Placed],
        mut read: impl FnMut(u64, u64, &mut [u8]),
    ) -> Result<u64, S::Error> {
        let mut sum = Sum::new(self.superblock.salt);
        let mut out = Vec::new();
        // Where `out` goes.
        let mut at = 0;
        for Placed { pages: Pages { ino, page, pages }, block } in placed.iter().copied() {
            let mut done = 0;
            while done < pages {
                if !out.is_empty() && (at + out.len() as u64 != (block + done) * BLOCK || out.len() == CHUNK)
                {
                    store.write(at, &out)?;
                    out.clear();
                }
                if out.is_empty() {
                    at = (block + done) * BLOCK;
                }
                let have = out.len();
                let room = ((CHUNK - have) as u64 / BLOCK).min(pages - done);
                out.resize(have + (room * BLOCK) as usize, 0);
                read(ino, page + done, &mut out[have..]);
                sum.add(&out[have..]);
                done += room;
            }
        }
        if !out.is_empty() {
            store.write(at, &out)?;
        }
        Ok(sum.value())
    }

    /// A transaction that has no place in its half: what there is with it goes into the other one.
    fn write_into_checkpoint<S: Store>(
        &mut self,
        store: &mut S,
        transaction: &Transaction,
        placed: &[Placed],
        read: impl FnMut(u64, u64, &mut [u8]),
    ) -> Result<(), Refused<S::Error>> {
        let (mut tree, mut freed) = (self.tree.clone(), Vec::new());
        let sequence = self.sequence + 1;
        let applied =
            tree.apply_all(transaction.records(), |block, count| freed.push((sequence, block, count)));
        debug_assert!(applied.is_ok());
        let all = tree.checkpoint();
        if !self.has_room_for(&all) {
            return Err(Refused::NoSpace);
        }
        self.write_data(store, placed, read)?;
        self.write_checkpoint(store, all)?;
        self.tree = tree;
        self.freed.append(&mut freed);
        self.release(store);
        Ok(())
    }

    /// Whether a checkpoint has room in a half.
    fn has_room_for(&self, all: &Transaction) -> bool {
        all.head_with(0) <= self.superblock.half && all.len() <= MAX_RECORDS
    }

    /// Writes a checkpoint that has room, and goes on behind it. Data was written before.
    fn write_checkpoint<S: Store>(
        &mut self,
        store: &mut S,
        all: Transaction,
    ) -> Result<(), Refused<S::Error>> {
        let superblock = self.superblock.next(self.sequence + 1);
        let header = checkpoint_header(superblock.sequence, self.last, superblock.salt);
        let bytes = all.finish(&header, superblock.salt);
        for (chunk, at) in bytes.chunks(CHUNK).zip((superblock.start * BLOCK..).step_by(CHUNK)) {
            store.write(at, chunk)?;
        }
        self.sync_store(store)?;
        let named = store.write(superblock.block() * BLOCK, &superblock.encode()).and_then(|()| store.sync());
        // It may be there or not: what is written to either half might be lost.
        named.inspect_err(|_| self.failed = true)?;
        self.checkpoint = bytes.len() as u64 / BLOCK;
        self.end = superblock.start + self.checkpoint;
        self.sequence = superblock.sequence;
        self.superblock = superblock;
        self.last = Header::sum_of(&bytes);
        // Reading begins here: nobody asks for what was before.
        self.durable = self.sequence;
        self.said = self.sequence;
        self.settled = self.sequence;
        Ok(())
    }

    /// A sync that fails leaves nobody knowing what is on the disk.
    fn sync_store<S: Store>(&mut self, store: &mut S) -> Result<(), Refused<S::Error>> {
        Ok(store.sync().inspect_err(|_| self.failed = true)?)
    }

    /// To be called before anything is written.
    fn begin<S: Store>(&mut self, store: &mut S) -> Result<(), Refused<S::Error>> {
        if self.failed {
            return Err(Refused::Failed);
        }
        let Some(torn) = self.fresh else { return Ok(()) };
        if torn && self.end < self.superblock.end_of_half() {
            // A transaction that was not whole must never become so by what is written in its place.
            store.write(self.end * BLOCK, &[0; BLOCK as usize])?;
        }
        // What was read may not have been on the disk.
        self.sync_store(store)?;
        self.durable = self.sequence;
        self.settled = self.said;
        self.fresh = None;
        Ok(())
    }

    /// What was written survives a power cut from here on. Now and then it makes a checkpoint, and uses blocks again.
    ///
    /// # Errors
    /// What the device says.
    pub fn sync<S: Store>(&mut self, store: &mut S) -> Result<(), Refused<S::Error>> {
        self.begin(store)?;
        if !self.is_durable() {
            self.sync_store(store)?;
            self.durable = self.sequence;
            self.settled = self.said;
        }
        let log = self.end - self.superblock.start;
        if log > LOG.max(self.checkpoint * 3) {
            self.shorten(store)?;
        }
        if self.freed.iter().map(|(_, _, count)| count).sum::<u64>() >= FREED.min(self.capacity / 64) {
            self.release(store);
        }
        Ok(())
    }

    /// Makes all blocks usable that nobody has; what was written is on the disk then.
    ///
    /// # Errors
    /// What the device says.
    pub fn reclaim<S: Store>(&mut self, store: &mut S) -> Result<(), Refused<S::Error>> {
        self.sync(store)?;
        self.release(store);
        if !self.freed.is_empty() {
            // One that says that the last one is on the disk.
            self.commit(store, Transaction::new(), &[], |_, _, _| {})?;
            self.sync(store)?;
            self.release(store);
        }
        Ok(())
    }

    /// At a clean end: leaves a log that is read fast.
    ///
    /// # Errors
    /// What the device says.
    pub fn close<S: Store>(&mut self, store: &mut S) -> Result<(), Refused<S::Error>> {
        self.sync(store)?;
        if self.end - self.superblock.start - self.checkpoint > SHORT {
            self.shorten(store)?;
        }
        self.reclaim(store)
    }

    fn shorten<S: Store>(&mut self, store: &mut S) -> Result<(), Refused<S::Error>> {
        let all = self.tree.checkpoint();
        if self.has_room_for(&all) {
            self.write_checkpoint(store, all)?;
        }
        Ok(())
    }

    /// Blocks that no reader asks for can be used again. Many in a row are discarded.
    fn release<S: Store>(&mut self, store: &mut S) {
        let settled = self.settled;
        let (mut now, later) =
            core::mem::take(&mut self.freed).into_iter().partition::<Vec<_>, _>(|f| f.0 <= settled);
        self.freed = later;
        now.sort_unstable_by_key(|(_, block, _)| *block);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (_, block, count) in now {
            match runs.last_mut() {
                Some((start, len)) if *start + *len == block => *len += count,
                _ => runs.push((block, count)),
            }
        }
        for (block, count) in runs {
            if count >= DISCARDED {
                store.punch(block * BLOCK, count * BLOCK);
            }
            self.space.give(block, count);
        }
    }
}
