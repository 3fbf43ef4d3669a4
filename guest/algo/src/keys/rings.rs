//! Links of keyrings to keys.

use alloc::collections::BTreeSet;

use doppel_abi_linux::errno::{Errno, Result};

use super::key::{Index, Serial};
use super::kind::Kind;
use super::store::Store;

/// How many keyrings deep a keyring may be nested, and is searched.
pub(super) const DEPTH_MAX: usize = 6;
/// What a link counts for.
const LINK_BYTES: usize = 4;

impl Store {
    /// ENOTDIR unless this is a keyring.
    pub(super) fn must_be_ring(&self, ring: Serial) -> Result<()> {
        if self.key(ring)?.kind == Kind::Keyring { Ok(()) } else { Err(Errno::ENOTDIR) }
    }

    /// Whether a keyring may be given a link of this name; EPERM if it is closed, EDQUOT if there is no room.
    pub(super) fn link_room(&mut self, ring: Serial, index: &Index) -> Result<()> {
        self.must_be_ring(ring)?;
        let key = self.key(ring)?;
        if key.revoked {
            return Err(Errno::EKEYREVOKED);
        }
        if key.links().is_some_and(|l| l.contains_key(index)) {
            return Ok(());
        }
        self.recharge(ring, 0, LINK_BYTES)?;
        self.recharge(ring, LINK_BYTES, 0)
    }

    /// EPERM if a keyring takes no more links.
    pub(super) fn must_be_open(&self, ring: Serial) -> Result<()> {
        if self.key(ring)?.closed { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Links a key into a keyring, in place of one of the same type and description.
    pub(super) fn link(&mut self, ring: Serial, key: Serial) -> Result<()> {
        let index = self.key(key)?.index();
        self.link_room(ring, &index)?;
        self.must_be_open(ring)?;
        self.must_not_circle(ring, key)?;
        self.put(ring, key)
    }

    /// Links without a look at anything but room.
    pub(super) fn put(&mut self, ring: Serial, key: Serial) -> Result<()> {
        let index = self.key(key)?.index();
        let old = self.key(ring)?.links().ok_or(Errno::ENOTDIR)?.get(&index).copied();
        if old == Some(key) {
            return Ok(());
        }
        if old.is_none() {
            self.recharge(ring, 0, LINK_BYTES)?;
        }
        let k = self.key_mut(key)?;
        k.refs += 1;
        k.linked.insert(ring);
        if let Some(links) = self.key_mut(ring)?.links_mut() {
            links.insert(index, key);
        }
        if let Some(old) = old {
            if let Ok(k) = self.key_mut(old) {
                k.linked.remove(&ring);
            }
            self.release(old);
        }
        Ok(())
    }

    /// Takes the link of this type and description out of a keyring. False if there is none.
    pub(super) fn cut(&mut self, ring: Serial, index: &Index) -> bool {
        let links = self.keys.get_mut(&ring).and_then(|r| r.links_mut());
        let Some(key) = links.and_then(|l| l.remove(index)) else { return false };
        if let Some(k) = self.keys.get_mut(&key) {
            k.linked.remove(&ring);
        }
        // Less always fits.
        let _ = self.recharge(ring, LINK_BYTES, 0);
        self.release(key);
        true
    }

    /// Takes all links out of a keyring.
    pub(super) fn empty(&mut self, ring: Serial) {
        let Some(links) = self.keys.get_mut(&ring).and_then(|r| r.links_mut()) else { return };
        let all = core::mem::take(links);
        let _ = self.recharge(ring, LINK_BYTES * all.len(), 0);
        for key in all.into_values() {
            if let Some(k) = self.keys.get_mut(&key) {
                k.linked.remove(&ring);
            }
            self.release(key);
        }
    }

    /// The keyrings that a keyring links to.
    pub(super) fn nested(&self, ring: Serial) -> impl Iterator<Item = Serial> + '_ {
        let links = self.keys.get(&ring).and_then(|r| r.links());
        links.into_iter().flatten().take_while(|((kind, _), _)| *kind == Kind::Keyring).map(|(_, s)| *s)
    }

    /// A keyring must not be reached from one that is linked into it (EDEADLK), and nothing is nested too deeply (ELOOP).
    fn must_not_circle(&self, ring: Serial, key: Serial) -> Result<()> {
        if self.key(key)?.kind != Kind::Keyring {
            return Ok(());
        }
        self.look_for(ring, key, 0, &mut BTreeSet::new())
    }

    /// Looks from `at`, `depth` keyrings down. What was seen at one depth is not looked at again.
    fn look_for(
        &self,
        ring: Serial,
        at: Serial,
        depth: usize,
        seen: &mut BTreeSet<(usize, Serial)>,
    ) -> Result<()> {
        if at == ring {
            return Err(Errno::EDEADLK);
        }
        let key = self.key(at)?;
        if key.invalid || key.revoked || !seen.insert((depth, at)) {
            return Ok(());
        }
        let index = self.key(ring)?.index();
        if key.links().is_some_and(|l| l.get(&index) == Some(&ring)) {
            return Err(Errno::EDEADLK);
        }
        for nested in self.nested(at) {
            if depth >= DEPTH_MAX {
                return Err(Errno::ELOOP);
            }
            self.look_for(ring, nested, depth + 1, seen)?;
        }
        Ok(())
    }
}
