//! Where transactions go: a file of the storage service's, or a block device.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_layer::disk::{Placed, Refused, Writer as DiskWriter};
use doppel_layer::{BLOCK, Pages, Transaction, Tree, Writer};

use crate::objects::block::{Device, Used};
use crate::objects::pages::Store;
use crate::objects::storage::RawFile;
use crate::{Errno, Result};

/// Whoever writes has it.
pub(super) enum Log {
    File(Box<Writer>, Arc<RawFile>),
    Disk(Box<DiskWriter>, Arc<Disk>),
}

/// Of the bytes of records that a device may have, files and names of their own may take so many eighths: the rest is for the places of
/// their bytes, which no program's call is refused for.
const NAMES: u64 = 5;

impl Log {
    /// What it says.
    pub fn tree(&self) -> &Tree {
        match self {
            Self::File(writer, _) => writer.tree(),
            Self::Disk(writer, _) => writer.tree(),
        }
    }

    /// Bytes that files have in it.
    pub fn held(&self) -> u64 {
        BLOCK
            * match self {
                Self::File(writer, _) => writer.tree().pages(),
                Self::Disk(writer, _) => writer.used(),
            }
    }

    /// Bytes of records, and the most before nothing can be made any more; none if that is not bounded.
    pub fn records(&self) -> Option<(u64, u64)> {
        match self {
            Self::File(..) => None,
            Self::Disk(writer, _) => {
                let (now, most) = writer.records();
                Some((now, most / 8 * NAMES))
            }
        }
    }

    /// Writes a transaction; gives where its pages are, in their order. `syncs`: it is synced next, so that may be done at once.
    pub fn commit(
        &mut self,
        transaction: Transaction,
        pages: &[Pages],
        read: impl FnMut(u64, u64, &mut [u8]),
        syncs: bool,
    ) -> Result<Vec<Placed>> {
        match self {
            Self::File(writer, file) => {
                let store = &mut Raw(file);
                let block = match syncs {
                    true => writer.commit_synced(store, transaction, pages, read),
                    false => writer.commit(store, transaction, pages, read),
                };
                let mut block = block?;
                let place = |pages: &Pages| {
                    let placed = Placed { pages: *pages, block };
                    block += pages.pages;
                    placed
                };
                Ok(pages.iter().map(place).collect())
            }
            Self::Disk(writer, disk) => commit_to_disk(writer, disk, transaction, pages, read),
        }
    }

    /// What was written survives a power cut from here on.
    pub fn sync(&mut self) -> Result<()> {
        match self {
            Self::File(writer, file) => writer.sync(&mut Raw(file)),
            Self::Disk(writer, disk) => writer.sync(&mut Blocks(&disk.0)).map_err(refused),
        }
    }

    /// The same, and it is read fast the next time.
    pub fn close(&mut self) -> Result<()> {
        match self {
            Self::File(writer, file) => writer.close(&mut Raw(file)),
            Self::Disk(writer, disk) => writer.close(&mut Blocks(&disk.0)).map_err(refused),
        }
    }
}

fn refused(why: Refused<Errno>) -> Errno {
    match why {
        Refused::NoSpace => Errno::ENOSPC,
        Refused::Store(e) => e,
        Refused::Failed => Errno::EIO,
    }
}

/// Pages that find no room at once are written in several transactions: what the first ones replace makes room for the next.
fn commit_to_disk(
    writer: &mut DiskWriter,
    disk: &Disk,
    transaction: Transaction,
    pages: &[Pages],
    mut read: impl FnMut(u64, u64, &mut [u8]),
) -> Result<Vec<Placed>> {
    let store = &mut Blocks(&disk.0);
    let mut rest = pages.to_vec();
    if rest.iter().map(|run| run.pages).sum::<u64>() > writer.available() {
        writer.reclaim(store).map_err(refused)?;
    }
    let (mut transaction, mut all) = (Some(transaction), Vec::new());
    loop {
        let now = split(&mut rest, writer.available());
        if now.is_empty() && transaction.is_none() {
            return Err(Errno::ENOSPC);
        }
        let next = transaction.take().unwrap_or_default();
        let mut placed = writer.commit(store, next, &now, &mut read).map_err(refused)?;
        all.append(&mut placed);
        if rest.is_empty() {
            return Ok(all);
        }
        writer.reclaim(store).map_err(refused)?;
    }
}

/// Takes at most so many pages from the front.
fn split(pages: &mut Vec<Pages>, most: u64) -> Vec<Pages> {
    let mut left = most;
    let mut now = Vec::new();
    let mut rest = Vec::new();
    for run in pages.drain(..) {
        let count = run.pages.min(left);
        left -= count;
        if count > 0 {
            now.push(Pages { pages: count, ..run });
        }
        if count < run.pages {
            rest.push(Pages { page: run.page + count, pages: run.pages - count, ..run });
        }
    }
    *pages = rest;
    now
}

/// The service's file as what is written to.
pub(super) struct Raw<'a>(pub &'a RawFile);

impl doppel_layer::Store for Raw<'_> {
    type Error = Errno;

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.0.write(at, bytes)
    }

    fn write_synced(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_synced(at, bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }

    fn punch(&mut self, at: u64, len: u64) {
        self.0.punch(at, len);
    }

    fn cut(&mut self, at: u64) {
        self.0.cut(at);
    }
}

/// The same of a device.
pub(super) struct Blocks<'a>(pub &'a Device);

impl doppel_layer::Store for Blocks<'_> {
    type Error = Errno;

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_whole(at, bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.0.flush()
    }

    fn punch(&mut self, at: u64, len: u64) {
        self.0.discard(at, len);
    }
}

/// A device that has a file system which is mounted.
pub(super) struct Disk(pub Used);

impl Store for Disk {
    fn read(&self, block: u64, bytes: &mut [u8]) -> Result<()> {
        self.0.read_whole(block * BLOCK, bytes)
    }
}
