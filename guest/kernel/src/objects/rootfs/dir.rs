//! Directories of a [`Node`]: entries of their own over those of the image.
//!
//! A name is looked up in `entries` first; a [`Entry::Whiteout`] there hides the image's. Listing positions
//! are 0 for ".", 1 for "..", then 2 + the image's own cookie, then [`OWN`] + a number that rises with every
//! entry made, so they stay valid whatever is added or removed meanwhile.
//! Changes of names in one directory are serialised by the directory cache above; no operation here holds
//! two directories' locks.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use doppel_erofs as erofs;

use doppel_layer::Record;

use super::broken;
use super::layer::unwritten;
use super::node::{Body, Node};
use crate::objects::vfs::file::DirSink;
use crate::objects::vfs::flags::RenameFlags;
use crate::objects::vfs::inode::{FileType, Inode};
use crate::{Errno, Result};

/// Positions of entries that are not the image's start here.
const OWN: u64 = 1 << 40;
enum Entry {
    Node { node: Arc<Node>, cookie: u64 },
    Whiteout,
}

/// The entries of a directory.
#[derive(Default)]
pub(super) struct Dir {
    lower: Option<erofs::Inode>,
    entries: BTreeMap<Box<[u8]>, Entry>,
    /// Those of `entries` that are nodes, by cookie: for listings.
    order: BTreeMap<u64, (Box<[u8]>, Arc<Node>)>,
    last_cookie: u64,
    /// Inode number of "..", 0 if it is still the image's.
    parent_ino: u64,
    /// Removed: nothing can be added any more.
    dead: bool,
}

impl Dir {
    /// A directory of the image.
    pub(super) fn over(lower: erofs::Inode) -> Self {
        Self { lower: Some(lower), ..Self::default() }
    }

    /// What `stat` says its size is.
    pub(super) fn size(&self, lower: u64) -> u64 {
        lower + 20 * self.order.len() as u64
    }

    /// Empties it, for taking a tree apart.
    pub(super) fn take_nodes(&mut self) -> Vec<Arc<Node>> {
        let entries = core::mem::take(&mut self.entries);
        self.order.clear();
        entries
            .into_values()
            .filter_map(|e| match e {
                Entry::Node { node, .. } => Some(node),
                Entry::Whiteout => None,
            })
            .collect()
    }
}

impl Node {
    /// Finds a name.
    pub(super) fn find(&self, name: &[u8]) -> Result<Arc<Node>> {
        let dir = self.dir()?.read();
        match dir.entries.get(name) {
            Some(Entry::Node { node, .. }) => return Ok(node.clone()),
            Some(Entry::Whiteout) => return Err(Errno::ENOENT),
            None => {}
        }
        let Some(lower) = dir.lower else { return Err(Errno::ENOENT) };
        match self.fs.image()?.lookup(&lower, name).map_err(broken)? {
            Some((nid, _)) => self.fs.image_node(nid),
            None => Err(Errno::ENOENT),
        }
    }

    /// The node behind another inode, if it is of this file system.
    pub(super) fn same_fs(&self, inode: &Arc<dyn Inode>) -> Result<Arc<Node>> {
        let any: Arc<dyn Any + Send + Sync> = inode.clone();
        let node = any.downcast::<Node>().map_err(|_| Errno::EXDEV)?;
        if Arc::ptr_eq(&node.fs, &self.fs) { Ok(node) } else { Err(Errno::EXDEV) }
    }

    /// Puts a node under a name, replacing what is there.
    fn put(&self, name: &[u8], node: &Arc<Node>) -> Result<()> {
        self.changing()?;
        let old = {
            let mut dir = self.dir()?.write();
            if dir.dead {
                return Err(Errno::ENOENT);
            }
            dir.last_cookie += 1;
            let cookie = dir.last_cookie;
            let old = dir.entries.insert(name.into(), Entry::Node { node: node.clone(), cookie });
            if let Some(Entry::Node { cookie, .. }) = &old {
                dir.order.remove(cookie);
            }
            dir.order.insert(cookie, (name.into(), node.clone()));
            self.note_name(&Record::Entry { dir: self.ino(), name, ino: node.ino(), cookie });
            old
        };
        drop(old);
        node.changing()?;
        node.changed(unwritten::FILE);
        if let Body::Dir(d) = &node.body {
            node.changing()?;
            d.write().parent_ino = self.ino();
        }
        self.modified();
        Ok(())
    }

    /// Takes a name away, hiding the image's entry if there is one.
    fn take(&self, name: &[u8]) -> Result<()> {
        self.changing()?;
        let old = {
            let mut dir = self.dir()?.write();
            let hidden = match dir.lower {
                Some(l) => self.fs.image()?.lookup(&l, name).map_err(broken)?.is_some(),
                None => false,
            };
            let old = if hidden {
                dir.entries.insert(name.into(), Entry::Whiteout)
            } else {
                dir.entries.remove(name)
            };
            if let Some(Entry::Node { cookie, .. }) = &old {
                dir.order.remove(cookie);
            }
            let number = self.ino();
            self.note_name(&match hidden {
                true => Record::Whiteout { dir: number, name },
                false => Record::Absent { dir: number, name },
            });
            old
        };
        drop(old);
        self.modified();
        Ok(())
    }

    /// Notes a change of a name for the layer.
    fn note_name(&self, record: &Record<'_>) {
        if let Some(layer) = self.layer() {
            layer.note_name(&self.fs, record);
        }
    }

    /// A name as a layer has kept it; none: the image's is hidden.
    pub(super) fn restore_name(&self, name: &[u8], what: Option<(Arc<Node>, u64)>) -> Result<()> {
        let mut dir = self.dir()?.write();
        let Some((node, cookie)) = what else {
            dir.entries.insert(name.into(), Entry::Whiteout);
            return Ok(());
        };
        dir.last_cookie = dir.last_cookie.max(cookie);
        dir.order.insert(cookie, (name.into(), node.clone()));
        dir.entries.insert(name.into(), Entry::Node { node: node.clone(), cookie });
        drop(dir);
        if let Body::Dir(below) = &node.body {
            below.write().parent_ino = self.ino();
        }
        Ok(())
    }

    /// Adds a new node.
    pub(super) fn add(&self, name: &[u8], node: Arc<Node>) -> Result<Arc<Node>> {
        match self.find(name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        self.put(name, &node)?;
        if node.kind() == FileType::Directory {
            self.add_links(1)?;
        }
        Ok(node)
    }

    /// Adds a name for a node that has one, or for an O_TMPFILE.
    pub(super) fn link_node(&self, name: &[u8], node: &Arc<Node>) -> Result<()> {
        if node.kind() == FileType::Directory {
            return Err(Errno::EPERM);
        }
        match self.find(name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        let (nlink, linkable) = {
            let m = node.meta.lock();
            (m.nlink, m.linkable)
        };
        if nlink == 0 && !linkable {
            return Err(Errno::ENOENT);
        }
        if nlink >= u32::MAX / 2 {
            return Err(Errno::EMLINK);
        }
        self.put(name, node)?;
        node.meta.lock().linkable = false;
        node.add_links(1)
    }

    /// Fails with ENOTEMPTY if anything is in this directory; otherwise closes it for ever.
    fn close_empty(&self) -> Result<()> {
        let mut dir = self.dir()?.write();
        if !dir.order.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        if let Some(lower) = dir.lower {
            let mut seen = false;
            let look = |e: erofs::DirEntry<'_>| {
                seen = e.name != b"." && e.name != b".." && !dir.entries.contains_key(e.name);
                !seen
            };
            self.fs.image()?.readdir(&lower, 0, look).map_err(broken)?;
            if seen {
                return Err(Errno::ENOTEMPTY);
            }
        }
        dir.dead = true;
        Ok(())
    }

    /// Removes a name: of a directory if `rmdir`, of anything else if not.
    pub(super) fn remove(&self, name: &[u8], rmdir: bool) -> Result<()> {
        let node = self.find(name)?;
        let is_dir = node.kind() == FileType::Directory;
        match (rmdir, is_dir) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ => {}
        }
        if is_dir {
            node.close_empty()?;
        }
        self.take(name)?;
        self.unname(&node)
    }

    /// Counts one name less of `node`, which was in this directory.
    fn unname(&self, node: &Arc<Node>) -> Result<()> {
        if node.kind() == FileType::Directory {
            node.changing()?;
            node.lose_last_name();
            self.add_links(-1)
        } else {
            node.add_links(-1)
        }
    }

    /// Renames within the file system.
    pub(super) fn rename_to(
        &self,
        name: &[u8],
        to: &Arc<Node>,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let node = self.find(name)?;
        let victim = match to.find(new_name) {
            Ok(v) => Some(v),
            Err(Errno::ENOENT) => None,
            Err(e) => return Err(e),
        };
        let is_dir = |n: &Arc<Node>| n.kind() == FileType::Directory;
        let across = !core::ptr::eq(self, &raw const **to);
        if flags.contains(RenameFlags::EXCHANGE) {
            let other = victim.ok_or(Errno::ENOENT)?;
            to.put(new_name, &node)?;
            self.put(name, &other)?;
            if across && is_dir(&node) != is_dir(&other) {
                let by = if is_dir(&node) { 1 } else { -1 };
                to.add_links(by)?;
                self.add_links(-by)?;
            }
            return Ok(());
        }
        if let Some(v) = &victim {
            if flags.contains(RenameFlags::NOREPLACE) {
                return Err(Errno::EEXIST);
            }
            if Arc::ptr_eq(v, &node) {
                return Ok(());
            }
            match (is_dir(&node), is_dir(v)) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (true, true) => v.close_empty()?,
                (false, false) => {}
            }
        }
        to.put(new_name, &node)?;
        self.take(name)?;
        if let Some(v) = &victim {
            to.unname(v)?;
        }
        if is_dir(&node) && across {
            self.add_links(-1)?;
            to.add_links(1)?;
        }
        node.changing()?;
        node.meta.lock().ctime = super::now();
        node.changed(unwritten::FILE);
        Ok(())
    }

    /// Lists entries from a position on.
    pub(super) fn list(&self, pos: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let dir = self.dir()?.read();
        if dir.dead {
            return Err(Errno::ENOENT);
        }
        if pos == 0 && !sink(self.ino(), 1, FileType::Directory, b".") {
            return Ok(());
        }
        if pos <= 1 {
            let up = match (dir.parent_ino, &dir.lower) {
                (0, Some(l)) => {
                    let up = self.fs.image()?.lookup(l, b"..").map_err(broken)?;
                    up.map_or(self.ino(), |(nid, _)| nid)
                }
                (0, None) => self.ino(),
                (up, _) => up,
            };
            if !sink(up, 2, FileType::Directory, b"..") {
                return Ok(());
            }
        }
        if let Some(lower) = &dir.lower
            && pos < OWN
        {
            let mut full = false;
            let each = |e: erofs::DirEntry<'_>| {
                if e.name == b"." || e.name == b".." || dir.entries.contains_key(e.name) {
                    return true;
                }
                full = !sink(e.nid, 2 + e.next, kind_of(e.file_type), e.name);
                !full
            };
            self.fs.image()?.readdir(lower, pos.saturating_sub(2), each).map_err(broken)?;
            if full {
                return Ok(());
            }
        }
        for (cookie, (name, node)) in dir.order.range(pos.saturating_sub(OWN)..) {
            if !sink(node.ino(), OWN + cookie + 1, node.kind(), name) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The kind a directory entry of the image claims.
pub fn kind_of(file_type: u8) -> FileType {
    match file_type {
        2 => FileType::Directory,
        3 => FileType::CharDevice,
        4 => FileType::BlockDevice,
        5 => FileType::Fifo,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => FileType::Regular,
    }
}
