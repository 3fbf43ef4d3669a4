//! Arbitrary bytes as a kept layer, or as a file system on a disk, with right sums or not: reading ends, with a tree or an error that can
//! be told, and a checkpoint of what was read says the same. What is read from a disk can be written to, and read again.
#![no_main]

use doppel_layer::disk::{self, FEWEST};
use doppel_layer::{
    Attributes, BLOCK, Error, Header, Record, Source, Store, Superblock, Transaction, Tree, load,
};

struct File<'a>(&'a [u8]);

impl Source for File<'_> {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        let from = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let n = from.len().min(bytes.len());
        bytes[..n].copy_from_slice(&from[..n]);
        Ok(n)
    }
}

/// A layer of one transaction with these bytes as its records.
fn with_records(records: &[u8]) -> Vec<u8> {
    let superblock = Superblock::new([0; 32], 0);
    let mut file = vec![0; 2 * BLOCK as usize];
    let at = (superblock.block() * BLOCK) as usize;
    file[at..at + BLOCK as usize].copy_from_slice(&superblock.encode());
    let mut transaction = Transaction::new();
    transaction.add_encoded(records);
    let data_sum = doppel_layer::Sum::new(0).value();
    let header = Header {
        sequence: 1,
        durable: 0,
        previous: 0,
        checkpoint: false,
        records: 0,
        blocks: 0,
        records_sum: 0,
        data_sum,
    };
    file.extend(transaction.finish(&header, 0));
    file
}

/// What a checkpoint of it says.
fn read_again(tree: &Tree) -> Tree {
    let mut again = Tree::default();
    again.apply_all(tree.checkpoint().records(), |_, _| {}).expect("a checkpoint is read again");
    again
}

/// A disk in memory.
struct Disk(Vec<u8>);

impl Store for Disk {
    type Error = ();

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), ()> {
        self.0[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), ()> {
        Ok(())
    }

    fn punch(&mut self, at: u64, len: u64) {
        self.0[at as usize..(at + len) as usize].fill(0);
    }
}

/// A disk with a file system, and behind its checkpoint a transaction with these bytes as its records; none if they have no room.
fn disk_with_records(records: &[u8]) -> Option<Disk> {
    const AT: usize = 3 * BLOCK as usize;
    let mut disk = Disk(vec![0; (FEWEST * BLOCK) as usize]);
    let root = Attributes { mode: 0o040_755, nlink: 2, ..Attributes::default() };
    disk::format(&mut disk, FEWEST, 0, [0; 16], root).ok()?;
    let mut transaction = Transaction::new();
    transaction.add_encoded(records);
    let header = Header {
        sequence: 2,
        durable: 2,
        previous: Header::sum_of(&disk.0[2 * BLOCK as usize..]),
        checkpoint: false,
        records: 0,
        blocks: 0,
        records_sum: 0,
        data_sum: 0,
    };
    let bytes = transaction.finish(&header, 0);
    (bytes.len() < AT).then(|| disk.0[AT..AT + bytes.len()].copy_from_slice(&bytes)).map(|()| disk)
}

/// Reads a disk, and writes to it what any program could.
fn on_disk(mut disk: Disk) {
    const MOST: usize = 1 << 20;
    let loaded = match disk::load(&mut File(&disk.0), FEWEST, MOST) {
        Ok(loaded) => loaded,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut writer = disk::Writer::open(loaded, FEWEST);
    let (ino, page) =
        (writer.tree().next, doppel_layer::Pages { ino: writer.tree().next, page: 0, pages: 1 });
    let mut transaction = Transaction::new();
    let attributes = Attributes { mode: 0o100_644, nlink: 1, ..Attributes::default() };
    transaction.add(&Record::Inode { ino, attributes });
    transaction.add(&Record::Size { ino, size: BLOCK });
    transaction.add(&Record::Entry { dir: disk::ROOT, name: b"new", ino, cookie: (1 << 40) - 1 });
    transaction.add(&Record::Next { ino: ino + 1 });
    let done = writer.commit(&mut disk, transaction, &[page], |_, _, room| room.fill(1));
    if done.is_ok() && writer.close(&mut disk).is_ok() {
        // A number or a place of a listing may be taken, or the last one: then it is refused.
        if let Ok(again) = disk::load(&mut File(&disk.0), FEWEST, MOST) {
            assert!(again.tree.files.contains_key(&ino));
        }
    }
}

fn pages(file: &doppel_layer::File) -> u64 {
    file.content.as_ref().map_or(0, |content| content.blocks.pages())
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = load(&mut File(bytes)) {
        assert!(!error.to_string().is_empty());
    }
    let mut raw = bytes.to_vec();
    raw.resize((FEWEST * BLOCK) as usize, 0);
    on_disk(Disk(raw));
    if let Some(disk) = disk_with_records(bytes) {
        on_disk(disk);
    }
    let Ok(loaded) = load(&mut File(&with_records(bytes))) else { return };
    // Runs of pages that follow each other are one when they are read in order.
    let tree = read_again(&loaded.tree);
    assert_eq!(read_again(&tree), tree);
    assert_eq!(
        tree.files.values().map(pages).sum::<u64>(),
        loaded.tree.files.values().map(pages).sum::<u64>()
    );
    let mut rest = bytes;
    while let Ok((record, behind)) = Record::decode(rest) {
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        assert_eq!(Record::decode(&encoded), Ok((record, &[][..])));
        rest = behind;
    }
});
