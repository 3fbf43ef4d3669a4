//! Files that a domain watches; and what is heard of an operation of its own, which the guest kernel tells its programs itself.

use doppel_abi_service::storage::file_event::{
    ALL, ATTRIB, CREATE, DELETE, DELETE_SELF, MOVE_SELF, MOVED_FROM, MOVED_TO,
};
use doppel_abi_service::storage::{Operation, Request};
use rustix::fs::Statx;
use rustix::io::Errno;

use super::{Done, Result, Work};
use crate::changes::{FileId, Own, WRITTEN};
use crate::client::Client;

impl Client {
    /// Watches a file for these events.
    pub fn watch(&self, node: u64, events: u32, number: u64) -> Result<()> {
        let (name, site) = self.nodes().site(node)?;
        let changes = self.changes();
        if changes.watch(&*name, site, events, number)? {
            // It may have been given back meanwhile.
            let noted = self.nodes().set_watched(node, events);
            if noted.is_err() {
                changes.unwatch(node, number);
            }
            noted?;
        }
        Ok(())
    }

    /// A file is watched no more.
    pub fn unwatch(&self, request: &Request) {
        if self.changes().unwatch(request.node, request.b) {
            // One that was given back is watched by nobody.
            let _ = self.nodes().set_watched(request.node, 0);
        }
    }
}

impl Work<'_> {
    pub(super) fn watch(&mut self) -> Result<Done> {
        let events = u32::try_from(self.request.a).ok().filter(|a| *a != 0 && *a & !ALL == 0);
        self.client.watch(self.request.node, events.ok_or(Errno::INVAL)?, self.request.b)?;
        Ok(Done::default())
    }

    /// What is heard of this operation, if something is watched.
    pub(super) fn heard(&self) -> Option<Own> {
        let r = self.request;
        if !self.client.changes().any() {
            return None;
        }
        let nodes = self.nodes();
        let own = Own::of(nodes.volume_of(r.node).ok()?);
        let file = nodes.file_id(r.node).ok()?;
        drop(nodes);
        let first = |node, events, own: Own| Some(own.renames(node, self.first().ok()?.to_bytes(), events));
        match r.operation {
            // It gets its owner and mode once it is there.
            Operation::Make | Operation::Symlink => first(r.node, CREATE | ATTRIB, own),
            Operation::Link => first(r.other, CREATE, own.changes_itself(file, ATTRIB)),
            Operation::Unlink | Operation::RmDir => first(r.node, DELETE, own),
            Operation::Rename => {
                let moved = MOVED_FROM | MOVED_TO;
                let own = first(r.node, moved, own)?;
                Some(own.renames(r.other, self.second().ok()?.to_bytes(), moved))
            }
            Operation::Write
            | Operation::SetAttr
            | Operation::Allocate
            | Operation::SetXattr
            | Operation::RemoveXattr => Some(own.changes(file, WRITTEN)),
            _ => None,
        }
    }

    /// A file is about to lose this name by it.
    pub(super) fn loses_name(&self, s: &Statx) {
        self.also(s, ATTRIB | DELETE_SELF);
    }

    /// A file is about to have another name by it.
    pub(super) fn moves(&self, s: &Statx) {
        self.also(s, MOVE_SELF);
    }

    fn also(&self, s: &Statx, events: u32) {
        if let Some(own) = self.own {
            self.client.changes().also(own, FileId::of(s), events);
        }
    }

    /// What is heard of it has been.
    pub(super) fn was_heard(&mut self, done: bool) {
        if let Some(own) = self.own.take() {
            self.client.changes().ended(own, done);
        }
    }
}
