//! All keys: making and ending them, and what they count for.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_linux::errno::{Errno, Result};

use super::key::{Key, Payload, Serial};
use super::kind::Kind;

/// Settings (`/proc/sys/kernel/keys`).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most keys of a user.
    pub max_keys: u32,
    /// Most bytes of a user's keys.
    pub max_bytes: u32,
    /// Most keys of user 0.
    pub root_max_keys: u32,
    /// Most bytes of user 0's.
    pub root_max_bytes: u32,
    /// Seconds that a key which has ended stays in its keyrings.
    pub gc_delay: u32,
    /// Seconds after which a persistent keyring that nobody asks for goes.
    pub persistent_expiry: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_keys: 200,
            max_bytes: 20_000,
            root_max_keys: 1_000_000,
            root_max_bytes: 25_000_000,
            gc_delay: 300,
            persistent_expiry: 3 * 24 * 3600,
        }
    }
}

impl Limits {
    /// Keys and bytes of a user.
    pub(super) fn of(&self, uid: u32) -> (u32, u32) {
        if uid == 0 { (self.root_max_keys, self.root_max_bytes) } else { (self.max_keys, self.max_bytes) }
    }
}

/// How a new key counts for its user.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// It must have room.
    Within,
    /// It counts, and is made without room too.
    Beyond,
    /// It does not count.
    Free,
}

/// The keys of a user.
#[derive(Default)]
pub(super) struct Usage {
    /// All of them.
    pub(super) keys: usize,
    /// Those that count, and their bytes.
    pub(super) charged: usize,
    pub(super) bytes: usize,
}

/// All keys of a domain.
#[derive(Default)]
pub struct Store {
    pub(super) keys: BTreeMap<Serial, Key>,
    pub(super) users: BTreeMap<u32, Usage>,
    /// Keyrings by their names.
    pub(super) names: BTreeSet<(Arc<[u8]>, Serial)>,
    /// When keys that have ended are to be taken out of their keyrings.
    pub(super) due: BTreeSet<(u64, Serial)>,
    /// The keyrings of users, and those that stay when users have gone.
    pub(super) user_register: Option<Serial>,
    pub(super) persistent_register: Option<Serial>,
    /// Settings.
    pub limits: Limits,
}

/// Whom a new key belongs to.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) perm: u32,
}

impl Store {
    /// The key of this number. ENOKEY if there is none.
    pub fn key(&self, serial: Serial) -> Result<&Key> {
        self.keys.get(&serial).ok_or(Errno::ENOKEY)
    }

    pub(super) fn key_mut(&mut self, serial: Serial) -> Result<&mut Key> {
        self.keys.get_mut(&serial).ok_or(Errno::ENOKEY)
    }

    /// One more holds a key.
    pub fn hold(&mut self, serial: Serial) {
        if let Some(k) = self.keys.get_mut(&serial) {
            k.refs += 1;
        }
    }

    /// One less holds a key. The last one takes it along, and what only it held.
    pub fn release(&mut self, serial: Serial) {
        let mut left = alloc::vec![serial];
        while let Some(serial) = left.pop() {
            let Some(k) = self.keys.get_mut(&serial) else { continue };
            k.refs -= 1;
            if k.refs == 0 {
                self.end(serial, &mut left);
            }
        }
    }

    /// Ends a key that nobody holds; those it held are to be released.
    fn end(&mut self, serial: Serial, left: &mut Vec<Serial>) {
        let Some(mut key) = self.keys.remove(&serial) else { return };
        if let Some(at) = key.due {
            self.due.remove(&(at, serial));
        }
        if key.kind == Kind::Keyring {
            self.names.remove(&(key.description.clone(), serial));
        }
        if let Some(u) = self.users.get_mut(&key.payer) {
            u.keys -= 1;
            if key.charged {
                u.charged -= 1;
                u.bytes -= key.bytes;
            }
            if u.keys == 0 {
                self.users.remove(&key.payer);
            }
        }
        if let Some(links) = key.links_mut() {
            for child in core::mem::take(links).into_values() {
                if let Some(c) = self.keys.get_mut(&child) {
                    c.linked.remove(&serial);
                }
                left.push(child);
            }
        }
    }

    /// A number that no key has, from a random one.
    fn free_serial(&self, random: u32) -> Serial {
        let mut serial = (random >> 1).cast_signed().max(3);
        while self.keys.contains_key(&serial) {
            serial = if serial == Serial::MAX { 3 } else { serial + 1 };
        }
        serial
    }

    /// Makes an empty key, held once, by the caller.
    pub(super) fn make(
        &mut self,
        (kind, description): (Kind, &[u8]),
        owner: Owner,
        quota: Quota,
        random: u32,
    ) -> Result<Serial> {
        kind.check_description(description)?;
        let bytes = description.len() + 1;
        let (max_keys, max_bytes) = self.limits.of(owner.uid);
        let used = self.users.entry(owner.uid).or_default();
        let room = used.charged < max_keys as usize && used.bytes + bytes <= max_bytes as usize;
        if quota == Quota::Within && !room {
            if used.keys == 0 {
                self.users.remove(&owner.uid);
            }
            return Err(Errno::EDQUOT);
        }
        let charged = quota != Quota::Free;
        used.keys += 1;
        if charged {
            used.charged += 1;
            used.bytes += bytes;
        }
        let serial = self.free_serial(random);
        let description: Arc<[u8]> = description.into();
        let ring = kind == Kind::Keyring;
        if ring {
            self.names.insert((description.clone(), serial));
        }
        let key = Key {
            kind,
            description,
            payer: owner.uid,
            uid: owner.uid,
            gid: owner.gid,
            perm: owner.perm,
            payload: if ring { Payload::Links(BTreeMap::new()) } else { Payload::Nothing },
            len: 0,
            refused: None,
            expiry: None,
            revoked: false,
            invalid: false,
            closed: false,
            charged,
            bytes,
            refs: 1,
            linked: BTreeSet::new(),
            due: None,
        };
        self.keys.insert(serial, key);
        Ok(serial)
    }

    /// Has a key count for so many bytes more or less. EDQUOT if its user has no room.
    pub(super) fn recharge(&mut self, serial: Serial, less: usize, more: usize) -> Result<()> {
        let key = self.keys.get_mut(&serial).ok_or(Errno::ENOKEY)?;
        if !key.charged {
            return Ok(());
        }
        let (_, max) = self.limits.of(key.payer);
        let used = self.users.entry(key.payer).or_default();
        let bytes = used.bytes + more - less;
        if more > less && bytes > max as usize {
            return Err(Errno::EDQUOT);
        }
        used.bytes = bytes;
        key.bytes = key.bytes + more - less;
        Ok(())
    }

    /// Gives a key another content. EDQUOT if its user has no room.
    pub(super) fn fill(&mut self, serial: Serial, content: &Arc<[u8]>) -> Result<()> {
        let key = self.key(serial)?;
        let (kind, old) = (key.kind, key.len);
        let had = if matches!(key.payload, Payload::Bytes(_)) { kind.charge(old) } else { 0 };
        self.recharge(serial, had, kind.charge(content.len()))?;
        let key = self.key_mut(serial)?;
        key.payload = Payload::Bytes(content.clone());
        key.len = content.len();
        key.refused = None;
        self.expire_at(serial, None)
    }

    /// A key expires at this time, or never.
    pub(super) fn expire_at(&mut self, serial: Serial, at: Option<u64>) -> Result<()> {
        self.key_mut(serial)?.expiry = at;
        let delay = u64::from(self.limits.gc_delay);
        self.collect_at(serial, at.map(|t| t.saturating_add(delay)))
    }

    /// A key is to be taken out of its keyrings at this time, or not.
    pub(super) fn collect_at(&mut self, serial: Serial, at: Option<u64>) -> Result<()> {
        let old = core::mem::replace(&mut self.key_mut(serial)?.due, at);
        if let Some(old) = old {
            self.due.remove(&(old, serial));
        }
        self.due.extend(at.map(|at| (at, serial)));
        Ok(())
    }

    /// Takes keys whose time has come out of their keyrings. Each is taken once, so this is paid for by who made them.
    pub fn collect(&mut self, now: u64) {
        while let Some(&(at, serial)) = self.due.first() {
            if at > now {
                return;
            }
            self.due.pop_first();
            if let Some(k) = self.keys.get_mut(&serial) {
                k.due = None;
                self.take_out(serial);
            }
        }
    }

    /// Takes a key out of all keyrings.
    pub(super) fn take_out(&mut self, serial: Serial) {
        let Some(key) = self.keys.get(&serial) else { return };
        let (rings, index) = (key.linked.clone(), key.index());
        for ring in rings {
            self.cut(ring, &index);
        }
    }
}
