//! A store in a caller's hands: finding keys by the numbers that programs give.

use doppel_abi_linux::errno::{Errno, Result};

use super::find::Wanted;
use super::key::{Key, NO_GROUP, Serial, perm};
use super::kind::Kind;
use super::store::{Owner, Quota, Store};
use super::who::Who;

/// All keys, for one who calls.
pub struct Caller<'a> {
    /// The keys.
    pub store: &'a mut Store,
    /// Who calls.
    pub who: Who,
    /// The session keyring that it came with, which it lets go of itself.
    came_with: Option<Serial>,
}

/// What a caller wants to do with a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// All of these permissions.
    Perm(u32),
    /// Nothing with the key itself: any will do.
    Nothing,
    /// What is checked later.
    Later,
}

/// How a key is looked up.
#[derive(Clone, Copy, Default)]
pub struct Lookup {
    /// Keyrings of the caller that are named and not there are made.
    pub create: bool,
    /// A key that was refused will do.
    pub partial: bool,
}

impl Lookup {
    /// As they are.
    pub const PLAIN: Self = Self { create: false, partial: false };
    /// Made if need be.
    pub const CREATE: Self = Self { create: true, partial: false };
    /// Refused ones too.
    pub const PARTIAL: Self = Self { create: false, partial: true };
    /// Both.
    pub const CREATE_PARTIAL: Self = Self { create: true, partial: true };
}

/// A key that was looked up.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its number.
    pub serial: Serial,
    /// Whether the caller possesses it.
    pub possessed: bool,
}

/// Numbers that stand for keyrings of the caller.
mod special {
    pub(super) const THREAD: i32 = -1;
    pub(super) const PROCESS: i32 = -2;
    pub(super) const SESSION: i32 = -3;
    pub(super) const USER: i32 = -4;
    pub(super) const USER_SESSION: i32 = -5;
    pub(super) const AUTHORITY: i32 = -7;
    pub(super) const REQUESTOR: i32 = -8;
}

const POSSESSOR_ALL: u32 = perm::ALL << perm::POSSESSOR;
/// As of keyrings that their possessor may not give away.
const POSSESSOR_KEPT: u32 = (perm::ALL & !perm::SETATTR) << perm::POSSESSOR;
const USER_VIEW: u32 = perm::VIEW << perm::USER;
const USER_READ: u32 = perm::READ << perm::USER;

impl Store {
    /// The keyring of this name in a register of the kernel's; one that has ended is told as that.
    fn registered(&self, register: Option<Serial>, name: &[u8], now: u64) -> Result<Option<Serial>> {
        let ring = register.and_then(|r| self.key(r).ok()).and_then(Key::links);
        let Some(&serial) = ring.and_then(|l| l.get(&(Kind::Keyring, name.into()))) else { return Ok(None) };
        self.key(serial)?
            .validate(now)
            .map_err(|e| if e == Errno::ENOKEY { Errno::EKEYREVOKED } else { e })?;
        Ok(Some(serial))
    }

    /// The session keyring of a user, if there is one.
    pub(super) fn user_session(&self, uid: u32) -> Option<Serial> {
        let name = alloc::format!("_uid_ses.{uid}");
        self.registered(self.user_register, name.as_bytes(), 0).ok().flatten()
    }
}

impl Store {
    /// Makes the keyring of a new thread whose maker has one; it is held once.
    pub fn new_thread_ring(&mut self, uid: u32, gid: u32, random: u32) -> Result<Serial> {
        let owner = Owner { uid, gid, perm: POSSESSOR_ALL | USER_VIEW };
        self.make((Kind::Keyring, b"_tid"), owner, Quota::Beyond, random)
    }
}

impl<'a> Caller<'a> {
    /// One that has these keys in its hands.
    pub fn new(store: &'a mut Store, who: Who) -> Self {
        let came_with = who.rings.session;
        Self { store, who, came_with }
    }
}

impl Caller<'_> {
    /// Makes a keyring for the caller, held once.
    fn new_ring(&mut self, name: &[u8], perm: u32, quota: Quota) -> Result<Serial> {
        let owner = Owner { uid: self.who.uid, gid: self.who.gid, perm };
        self.store.make((Kind::Keyring, name), owner, quota, (self.who.random)())
    }

    /// A keyring that the kernel keeps in one of its registers, made with the register if need be. The register's link
    /// holds it.
    fn keep(&mut self, register: Serial, name: &[u8], owner: Owner, quota: Quota) -> Result<Serial> {
        if let Some(there) = self.store.registered(Some(register), name, self.who.now)? {
            return Ok(there);
        }
        let ring = self.store.make((Kind::Keyring, name), owner, quota, (self.who.random)())?;
        let kept = self.store.put(register, ring);
        self.store.release(ring);
        kept.map(|()| ring)
    }

    fn register(&mut self, name: &[u8], gid: u32, perm: u32) -> Result<Serial> {
        let owner = Owner { uid: 0, gid, perm };
        self.store.make((Kind::Keyring, name), owner, Quota::Free, (self.who.random)())
    }

    /// The keyring of the caller's user, and that of its session.
    pub(super) fn user_rings(&mut self) -> Result<(Serial, Serial)> {
        let register = match self.store.user_register {
            Some(r) => r,
            None => {
                let perm =
                    (perm::WRITE | perm::SEARCH) << perm::POSSESSOR | (perm::VIEW | perm::READ) << perm::USER;
                let r = self.register(b".user_reg", NO_GROUP, perm)?;
                *self.store.user_register.insert(r)
            }
        };
        let uid = self.who.uid;
        let owner = Owner { uid, gid: NO_GROUP, perm: POSSESSOR_KEPT | perm::ALL << perm::USER };
        let ring = self.keep(register, alloc::format!("_uid.{uid}").as_bytes(), owner, Quota::Within)?;
        let name = alloc::format!("_uid_ses.{uid}");
        let had = self.store.user_session(uid);
        let session = self.keep(register, name.as_bytes(), owner, Quota::Within)?;
        if had.is_none() {
            self.store.link(session, ring)?;
        }
        Ok((ring, session))
    }

    /// The keyring of a user that stays when the user has gone.
    pub(super) fn persistent_ring(&mut self, uid: u32) -> Result<Serial> {
        let perm = POSSESSOR_KEPT | USER_VIEW | USER_READ;
        let register = match self.store.persistent_register {
            Some(r) => r,
            None => {
                let r = self.register(b".persistent_register", 0, perm)?;
                *self.store.persistent_register.insert(r)
            }
        };
        let owner = Owner { uid, gid: NO_GROUP, perm };
        let name = alloc::format!("_persistent.{uid}");
        match self.keep(register, name.as_bytes(), owner, Quota::Free) {
            // One whose time is over is as good as gone.
            Err(Errno::EKEYEXPIRED | Errno::EKEYREVOKED) => {
                self.store.cut(register, &(Kind::Keyring, name.as_bytes().into()));
                self.keep(register, name.as_bytes(), owner, Quota::Free)
            }
            r => r,
        }
    }

    /// The caller's own keyring, made if there is none.
    pub fn thread_ring(&mut self) -> Result<Serial> {
        if let Some(ring) = self.who.rings.thread {
            return Ok(ring);
        }
        let (uid, gid, random) = (self.who.uid, self.who.gid, (self.who.random)());
        let ring = self.store.new_thread_ring(uid, gid, random)?;
        Ok(*self.who.rings.thread.insert(ring))
    }

    /// That of its process.
    pub fn process_ring(&mut self) -> Result<Serial> {
        if let Some(ring) = self.who.rings.process {
            return Ok(ring);
        }
        let ring = self.new_ring(b"_pid", POSSESSOR_ALL | USER_VIEW, Quota::Beyond)?;
        Ok(*self.who.rings.process.insert(ring))
    }

    /// Gives the caller another session keyring, which is held for it already.
    fn enter(&mut self, ring: Serial) {
        let old = self.who.rings.session.replace(ring);
        if let Some(old) = old.filter(|_| old != self.came_with) {
            self.store.release(old);
        }
    }

    /// Joins a session keyring: a new one without a name, or the one of this name, which is made if there is none that the
    /// caller may join. 0 if the caller is in it.
    pub fn join(&mut self, name: Option<&[u8]>) -> Result<Serial> {
        let Some(name) = name else {
            let quota = if self.who.rings.session.is_some() { Quota::Within } else { Quota::Beyond };
            let ring = self.new_ring(b"_ses", POSSESSOR_ALL | USER_VIEW | USER_READ, quota)?;
            self.enter(ring);
            return Ok(ring);
        };
        let there = self.store.names.range((name.into(), 0)..).take_while(|(n, _)| **n == *name);
        let mine = |serial: &Serial| {
            let live = self.store.key(*serial).is_ok_and(|k| k.validate(self.who.now).is_ok());
            live && self.store.allow(&self.who, *serial, false, perm::SEARCH).is_ok()
        };
        let ring = match there.map(|(_, serial)| *serial).find(mine) {
            Some(ring) if self.who.rings.session == Some(ring) => return Ok(0),
            Some(ring) => {
                self.store.hold(ring);
                ring
            }
            None => {
                let perm = POSSESSOR_ALL | USER_VIEW | USER_READ | perm::LINK << perm::USER;
                self.new_ring(name, perm, Quota::Within)?
            }
        };
        self.enter(ring);
        Ok(ring)
    }

    /// The caller's session keyring. One that only stands in for it is replaced if the caller means to use it.
    fn session_ring(&mut self, create: bool) -> Result<Serial> {
        let standing_in = self.store.user_session(self.who.uid);
        match self.who.rings.session {
            Some(ring) if !create || Some(ring) != standing_in => Ok(ring),
            Some(_) => self.join(None),
            None => {
                let (_, session) = self.user_rings()?;
                if create {
                    return self.join(None);
                }
                self.store.hold(session);
                self.enter(session);
                Ok(session)
            }
        }
    }

    /// The keyring that a special number stands for.
    fn special(&mut self, id: i32, create: bool) -> Result<Serial> {
        match id {
            special::THREAD if create => self.thread_ring(),
            special::THREAD => self.who.rings.thread.ok_or(Errno::ENOKEY),
            special::PROCESS if create => self.process_ring(),
            special::PROCESS => self.who.rings.process.ok_or(Errno::ENOKEY),
            special::SESSION => self.session_ring(create),
            special::USER => self.user_rings().map(|(ring, _)| ring),
            special::USER_SESSION => self.user_rings().map(|(_, session)| session),
            // Nobody is asked to make keys here, so nobody has the right to.
            special::AUTHORITY | special::REQUESTOR => Err(Errno::ENOKEY),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The key of a number, if the caller may do with it what it needs.
    pub fn lookup(&mut self, id: i32, how: Lookup, need: Need) -> Result<Found> {
        let found = if id > 0 {
            self.store.key(id)?;
            Found { serial: id, possessed: self.store.possesses(&self.who, id) }
        } else {
            Found { serial: self.special(id, how.create)?, possessed: true }
        };
        if need == Need::Nothing {
            return Ok(found);
        }
        let key = self.store.key(found.serial)?;
        if need != Need::Later {
            if let Some(why) = key.refused.filter(|_| !how.partial) {
                return Err(why);
            }
            key.validate(self.who.now)?;
        }
        if let Need::Perm(need) = need {
            self.allow(found, need)?;
        }
        Ok(found)
    }

    /// EACCES unless the caller may do all of `need` with a key it has found.
    pub(super) fn allow(&self, found: Found, need: u32) -> Result<()> {
        self.store.allow(&self.who, found.serial, found.possessed, need)
    }

    /// What is searched for by type and description.
    pub(super) fn wanted(kind: Kind, description: &[u8], possessed: bool) -> Wanted {
        Wanted { index: (kind, description.into()), exactly: None, alive: true, renewed: false, possessed }
    }
}
