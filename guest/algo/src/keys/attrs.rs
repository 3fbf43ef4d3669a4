//! Attributes and content of keys: what KEYCTL_ commands do with one key.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_linux::errno::{Errno, Result};

use super::caller::{Caller, Lookup, Need};
use super::key::{Payload, Serial, perm};
use super::kind::Kind;
use super::store::Store;

/// What is read of a key.
pub enum Content {
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// The numbers of the keys in a keyring.
    Links(Vec<Serial>),
}

impl Store {
    /// Changes whom a keyring belongs to whose thread has got another identity.
    pub fn follow(&mut self, ring: Serial, uid: u32, gid: u32) {
        if let Some(k) = self.keys.get_mut(&ring) {
            (k.uid, k.gid) = (uid, gid);
        }
    }

    fn revoke(&mut self, serial: Serial, now: u64) -> Result<()> {
        let key = self.key_mut(serial)?;
        key.revoked = true;
        if key.kind == Kind::Keyring {
            self.empty(serial);
        } else {
            let had = if matches!(key.payload, Payload::Bytes(_)) { key.kind.charge(key.len) } else { 0 };
            (key.payload, key.len) = (Payload::Nothing, 0);
            self.recharge(serial, had, 0)?;
        }
        let at = now + u64::from(self.limits.gc_delay);
        self.collect_at(serial, Some(at))
    }

    /// Has a key count for another user. EDQUOT if there is no room.
    fn pass_on(&mut self, serial: Serial, uid: u32) -> Result<()> {
        let key = self.key(serial)?;
        let (charged, bytes, payer) = (key.charged, key.bytes, key.payer);
        if payer != uid {
            let (max_keys, max_bytes) = self.limits.of(uid);
            let used = self.users.entry(uid).or_default();
            let room = used.charged < max_keys as usize && used.bytes + bytes <= max_bytes as usize;
            if charged && !room {
                if used.keys == 0 {
                    self.users.remove(&uid);
                }
                return Err(Errno::EDQUOT);
            }
            used.keys += 1;
            if charged {
                (used.charged, used.bytes) = (used.charged + 1, used.bytes + bytes);
            }
            if let Some(old) = self.users.get_mut(&payer) {
                old.keys -= 1;
                if charged {
                    (old.charged, old.bytes) = (old.charged - 1, old.bytes - bytes);
                }
                if old.keys == 0 {
                    self.users.remove(&payer);
                }
            }
        }
        let key = self.key_mut(serial)?;
        (key.uid, key.payer) = (uid, uid);
        Ok(())
    }
}

impl Caller<'_> {
    /// KEYCTL_GET_KEYRING_ID.
    pub fn id(&mut self, id: i32, create: bool) -> Result<Serial> {
        let how = if create { Lookup::CREATE } else { Lookup::PLAIN };
        Ok(self.lookup(id, how, Need::Perm(perm::SEARCH))?.serial)
    }

    /// KEYCTL_UPDATE.
    pub fn update(&mut self, id: i32, content: &Arc<[u8]>) -> Result<()> {
        let key = self.lookup(id, Lookup::PLAIN, Need::Perm(perm::WRITE))?.serial;
        let kind = self.store.key(key)?.kind;
        if !kind.updatable() {
            return Err(Errno::EOPNOTSUPP);
        }
        kind.check_content(content.len())?;
        self.store.fill(key, content)
    }

    /// KEYCTL_REVOKE.
    pub fn revoke(&mut self, id: i32) -> Result<()> {
        let key = match self.lookup(id, Lookup::PLAIN, Need::Perm(perm::WRITE)) {
            Err(Errno::EACCES) => self.lookup(id, Lookup::PLAIN, Need::Perm(perm::SETATTR)),
            r => r,
        };
        self.store.revoke(key?.serial, self.who.now)
    }

    /// KEYCTL_INVALIDATE: it is gone at once.
    pub fn invalidate(&mut self, id: i32) -> Result<()> {
        let key = self.lookup(id, Lookup::PLAIN, Need::Perm(perm::SEARCH))?.serial;
        self.store.key_mut(key)?.invalid = true;
        self.store.take_out(key);
        Ok(())
    }

    /// KEYCTL_CHOWN; ids that are none stay.
    pub fn chown(&mut self, id: i32, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        if uid.is_none() && gid.is_none() {
            return Ok(());
        }
        let serial = self.lookup(id, Lookup::CREATE_PARTIAL, Need::Perm(perm::SETATTR))?.serial;
        let key = self.store.key(serial)?;
        let to_other = uid.is_some_and(|u| u != key.uid);
        let to_group = gid.is_some_and(|g| g != key.gid && !self.who.in_group(g));
        if (to_other || to_group) && !self.who.admin {
            return Err(Errno::EACCES);
        }
        if let Some(uid) = uid.filter(|_| to_other) {
            self.store.pass_on(serial, uid)?;
        }
        if let Some(gid) = gid {
            self.store.key_mut(serial)?.gid = gid;
        }
        Ok(())
    }

    /// KEYCTL_SETPERM.
    pub fn set_perm(&mut self, id: i32, perm: u32) -> Result<()> {
        if perm & !perm::MASK != 0 {
            return Err(Errno::EINVAL);
        }
        let serial = self.lookup(id, Lookup::CREATE_PARTIAL, Need::Perm(perm::SETATTR))?.serial;
        let (admin, fsuid) = (self.who.admin, self.who.fsuid);
        let key = self.store.key_mut(serial)?;
        if !admin && key.uid != fsuid {
            return Err(Errno::EACCES);
        }
        key.perm = perm;
        Ok(())
    }

    /// KEYCTL_SET_TIMEOUT; 0 for none.
    pub fn set_timeout(&mut self, id: i32, seconds: u32) -> Result<()> {
        let serial = self.lookup(id, Lookup::CREATE_PARTIAL, Need::Perm(perm::SETATTR))?.serial;
        let at = (seconds > 0).then(|| self.who.now + u64::from(seconds));
        self.store.expire_at(serial, at)
    }

    /// KEYCTL_DESCRIBE, with the NUL at the end.
    pub fn describe(&mut self, id: i32) -> Result<Vec<u8>> {
        let serial = self.lookup(id, Lookup::PARTIAL, Need::Perm(perm::VIEW))?.serial;
        let key = self.store.key(serial)?;
        let (uid, gid) = key.shown_ids();
        let mut text = format!("{};{uid};{gid};{:08x};", key.kind.name(), key.perm).into_bytes();
        text.extend_from_slice(&key.description);
        text.push(0);
        Ok(text)
    }

    /// KEYCTL_GET_SECURITY: whether the caller may ask. There is no label.
    pub fn label(&mut self, id: i32) -> Result<()> {
        self.lookup(id, Lookup::PARTIAL, Need::Perm(perm::VIEW)).map(drop)
    }

    /// KEYCTL_READ. What the caller possesses and may search it may read.
    pub fn read(&mut self, id: i32) -> Result<Content> {
        let found = self.lookup(id, Lookup::PLAIN, Need::Later).map_err(|_| Errno::ENOKEY)?;
        let key = self.store.key(found.serial)?;
        if let Some(why) = key.refused {
            return Err(why);
        }
        match self.allow(found, perm::READ) {
            Err(Errno::EACCES) if found.possessed => {}
            r => r?,
        }
        let key = self.store.key(found.serial)?;
        if !key.kind.readable() {
            return Err(Errno::EOPNOTSUPP);
        }
        key.validate(self.who.now)?;
        Ok(match &key.payload {
            Payload::Bytes(b) => Content::Bytes(b.clone()),
            Payload::Links(l) => Content::Links(l.values().copied().collect()),
            Payload::Nothing => Content::Bytes(Arc::from(&[][..])),
        })
    }

    /// KEYCTL_RESTRICT_KEYRING: a keyring takes no more links. None of the types here knows a rule of its own, so one that
    /// is named is refused.
    pub fn restrict(&mut self, id: i32, kind: Option<Option<Kind>>) -> Result<()> {
        let ring = self.lookup(id, Lookup::PLAIN, Need::Perm(perm::SETATTR))?.serial;
        self.store.must_be_ring(ring)?;
        match kind {
            Some(None) => return Err(Errno::ENOKEY),
            Some(Some(_)) => return Err(Errno::ENOENT),
            None => {}
        }
        let key = self.store.key_mut(ring)?;
        if core::mem::replace(&mut key.closed, true) { Err(Errno::EEXIST) } else { Ok(()) }
    }

    /// KEYCTL_GET_PERSISTENT: links a user's persistent keyring, which lives on for a while from now, into a keyring.
    pub fn persistent(&mut self, uid: u32, into: i32) -> Result<Serial> {
        let into = self.lookup(into, Lookup::CREATE, Need::Perm(perm::WRITE))?.serial;
        self.store.must_be_ring(into)?;
        let ring = self.persistent_ring(uid)?;
        self.store.allow(&self.who, ring, true, perm::LINK)?;
        self.store.link(into, ring)?;
        let at = self.who.now + u64::from(self.store.limits.persistent_expiry);
        self.store.expire_at(ring, Some(at))?;
        Ok(ring)
    }

    /// The session keyring to be given to the parent.
    pub fn session_for_parent(&mut self) -> Result<Serial> {
        const SESSION: i32 = -3;
        Ok(self.lookup(SESSION, Lookup::PLAIN, Need::Perm(perm::LINK))?.serial)
    }
}
