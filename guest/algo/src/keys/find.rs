//! Searching keyrings.

use alloc::collections::BTreeSet;

use doppel_abi_linux::errno::{Errno, Result};

use super::key::{Index, NO_GROUP, Serial, perm};
use super::rings::DEPTH_MAX;
use super::store::Store;
use super::who::Who;

/// What is searched for.
pub(super) struct Wanted {
    pub(super) index: Index,
    /// The key itself, if only this one will do.
    pub(super) exactly: Option<Serial>,
    /// Whether keys that have ended are passed over. Who asks whether a key is possessed does not mind.
    pub(super) alive: bool,
    /// Whether one whose time is over is as good as none.
    pub(super) renewed: bool,
    /// Whether the searcher possesses what is found.
    pub(super) possessed: bool,
}

/// A search on its way.
struct Search<'a> {
    store: &'a Store,
    who: &'a Who,
    wanted: &'a Wanted,
    /// Keyrings that were searched, with the depth.
    seen: BTreeSet<(usize, Serial)>,
    /// What keeps the best of what was passed over from being found.
    result: Errno,
}

impl Store {
    /// Searches a keyring and those it links to. EAGAIN if there is no such key.
    pub(super) fn search(&self, who: &Who, ring: Serial, wanted: &Wanted) -> Result<Serial> {
        self.must_be_ring(ring)?;
        self.allow(who, ring, wanted.possessed, perm::SEARCH)?;
        let mut s = Search { store: self, who, wanted, seen: BTreeSet::new(), result: Errno::EAGAIN };
        if self.key(ring)?.index() == wanted.index {
            match s.consider(ring) {
                Some(found) => return Ok(found),
                None if s.result != Errno::EAGAIN => return Err(s.result),
                None => {}
            }
        }
        s.descend(ring, 0).ok_or(s.result)
    }

    /// Searches the keyrings of the caller: thread, process, session or, without one, the user's session. Which error is
    /// told where nothing is found: that a key was refused comes before that there is none, and that before all others.
    pub(super) fn search_own(&self, who: &Who, wanted: &Wanted) -> Result<Serial> {
        let session = who.rings.session.or_else(|| self.user_session(who.uid));
        let (mut told, mut other) = (None, Errno::EAGAIN);
        for ring in [who.rings.thread, who.rings.process, session].into_iter().flatten() {
            match self.search(who, ring, wanted) {
                Ok(found) => return Ok(found),
                Err(Errno::EAGAIN) => told = told.or(Some(Errno::EAGAIN)),
                Err(Errno::ENOKEY) => told = Some(Errno::ENOKEY),
                Err(e) => other = e,
            }
        }
        Err(told.unwrap_or(other))
    }

    /// Whether the caller possesses a key: finds it in its keyrings.
    pub(super) fn possesses(&self, who: &Who, serial: Serial) -> bool {
        let Ok(key) = self.key(serial) else { return false };
        let wanted = Wanted {
            index: key.index(),
            exactly: Some(serial),
            alive: false,
            renewed: false,
            possessed: true,
        };
        self.search_own(who, &wanted).is_ok()
    }

    /// EACCES unless the caller may do all of `need` with a key.
    pub(super) fn allow(&self, who: &Who, serial: Serial, possessed: bool, need: u32) -> Result<()> {
        let key = self.key(serial)?;
        let group = key.gid != NO_GROUP && key.perm >> perm::GROUP & perm::ALL != 0;
        let mut have = if key.uid == who.fsuid {
            key.perm >> perm::USER
        } else if group && who.in_group(key.gid) {
            key.perm >> perm::GROUP
        } else {
            key.perm
        };
        if possessed {
            have |= key.perm >> perm::POSSESSOR;
        }
        if have & need == need { Ok(()) } else { Err(Errno::EACCES) }
    }
}

impl Search<'_> {
    /// Whether a key of the right type and description is the one.
    fn consider(&mut self, serial: Serial) -> Option<Serial> {
        let key = self.store.key(serial).ok()?;
        if self.wanted.alive {
            if key.invalid || key.revoked {
                self.result = Errno::EKEYREVOKED;
                return None;
            }
            if key.expired(self.who.now) {
                if !self.wanted.renewed {
                    self.result = Errno::EKEYEXPIRED;
                }
                return None;
            }
        }
        if self.wanted.exactly.is_some_and(|s| s != serial) {
            return None;
        }
        if self.store.allow(self.who, serial, self.wanted.possessed, perm::SEARCH).is_err() {
            self.result = Errno::EACCES;
            return None;
        }
        if let Some(why) = key.refused.filter(|_| self.wanted.alive) {
            self.result = why;
            return None;
        }
        Some(serial)
    }

    /// Searches a keyring that is `depth` keyrings down.
    fn descend(&mut self, ring: Serial, depth: usize) -> Option<Serial> {
        let store = self.store;
        let key = store.key(ring).ok()?;
        if key.invalid || key.revoked || !self.seen.insert((depth, ring)) {
            return None;
        }
        if let Some(serial) = key.links().and_then(|l| l.get(&self.wanted.index)).copied()
            && let Some(found) = self.consider(serial)
        {
            return Some(found);
        }
        if depth >= DEPTH_MAX {
            return None;
        }
        for nested in store.nested(ring) {
            if store.allow(self.who, nested, self.wanted.possessed, perm::SEARCH).is_ok()
                && let Some(found) = self.descend(nested, depth + 1)
            {
                return Some(found);
            }
        }
        None
    }
}
