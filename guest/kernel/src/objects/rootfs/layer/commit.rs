//! One transaction: what was noted, and what the files say of it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_layer::disk::Placed;
use doppel_layer::{Attributes, File, Pages, Record, Transaction};

use super::log::Log;
use super::{Layer, unwritten};
use crate::Result;
use crate::objects::pages::{Object, Run};
use crate::objects::rootfs::node::Body;
use crate::objects::rootfs::{Fs, Node};

/// What was noted, taken to be written.
struct Taken {
    names: Vec<u8>,
    gone: Vec<u64>,
    /// With what of them was unwritten.
    files: Vec<(Arc<Node>, u8)>,
    /// Pages that are in the transaction.
    pages: Vec<(Arc<Object>, Vec<Run>)>,
}

impl Layer {
    /// Writes what was noted; `syncs`: it is synced next.
    pub(super) fn commit(&self, fs: &Fs, writer: &mut Log, syncs: bool) -> Result<()> {
        let counted = self.counted();
        let mut taken = self.take();
        if taken.names.is_empty() && taken.gone.is_empty() && taken.files.is_empty() {
            return Ok(());
        }
        let mut draft = Draft::default();
        for (node, what) in &taken.files {
            draft.file(node, *what, writer.tree().files.get(&node.ino()));
        }
        let Draft { mut transaction, pages, objects, changed } = draft;
        taken.pages = changed;
        transaction.add_encoded(&taken.names);
        for ino in &taken.gone {
            transaction.add(&Record::Gone { ino: *ino });
        }
        let next = fs.next_ino.load(Ordering::Relaxed);
        if writer.tree().next != next {
            transaction.add(&Record::Next { ino: next });
        }
        let read = |ino: u64, page: u64, bytes: &mut [u8]| match objects.get(&ino) {
            Some(object) => object.read_pages(page, bytes),
            None => bytes.fill(0),
        };
        match writer.commit(transaction, &pages, read, syncs) {
            Ok(placed) => {
                let mut placed = placed.into_iter();
                for (object, runs) in &taken.pages {
                    object.note_stored(&self.store, &pieces(runs, &mut placed));
                }
                if self.device.is_some() {
                    self.wrote(counted, writer.held());
                }
                Ok(())
            }
            Err(e) => {
                self.put_back(taken);
                Err(e)
            }
        }
    }

    /// Takes what was noted, at a moment when nobody changes names.
    fn take(&self) -> Taken {
        let _still = self.names.write();
        let mut pending = self.pending.lock();
        let mut all = core::mem::take(&mut pending.files);
        pending.mapped.retain(|node| {
            let Some(object) = node.object_in_memory() else { return false };
            let written = object.is_written_through();
            if written {
                all.entry(node.ino()).or_insert_with(|| node.clone());
            }
            let stays = written || Arc::strong_count(object) > 1;
            if !stays {
                node.unwritten.fetch_and(!unwritten::MAPPED, Ordering::AcqRel);
            }
            stays
        });
        let what = |node: &Node| node.unwritten.fetch_and(unwritten::MAPPED, Ordering::AcqRel);
        Taken {
            names: core::mem::take(&mut pending.names),
            gone: core::mem::take(&mut pending.gone),
            files: all.into_values().map(|node| (node.clone(), what(&node))).collect(),
            pages: Vec::new(),
        }
    }

    /// It could not be written: it counts as noted again.
    fn put_back(&self, mut taken: Taken) {
        for (object, runs) in taken.pages {
            object.changed_again(runs.into_iter());
        }
        let _still = self.names.write();
        let mut pending = self.pending.lock();
        // What came later stands behind it.
        taken.names.append(&mut pending.names);
        pending.names = taken.names;
        pending.gone.append(&mut taken.gone);
        for (node, what) in taken.files {
            node.unwritten.fetch_or(what | unwritten::FILE, Ordering::AcqRel);
            pending.files.insert(node.ino(), node);
        }
    }
}

/// Runs of pages as they were placed, which may be in pieces, and the block of each; holes have none.
fn pieces(runs: &[Run], placed: &mut impl Iterator<Item = Placed>) -> Vec<(Run, u64)> {
    let mut all = Vec::new();
    for run in runs {
        if !run.data {
            all.push((*run, 0));
            continue;
        }
        let mut left = run.pages;
        while left > 0
            && let Some(Placed { pages: Pages { page, pages, .. }, block }) = placed.next()
        {
            all.push((Run { page, pages, data: true }, block));
            left = left.saturating_sub(pages);
        }
    }
    all
}

/// A transaction that is being made.
#[derive(Default)]
struct Draft {
    transaction: Transaction,
    pages: Vec<Pages>,
    /// The files whose pages those are.
    objects: BTreeMap<u64, Arc<Object>>,
    changed: Vec<(Arc<Object>, Vec<Run>)>,
}

impl Draft {
    /// What is to be said of a file, of which the layer says `known`.
    fn file(&mut self, node: &Node, what: u8, known: Option<&File>) {
        let m = *node.meta.lock();
        // It has no name, or none yet. When it gets one it is noted.
        if m.nlink == 0 {
            return;
        }
        let ino = node.ino();
        let rdev = if let Body::Special { rdev } = &node.body { *rdev } else { 0 };
        let (mode, uid, gid, nlink) = (m.mode, m.uid, m.gid, m.nlink);
        let (atime, mtime, ctime, btime) = (m.atime, m.mtime, m.ctime, m.btime);
        let attributes = Attributes { mode, uid, gid, nlink, rdev, atime, mtime, ctime, btime };
        self.transaction.add(&Record::Inode { ino, attributes });
        let new = node.lower.is_none() && known.is_none_or(|file| file.attributes.is_none());
        if new && let Body::Symlink(target) = &node.body {
            self.transaction.add(&Record::Target { ino, target });
        }
        if new || what & unwritten::XATTRS != 0 {
            let xattrs = node.xattrs.lock().clone();
            if let Some(xattrs) = xattrs.filter(|x| !(new && x.is_empty())) {
                self.transaction.add(&Record::Xattrs { ino, xattrs });
            }
        }
        if let Some(object) = node.object_in_memory() {
            self.content(ino, object, known.is_none_or(|file| file.content.is_none()));
        }
    }

    /// What is to be said of a file's bytes; `all` of them if the layer has none yet.
    fn content(&mut self, ino: u64, object: &Arc<Object>, all: bool) {
        let (size, runs) = object.take_changed(all);
        self.transaction.add(&Record::Size { ino, size });
        for run in &runs {
            let Run { page, pages, data } = *run;
            if data {
                self.pages.push(Pages { ino, page, pages });
            } else if !all {
                self.transaction.add(&Record::Hole { ino, page, pages });
            }
        }
        self.objects.insert(ino, object.clone());
        self.changed.push((object.clone(), runs));
    }
}
