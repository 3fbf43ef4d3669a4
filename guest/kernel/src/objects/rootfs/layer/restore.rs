//! Finding the files of a layer again when the domain starts.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_layer::{Error, File, Name, Source, Tree, Writer, load};
use doppel_machine::sync::{RwSpin, SpinLock};

use super::log::{Log, Raw};
use super::{Frozen, Layer, Pending, Room};
use crate::core::sched::Mutex;
use crate::objects::pages::Store;
use crate::objects::rootfs::{Fs, Node};
use crate::objects::storage::RawFile;
use crate::objects::vfs::inode::{FileType, Inode};
use crate::{Errno, Result};

/// Bytes that are read ahead, as there are many small records: at first, and at most. A new layer has hardly any, and its memory is
/// a domain's that has just begun.
const AHEAD_FIRST: usize = 16 << 10;
const AHEAD: usize = 128 << 10;

/// A file or a device as what is read from.
pub(super) struct Reader<R> {
    /// Reads at a position; gives how many bytes.
    read: R,
    /// Where `ahead` begins.
    at: u64,
    ahead: Vec<u8>,
    /// As many are read next.
    next: usize,
}

impl<R: Fn(u64, &mut [u8]) -> Result<usize>> Reader<R> {
    pub fn new(read: R) -> Self {
        Self { read, at: 0, ahead: Vec::new(), next: AHEAD_FIRST }
    }
}

impl<R: Fn(u64, &mut [u8]) -> Result<usize>> Source for Reader<R> {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> core::result::Result<usize, Error> {
        if bytes.len() >= AHEAD {
            return (self.read)(at, bytes).map_err(|_| Error::Io);
        }
        let held = self.at..self.at + self.ahead.len() as u64;
        if !(held.contains(&at) && at + bytes.len() as u64 <= held.end) {
            self.ahead.resize(self.next.max(bytes.len()), 0);
            self.next = (self.next * 2).min(AHEAD);
            let n = (self.read)(at, &mut self.ahead).map_err(|_| Error::Io)?;
            self.ahead.truncate(n);
            self.at = at;
        }
        let from = &self.ahead[((at - self.at) as usize).min(self.ahead.len())..];
        let n = from.len().min(bytes.len());
        bytes[..n].copy_from_slice(&from[..n]);
        Ok(n)
    }
}

/// Opens the layer that is the domain's volume with this number, for the file system of `root`, which nobody has changed yet but for
/// directories: its files are there afterwards, and changes are kept in it. They may hold `limit` bytes, or any number if that is 0.
///
/// # Errors
/// EUCLEAN: it is damaged; or what the service says.
pub fn open(root: &Node, number: u64, limit: u64) -> Result<()> {
    let fs = &root.fs;
    let file = RawFile::open(number)?;
    let read = |at: u64, bytes: &mut [u8]| file.read(at, bytes);
    let loaded = load(&mut Reader::new(read)).map_err(|e| match e {
        Error::Io => Errno::EIO,
        _ => Errno::EUCLEAN,
    })?;
    let writer = Writer::open(loaded, &mut Raw(&file))?;
    let file = Arc::new(file);
    let store: Arc<dyn Store> = file.clone();
    let mut restore = Restore::new(fs, &store);
    restore.all(writer.tree())?;
    let gone = restore.lost();
    let log = Log::File(Box::new(writer), file);
    let layer = Layer {
        device: None,
        store,
        room: Room::of(&log, limit),
        writer: Mutex::default(),
        writable: AtomicBool::new(true),
        names: RwSpin::default(),
        pending: SpinLock::new(Pending { gone, ..Pending::default() }),
        frozen: Frozen::default(),
    };
    *layer.writer.lock() = Some(Box::new(log));
    fs.layer.set(layer).map_err(|_| Errno::EBUSY)
}

/// Files that are being found again.
pub(super) struct Restore<'a> {
    fs: &'a Arc<Fs>,
    store: &'a Arc<dyn Store>,
    /// Numbers below it are the image's.
    first_own: u64,
    nodes: BTreeMap<u64, Arc<Node>>,
}

impl<'a> Restore<'a> {
    pub fn new(fs: &'a Arc<Fs>, store: &'a Arc<dyn Store>) -> Self {
        Self { fs, store, first_own: fs.next_ino.load(Ordering::Relaxed), nodes: BTreeMap::new() }
    }

    /// Makes all files.
    pub fn all(&mut self, tree: &Tree) -> Result<()> {
        self.fs.next_ino.fetch_max(tree.next, Ordering::Relaxed);
        for (&ino, file) in &tree.files {
            if let Some(node) = self.file(ino, file)? {
                self.nodes.insert(ino, node);
            }
        }
        for (ino, file) in tree.files.iter().filter(|(_, file)| !file.names.is_empty()) {
            if let Some(dir) = self.nodes.get(ino) {
                self.names(dir, file)?;
            }
        }
        Ok(())
    }

    /// One that was made.
    pub fn node(&self, ino: u64) -> Option<Arc<Node>> {
        self.nodes.get(&ino).cloned()
    }

    /// The numbers of those that no name leads to, and nobody has: the domain ended while they were open.
    pub fn lost(self) -> Vec<u64> {
        let lost = |(ino, node): (u64, Arc<Node>)| {
            (node.lower.is_none() && Arc::strong_count(&node) == 1).then_some(ino)
        };
        self.nodes.into_iter().filter_map(lost).collect()
    }

    /// One file. Directories of the image may be in use already.
    fn file(&self, ino: u64, file: &File) -> Result<Option<Arc<Node>>> {
        if ino >= self.first_own {
            return Ok(Node::restored(self.fs, ino, None, file, self.store));
        }
        let lower = self.fs.image()?.inode(ino).map_err(|_| Errno::EUCLEAN)?;
        if FileType::from_mode(lower.mode.into()) == Some(FileType::Directory) {
            let node = self.fs.image_node(ino)?;
            node.changing()?;
            node.restore_attributes(file);
            return Ok(Some(node));
        }
        let node = Node::restored(self.fs, ino, Some(lower), file, self.store);
        if let Some(node) = &node {
            self.fs.keep(ino, node.clone());
        }
        Ok(node)
    }

    /// A directory's names.
    fn names(&self, dir: &Node, file: &File) -> Result<()> {
        for (name, what) in &file.names {
            let entry = match *what {
                Name::Whiteout => None,
                Name::File { ino, cookie } => {
                    let Some(node) = self.named(ino)? else { continue };
                    if node.kind() == FileType::Directory {
                        node.changing()?;
                    }
                    Some((node, cookie))
                }
            };
            dir.restore_name(name, entry)?;
        }
        Ok(())
    }

    /// The file that a name leads to; one that the layer does not know is the image's.
    fn named(&self, ino: u64) -> Result<Option<Arc<Node>>> {
        match self.nodes.get(&ino) {
            Some(node) => Ok(Some(node.clone())),
            None if ino < self.first_own => self.fs.image_node(ino).map(Some),
            None => Ok(None),
        }
    }
}
