//! An image with what a layer's file says above it: the files of a para domain.
//!
//! The file is a domain's: its numbers lead where it likes, so whoever walks enters no directory twice.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use doppel_erofs::{Inode, Kind};
use doppel_layer::{BLOCK, Content, Name, Tree};

use crate::Result;
use crate::export::view::{Id, Image, Item, Source, View, impossible, kind_of, of_image};

/// Bytes of the image for each number of an inode.
const SLOT: u64 = doppel_abi_image::SLOT_SIZE as u64;
const SECOND: i64 = 1_000_000_000;

pub(crate) struct Kept<'a> {
    pub image: Image<'a>,
    file: &'a dyn FileExt,
    tree: Tree,
    /// Numbers from this one on are no files of the image.
    first: u64,
}

pub(super) struct Reader<'a>(pub &'a dyn FileExt);

impl doppel_layer::Source for Reader<'_> {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> std::result::Result<usize, doppel_layer::Error> {
        let mut done = 0;
        while done < bytes.len() {
            match self.0.read_at(&mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err(doppel_layer::Error::Io),
            }
        }
        Ok(done)
    }
}

impl<'a> Kept<'a> {
    pub fn open(image: Image<'a>, bytes: u64, file: &'a dyn FileExt) -> Result<Self> {
        let loaded = doppel_layer::load(&mut Reader(file)).map_err(|e| impossible(&e.to_string()))?;
        Ok(Self { image, file, tree: loaded.tree, first: bytes / SLOT + 1 })
    }

    /// The image's file of this number, if it has one.
    fn inode(&self, ino: u64) -> Result<Option<Inode>> {
        let found = (ino < self.first).then(|| self.image.fs.inode(ino));
        found.transpose().map_err(self.image.damaged())
    }

    fn item(&self, ino: u64) -> Result<Item> {
        let below = self.inode(ino)?;
        let said = self.tree.files.get(&ino);
        let mut item = match (below, said.and_then(|file| file.attributes)) {
            (Some(inode), None) => of_image(inode),
            (below, Some(a)) => {
                let kind = kind_of(a.mode).ok_or_else(|| impossible("a file of no kind"))?;
                Item {
                    id: Id::Own(ino),
                    kind,
                    mode: a.mode & 0o7777,
                    uid: a.uid,
                    gid: a.gid,
                    nlink: a.nlink,
                    size: below.filter(|b| b.kind == kind && kind == Kind::Regular).map_or(0, |b| b.size),
                    mtime_sec: a.mtime.div_euclid(SECOND),
                    mtime_nsec: u32::try_from(a.mtime.rem_euclid(SECOND)).unwrap_or(0),
                    device: (rustix::fs::major(a.rdev), rustix::fs::minor(a.rdev)),
                    source: Source::Layer(ino, below.filter(|b| b.kind == kind)),
                }
            }
            (None, None) => return Err(impossible("a name leads to no file")),
        };
        if below.is_some() {
            item.id = Id::Image(ino);
        }
        if said.is_some() {
            item.source = Source::Layer(ino, below.filter(|b| b.kind == item.kind));
        }
        if let Some(content) = self.content(ino).filter(|_| item.kind == Kind::Regular) {
            item.size = content.size;
        }
        Ok(item)
    }

    fn content(&self, ino: u64) -> Option<&Content> {
        self.tree.files.get(&ino)?.content.as_ref()
    }

    /// Bytes that the layer has, in one piece.
    fn piece(&self, content: &Content, at: u64, buf: &mut [u8]) -> Result<usize> {
        let (found, pages) = content.blocks.find(at / BLOCK);
        let within = at % BLOCK;
        let left = pages.saturating_mul(BLOCK).saturating_sub(within).min(content.size.saturating_sub(at));
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..want];
        match found {
            None => buf.fill(0),
            Some(block) => {
                let place = block.checked_mul(BLOCK).ok_or_else(|| impossible("data lies nowhere"))? + within;
                let n = doppel_layer::Source::read(&mut Reader(self.file), place, buf);
                let n = n.map_err(|e| impossible(&e.to_string()))?;
                // Behind the file's end.
                buf[n..].fill(0);
            }
        }
        Ok(want)
    }
}

impl View for Kept<'_> {
    fn root(&self) -> Result<Item> {
        self.item(self.image.fs.root_nid())
    }

    fn list(&self, dir: &Item) -> Result<Vec<(Vec<u8>, Item)>> {
        let (ino, below) = match &dir.source {
            Source::Layer(ino, below) => (*ino, *below),
            Source::Image(inode) => (inode.nid, Some(*inode)),
            Source::Host(..) => return Err(impossible("a directory of another tree")),
        };
        let below = below.map(|inode| self.image.names(&inode)).transpose()?.unwrap_or_default();
        let mut all: BTreeMap<Vec<u8>, u64> = below.into_iter().collect();
        for (name, what) in self.tree.files.get(&ino).into_iter().flat_map(|file| &file.names) {
            match *what {
                Name::File { ino, .. } => drop(all.insert(name.clone(), ino)),
                Name::Whiteout => drop(all.remove(name)),
            }
        }
        all.into_iter().map(|(name, ino)| Ok((name, self.item(ino)?))).collect()
    }

    fn target(&self, link: &Item) -> Result<Vec<u8>> {
        let Source::Layer(ino, below) = &link.source else { return self.image.target(link) };
        if let Some(target) = self.tree.files.get(ino).and_then(|file| file.target.clone()) {
            return Ok(target);
        }
        let below = below.ok_or_else(|| impossible("a symbolic link that leads nowhere"))?;
        self.image.target(&of_image(below))
    }

    fn xattrs(&self, of: &Item) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let Source::Layer(ino, below) = &of.source else { return self.image.xattrs(of) };
        match (self.tree.files.get(ino).and_then(|file| file.xattrs.as_ref()), below) {
            (Some(own), _) => Ok(own.iter().map(|(name, value)| (name.clone(), value.clone())).collect()),
            (None, Some(inode)) => self.image.attributes(inode),
            (None, None) => Ok(Vec::new()),
        }
    }

    fn read(&self, file: &Item, at: u64, buf: &mut [u8]) -> Result<usize> {
        let Source::Layer(ino, below) = &file.source else { return self.image.read(file, at, buf) };
        let Some(content) = self.content(*ino) else {
            return below.map_or(Ok(0), |inode| self.image.bytes(&inode, at, buf));
        };
        let mut done = 0;
        while done < buf.len() && at + (done as u64) < content.size {
            done += self.piece(content, at + done as u64, &mut buf[done..])?;
        }
        Ok(done)
    }
    fn is_unchanged(&self, file: &Item) -> bool {
        match &file.source {
            Source::Layer(ino, below) => below.is_some() && self.content(*ino).is_none(),
            _ => true,
        }
    }
}
