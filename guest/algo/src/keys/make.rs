//! Making keys, and finding them: add_key, request_key and what KEYCTL_ commands do with links.

use alloc::sync::Arc;

use doppel_abi_linux::errno::{Errno, Result};

use super::caller::{Caller, Found, Lookup, Need};
use super::find::Wanted;
use super::key::{Serial, perm};
use super::kind::Kind;
use super::store::{Owner, Quota};
use super::who::Destination;

/// Seconds that a key which nobody could make stays refused.
const REFUSED_SECONDS: u64 = 60;

/// What a new key allows.
fn default_perm(kind: Kind) -> u32 {
    let mut possessor = perm::VIEW | perm::SEARCH | perm::LINK | perm::SETATTR;
    if kind.readable() {
        possessor |= perm::READ;
    }
    if kind == Kind::Keyring || kind.updatable() {
        possessor |= perm::WRITE;
    }
    possessor << perm::POSSESSOR | perm::VIEW << perm::USER
}

impl Caller<'_> {
    fn owner(&self, kind: Kind) -> Owner {
        Owner { uid: self.who.fsuid, gid: self.who.fsgid, perm: default_perm(kind) }
    }

    /// `add_key(2)`: makes a key in a keyring, or gives the one that is there other content.
    pub fn add(
        &mut self,
        kind: Option<Kind>,
        description: Option<&[u8]>,
        content: &Arc<[u8]>,
        ring: i32,
    ) -> Result<Serial> {
        let Found { serial: ring, possessed } = self.lookup(ring, Lookup::CREATE, Need::Perm(perm::WRITE))?;
        let kind = kind.ok_or(Errno::ENODEV)?;
        self.store.must_be_ring(ring)?;
        kind.check_content(content.len())?;
        let description = description.ok_or(Errno::EINVAL)?;
        let index = (kind, description.into());
        self.store.link_room(ring, &index)?;
        self.store.must_be_open(ring)?;
        let there = self.store.key(ring)?.links().and_then(|l| l.get(&index)).copied();
        if let Some(there) = there.filter(|_| kind.updatable()) {
            let key = self.store.key(there)?;
            if !key.revoked && !key.invalid {
                self.allow(Found { serial: there, possessed }, perm::WRITE)?;
                self.store.fill(there, content)?;
                return Ok(there);
            }
        }
        let owner = self.owner(kind);
        let key = self.store.make((kind, description), owner, Quota::Within, (self.who.random)())?;
        let filled = if kind == Kind::Keyring { Ok(()) } else { self.store.fill(key, content) };
        let done = filled.and_then(|()| self.store.put(ring, key));
        self.store.release(key);
        done.map(|()| key)
    }

    /// `request_key(2)`: finds a key in the caller's keyrings. With `make` one that is not there is to be made; nobody
    /// does that here (as where `/sbin/request-key` is missing), which is remembered for a while.
    pub fn request(
        &mut self,
        kind: Option<Kind>,
        description: &[u8],
        make: bool,
        ring: i32,
    ) -> Result<Serial> {
        let ring = match ring {
            0 => None,
            ring => Some(self.lookup(ring, Lookup::CREATE, Need::Perm(perm::WRITE))?.serial),
        };
        let kind = kind.ok_or(Errno::ENOKEY)?;
        let wanted = Wanted { renewed: true, ..Self::wanted(kind, description, true) };
        match self.store.search_own(&self.who, &wanted) {
            Ok(serial) => {
                if let Some(ring) = ring {
                    self.allow(Found { serial, possessed: true }, perm::LINK)?;
                    self.store.link(ring, serial)?;
                }
                Ok(serial)
            }
            Err(Errno::EAGAIN) if make => Err(self.refuse(kind, description, ring)),
            Err(Errno::EAGAIN) => Err(Errno::ENOKEY),
            Err(e) => Err(e),
        }
    }

    /// Notes that a key could not be made. Value: what the caller is told.
    fn refuse(&mut self, kind: Kind, description: &[u8], ring: Option<Serial>) -> Errno {
        if kind == Kind::Keyring {
            return Errno::EPERM;
        }
        let noted = self.note_refusal(kind, description, ring);
        noted.err().unwrap_or(Errno::ENOENT)
    }

    fn note_refusal(&mut self, kind: Kind, description: &[u8], ring: Option<Serial>) -> Result<()> {
        let ring = match ring {
            Some(ring) => ring,
            None => self.destination()?,
        };
        let owner = self.owner(kind);
        let key = self.store.make((kind, description), owner, Quota::Within, (self.who.random)())?;
        let linked = self.store.link(ring, key);
        if let Ok(k) = self.store.key_mut(key) {
            k.refused = Some(Errno::ENOKEY);
        }
        let noted = self.store.expire_at(key, Some(self.who.now + REFUSED_SECONDS));
        self.store.release(key);
        linked.and(noted)
    }

    /// Where what is requested goes if nothing is said.
    fn destination(&mut self) -> Result<Serial> {
        let rings = self.who.rings;
        let (process, session) = (rings.process, rings.session);
        let first = match self.who.destination {
            Destination::First | Destination::Thread | Destination::Requestor => {
                rings.thread.or(process).or(session)
            }
            Destination::Process => process.or(session),
            Destination::Session => session,
            Destination::User => Some(self.user_rings()?.0),
            Destination::UserSession => Some(self.user_rings()?.1),
        };
        let ring = match first {
            Some(ring) => ring,
            None => self.user_rings()?.1,
        };
        self.allow(Found { serial: ring, possessed: true }, perm::WRITE)?;
        Ok(ring)
    }

    /// KEYCTL_SEARCH: finds a key in a keyring, and links it into another one, if one is given.
    pub fn find(&mut self, ring: i32, kind: Option<Kind>, description: &[u8], into: i32) -> Result<Serial> {
        let ring = self.lookup(ring, Lookup::PLAIN, Need::Perm(perm::SEARCH))?;
        let into = match into {
            0 => None,
            into => Some(self.lookup(into, Lookup::CREATE, Need::Perm(perm::WRITE))?.serial),
        };
        let kind = kind.ok_or(Errno::ENOKEY)?;
        let wanted = Self::wanted(kind, description, ring.possessed);
        let found = self.store.search(&self.who, ring.serial, &wanted);
        let serial = found.map_err(|e| if e == Errno::EAGAIN { Errno::ENOKEY } else { e })?;
        if let Some(into) = into {
            self.allow(Found { serial, possessed: ring.possessed }, perm::LINK)?;
            self.store.link(into, serial)?;
        }
        Ok(serial)
    }

    /// KEYCTL_LINK.
    pub fn link(&mut self, key: i32, ring: i32) -> Result<()> {
        let ring = self.lookup(ring, Lookup::CREATE, Need::Perm(perm::WRITE))?.serial;
        let key = self.lookup(key, Lookup::CREATE, Need::Perm(perm::LINK))?.serial;
        self.store.link(ring, key)
    }

    /// KEYCTL_UNLINK: takes the link to a key of this type and description out of a keyring.
    pub fn unlink(&mut self, key: i32, ring: i32) -> Result<()> {
        let ring = self.lookup(ring, Lookup::PLAIN, Need::Perm(perm::WRITE))?.serial;
        let key = self.lookup(key, Lookup::PARTIAL, Need::Nothing)?.serial;
        self.store.must_be_ring(ring)?;
        let index = self.store.key(key)?.index();
        if self.store.cut(ring, &index) { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// KEYCTL_MOVE; with `exclusive` it takes nobody's place.
    pub fn shift(&mut self, key: i32, from: i32, to: i32, exclusive: bool) -> Result<()> {
        let key = self.lookup(key, Lookup::CREATE, Need::Perm(perm::LINK))?.serial;
        let from = self.lookup(from, Lookup::PLAIN, Need::Perm(perm::WRITE))?.serial;
        let to = self.lookup(to, Lookup::CREATE, Need::Perm(perm::WRITE))?.serial;
        if from == to {
            return Ok(());
        }
        self.store.must_be_ring(from)?;
        self.store.must_be_ring(to)?;
        let index = self.store.key(key)?.index();
        let has = |ring| Ok(self.store.key(ring)?.links().is_some_and(|l| l.contains_key(&index)));
        if !has(from)? {
            return Err(Errno::ENOENT);
        }
        let taken = has(to)?;
        self.store.link_room(to, &index)?;
        if taken && exclusive {
            return Err(Errno::EEXIST);
        }
        self.store.link(to, key)?;
        self.store.cut(from, &index);
        Ok(())
    }

    /// KEYCTL_CLEAR.
    pub fn clear(&mut self, ring: i32) -> Result<()> {
        let ring = self.lookup(ring, Lookup::CREATE, Need::Perm(perm::WRITE))?.serial;
        self.store.must_be_ring(ring)?;
        self.store.empty(ring);
        Ok(())
    }
}
