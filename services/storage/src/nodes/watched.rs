//! Files that a domain watches, and closing what was written so that it does not hear of that.
//!
//! Which they are is known in the memory that outlives the process: a successor watches them anew.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use doppel_abi_service::storage::VOLUMES;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::records::Locator;
use super::{HELD, Nodes, Open, node_of, reopen};
use crate::changes::{Changes, FileId, Reach, Site};

/// Directories that are not held open, as they are found by their handles: one that is does not go when others remove it.
#[derive(Debug, Default)]
pub(super) struct Bare(HashSet<u32>);

impl Bare {
    pub fn has(&self, index: u32) -> bool {
        self.0.contains(&index)
    }
}

impl Nodes {
    /// What others change in its files.
    pub fn changes(&self) -> &Arc<Changes> {
        &self.changes
    }

    /// Device and number of a node's file.
    pub fn file_id(&self, node: u64) -> Result<FileId, Errno> {
        if node < VOLUMES {
            return Ok(self.root(node)?.id);
        }
        let identity = self.known_record(node)?.1.identity;
        Ok(FileId(identity.device, identity.inode))
    }

    /// What is to be known of a file to watch it, and a descriptor that names it.
    pub fn site(&mut self, node: u64) -> Result<(Arc<OwnedFd>, Site), Errno> {
        let name = self.name(node)?;
        let is_directory = self.kind_of(node)? == FileType::Directory;
        let (volume, file) = (self.volume_of(node)?, self.file_id(node)?);
        let record =
            (node >= VOLUMES).then(|| self.known_record(node)).transpose()?.map(|(_, record)| record);
        let named = record.as_ref().and_then(|record| match &record.locator {
            Locator::Name { parent, name } => Some((*parent, name.clone())),
            _ => None,
        });
        let reach = match record {
            Some(record) if matches!(record.locator, Locator::Handle(_)) => {
                let root = self.root(volume)?.file.clone();
                Reach::Anew(Box::new(move || reopen(&root, &record, OFlags::PATH | OFlags::NOFOLLOW)))
            }
            _ => Reach::Open(name.clone()),
        };
        Ok((name, Site { node, volume, file, is_directory, named, reach }))
    }

    /// Notes by which events a file is watched; 0: it is not.
    pub fn set_watched(&mut self, node: u64, events: u32) -> Result<(), Errno> {
        if node < VOLUMES {
            self.root(node)?;
            self.records.set_root_watched(node, events);
            return Ok(());
        }
        let (index, mut record) = self.known_record(node)?;
        record.watched = events;
        self.records.put(index, &record);
        let bare = record.kind == FileType::Directory && matches!(record.locator, Locator::Handle(_));
        if events == 0 {
            self.bare.0.remove(&index);
        } else if bare && self.bare.0.insert(index) && self.open.get(&index).is_some_and(|open| !open.pinned)
        {
            self.open.remove(&index);
        }
        Ok(())
    }

    /// What a predecessor has watched, by node.
    pub(super) fn former(&self) -> Vec<(u64, u32)> {
        let roots = (0..self.roots.len() as u64).map(|root| (root, self.records.root_watched(root)));
        let others = (0..self.records.used()).map(|index| (index, self.records.get(index)));
        let others = others.filter(|(_, r)| r.given > 0).map(|(index, r)| (node_of(index), r.watched));
        roots.chain(others).filter(|(_, events)| *events != 0).collect()
    }

    /// A node is given back.
    pub(super) fn watched_no_more(&mut self, index: u32) {
        self.bare.0.remove(&index);
        self.changes.unwatch(node_of(index), u64::MAX);
    }

    /// A program of the domain has a file open that is written.
    pub fn hold_writer(&mut self, node: u64) {
        if let Some(Some((_, used))) = self.writer(node) {
            *used = Instant::now() + HELD;
        }
    }

    /// It has no more.
    pub fn release_writer(&mut self, node: u64) {
        let held = |used: &Instant| *used > Instant::now() + HELD / 2;
        let file = self.writer(node).and_then(|write| write.take_if(|(_, used)| held(used)));
        if let Some((file, _)) = file {
            self.close_writer(node, file);
        }
    }

    fn writer(&mut self, node: u64) -> Option<&mut Option<(Arc<OwnedFd>, Instant)>> {
        match u32::try_from(node.wrapping_sub(VOLUMES)) {
            Ok(index) => self.open.get_mut(&index).map(|open| &mut open.write),
            Err(_) => usize::try_from(node).ok().and_then(|n| self.roots.get_mut(n)).map(|r| &mut r.write),
        }
    }

    /// Closes one that was written.
    pub(super) fn close_writer(&self, node: u64, file: Arc<OwnedFd>) {
        if let (Ok(volume), Ok(id)) = (self.volume_of(node), self.file_id(node)) {
            self.changes.close(volume, id, file);
        }
    }

    /// Closes what is open of a file.
    pub(super) fn close(&self, index: u32, open: Open) {
        let Some((file, _)) = open.write else { return };
        let identity = self.records.get(index).identity;
        self.changes.close(identity.volume, FileId(identity.device, identity.inode), file);
    }
}
