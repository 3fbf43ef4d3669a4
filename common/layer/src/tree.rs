//! What all records of a layer say together.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::blocks::BlockMap;
use crate::record::{Attributes, Record, Xattrs};
use crate::transaction::Transaction;
use crate::{BLOCK, Error};

/// Bytes of a regular file that are the layer's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// In bytes.
    pub size: u64,
    /// Where they are.
    pub blocks: BlockMap,
}

/// What a directory says of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// It leads to this file; its place in listings.
    File {
        /// The file's number.
        ino: u64,
        /// Its place in listings.
        cookie: u64,
    },
    /// The image's file of this name is hidden.
    Whiteout,
}

/// What the layer says of a file. What it does not say is the image's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Attributes.
    pub attributes: Option<Attributes>,
    /// A symbolic link's target.
    pub target: Option<Vec<u8>>,
    /// Extended attributes, all of them.
    pub xattrs: Option<Xattrs>,
    /// A regular file's bytes.
    pub content: Option<Content>,
    /// A directory's names.
    pub names: BTreeMap<Vec<u8>, Name>,
}

/// All files of which the layer says something, by inode number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The files.
    pub files: BTreeMap<u64, File>,
    /// Numbers from this one on were never given.
    pub next: u64,
}

impl Tree {
    /// Pages that hold data, of all files.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.files
            .values()
            .filter_map(|file| file.content.as_ref())
            .map(|content| content.blocks.pages())
            .sum()
    }

    /// Takes a record in. `freed` is told of blocks that hold nothing any more: the first, and how many.
    ///
    /// # Errors
    /// It says what cannot be.
    pub fn apply(&mut self, record: Record<'_>, mut freed: impl FnMut(u64, u64)) -> Result<(), Error> {
        match record {
            Record::Inode { ino, attributes } => self.file(ino).attributes = Some(attributes),
            Record::Target { ino, target } => self.file(ino).target = Some(target.to_vec()),
            Record::Xattrs { ino, xattrs } => self.file(ino).xattrs = Some(xattrs),
            Record::Size { ino, size } => {
                let content = self.file(ino).content.get_or_insert_default();
                if size < content.size {
                    content.blocks.cut(size.div_ceil(BLOCK), u64::MAX, freed);
                }
                content.size = size;
            }
            Record::Data { ino, page, pages, block } => {
                let end = |at: u64| at.checked_add(pages).filter(|end| *end <= 1 << 52);
                end(page).and(end(block)).ok_or(Error::Corrupt("data lies nowhere"))?;
                self.file(ino).content.get_or_insert_default().blocks.put(page, pages, block, freed);
            }
            Record::Hole { ino, page, pages } => {
                // Of a file that is not known nothing is noted: a checkpoint would not say it.
                if let Some(content) = self.files.get_mut(&ino).and_then(|file| file.content.as_mut()) {
                    content.blocks.cut(page, pages, freed);
                }
            }
            Record::Gone { ino } => {
                if let Some(content) = self.files.remove(&ino).and_then(|file| file.content) {
                    content.blocks.runs().for_each(|(_, pages, block)| freed(block, pages));
                }
            }
            Record::Entry { dir, name, ino, cookie } => {
                self.file(dir).names.insert(name.to_vec(), Name::File { ino, cookie });
            }
            Record::Whiteout { dir, name } => {
                self.file(dir).names.insert(name.to_vec(), Name::Whiteout);
            }
            Record::Absent { dir, name } => {
                if let Some(dir) = self.files.get_mut(&dir) {
                    dir.names.remove(name);
                }
            }
            Record::Next { ino } => self.next = self.next.max(ino),
        }
        Ok(())
    }

    fn file(&mut self, ino: u64) -> &mut File {
        self.files.entry(ino).or_default()
    }

    /// Takes all records of a transaction in.
    ///
    /// # Errors
    /// One is none, or says what cannot be.
    pub fn apply_all(&mut self, mut records: &[u8], mut freed: impl FnMut(u64, u64)) -> Result<(), Error> {
        while !records.is_empty() {
            let (record, rest) = Record::decode(records)?;
            self.apply(record, &mut freed)?;
            records = rest;
        }
        Ok(())
    }

    /// All it says, as records of a checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> Transaction {
        let mut out = Transaction::new();
        out.add(&Record::Next { ino: self.next });
        for (&ino, file) in &self.files {
            if let Some(attributes) = file.attributes {
                out.add(&Record::Inode { ino, attributes });
            }
            if let Some(target) = &file.target {
                out.add(&Record::Target { ino, target });
            }
            if let Some(xattrs) = &file.xattrs {
                out.add(&Record::Xattrs { ino, xattrs: xattrs.clone() });
            }
            if let Some(content) = &file.content {
                out.add(&Record::Size { ino, size: content.size });
                for (page, pages, block) in content.blocks.runs() {
                    out.add(&Record::Data { ino, page, pages, block });
                }
            }
            for (name, what) in &file.names {
                match *what {
                    Name::File { ino: file, cookie } => {
                        out.add(&Record::Entry { dir: ino, name, ino: file, cookie });
                    }
                    Name::Whiteout => out.add(&Record::Whiteout { dir: ino, name }),
                }
            }
        }
        out
    }
}
