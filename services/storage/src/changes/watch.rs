//! Files that a domain begins to watch, and those that it watches no more.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::fs::inotify::{self, WatchFlags};
use rustix::io::Errno;

use super::{Changes, Inner, Instance, MOST, Site};

impl Changes {
    /// Watches what `open` gives for these events, by a request of this number, unless a later one was heard; whether it does.
    ///
    /// # Errors
    /// ENOSPC: too many are; or what the host says.
    pub fn watch(&self, open: impl AsFd, site: Site, events: u32, number: u64) -> Result<bool, Errno> {
        let mut inner = self.inner();
        match inner.places.number(site.node) {
            Some(known) if known > number => return Ok(false),
            None if inner.places.len() >= MOST => return Err(Errno::NOSPC),
            _ => {}
        }
        if inner.inotify.is_none() {
            inner.inotify = Some(Instance::new(&self.descriptors, self.place.load(Ordering::Relaxed))?);
        }
        let watched = self.watch_in(&mut inner, open, site, (events, number));
        if inner.places.is_empty() {
            inner.inotify = None;
        }
        self.note(&inner);
        watched.map(|()| true)
    }

    fn watch_in(
        &self,
        inner: &mut Inner,
        open: impl AsFd,
        site: Site,
        (events, number): (u32, u64),
    ) -> Result<(), Errno> {
        let inotify = inner.inotify.clone().ok_or(Errno::IO)?;
        let share = self.descriptors.watches.take().ok_or(Errno::NOSPC)?;
        let wanted = WatchFlags::from_bits_retain(inner.places.wanted(&site, events));
        let wd = self.descriptors.watch(inotify.file.as_fd(), open.as_fd(), wanted)?;
        inner.places.enter(wd, site, (events, number), share);
        Ok(())
    }

    /// A node is watched no more, if no request of a larger number has it watched; whether that is so.
    pub fn unwatch(&self, node: u64, number: u64) -> bool {
        let mut inner = self.inner();
        if inner.places.number(node).is_some_and(|known| known > number) {
            return false;
        }
        if let (Some(wd), Some(inotify)) = (inner.places.leave(node), &inner.inotify) {
            // It is gone by itself if the file is.
            let _ = inotify::remove_watch(&inotify.file, wd);
        }
        if inner.places.is_empty() {
            // Others may want one.
            inner.inotify = None;
        }
        self.note(&inner);
        true
    }

    /// A predecessor has watched these, by node, for these events.
    pub fn were(&self, former: Vec<(u64, u32)>) {
        if !former.is_empty() {
            let mut inner = self.inner();
            (inner.former, inner.missed) = (former, true);
            self.set_told();
        }
    }

    /// One of those, until all are taken: then the domain is told that it has missed something.
    pub fn former(&self) -> Option<(u64, u32)> {
        let mut inner = self.inner();
        let next = inner.former.pop();
        if next.is_none() && std::mem::take(&mut inner.missed) {
            inner.lose();
            self.note(&inner);
        }
        next
    }
}
