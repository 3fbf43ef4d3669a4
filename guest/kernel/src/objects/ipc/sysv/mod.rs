//! System V IPC (`sysvipc(7)`): what shared memory, semaphores and message queues have in common.
//!
//! Key types: [`Registry`] (all objects of one kind by key and id), [`Perm`] (owner and mode).
//! Lock order: a registry → an object's permissions; an object's own state is a leaf.

pub mod msg;
pub mod namespace;
pub mod sem;
pub(crate) mod sem_state;
pub mod shm;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::arena;
use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use crate::core::subject::{Cred, subject};
use crate::objects::ipc::sysv::namespace::here;
use crate::{Errno, Result};

pub(crate) const IPC_PRIVATE: i32 = 0;

bitflags::bitflags! {
    /// Flags of the `*get` calls, with the permissions of what they make.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) struct GetFlags: u32 {
        const MODE = 0o777;
        const CREAT = 0o1000;
        const EXCL = 0o2000;
        /// `shmget`: in huge pages.
        const HUGETLB = 0o4000;
    }
}

impl GetFlags {
    /// Permissions that are asked for.
    fn mode(self) -> u32 {
        self.intersection(Self::MODE).bits()
    }
}

const CAP_IPC_OWNER: u32 = 15;
const CAP_SYS_ADMIN: u32 = 21;

/// Bits of an id that are its place in the table; the rest count its reuse.
const INDEX_BITS: u32 = 15;

pod_struct! {
    /// `struct ipc64_perm`.
    pub struct UserPerm {
        /// Key.
        pub key: i32,
        /// Owner.
        pub uid: u32,
        /// Owner's group.
        pub gid: u32,
        /// Creator.
        pub cuid: u32,
        /// Creator's group.
        pub cgid: u32,
        /// Permission bits and flags.
        pub mode: u32,
        /// Sequence number.
        pub seq: u16,
        /// Unused.
        pub pad: [u16; 3],
        /// Unused.
        pub unused: [u64; 2],
    }
}
const _: () = assert!(size_of::<UserPerm>() == 48, "struct ipc64_perm, <asm-generic/ipcbuf.h>");

/// Owner, creator and mode of an object.
#[derive(Clone, Copy)]
pub(crate) struct Perm {
    pub(crate) key: i32,
    pub(crate) id: i32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    cuid: u32,
    cgid: u32,
    pub(crate) mode: u32,
}

impl Perm {
    /// EACCES unless the caller has `want` (read 4, write 2).
    pub(crate) fn check(&self, want: u32) -> Result<()> {
        let c = subject().cred();
        let in_group = |g: u32| c.egid == g || c.groups.contains(&g);
        let granted = if c.euid == self.cuid || c.euid == self.uid {
            self.mode >> 6
        } else if in_group(self.cgid) || in_group(self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        if want & !granted & 7 == 0 || c.capable_in(here().user(), CAP_IPC_OWNER) {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    /// EPERM unless the caller may change or remove the object.
    pub(crate) fn check_owner(&self) -> Result<()> {
        let c: Arc<Cred> = subject().cred();
        let mine = c.euid == self.cuid || c.euid == self.uid || c.capable_in(here().user(), CAP_SYS_ADMIN);
        if mine { Ok(()) } else { Err(Errno::EPERM) }
    }

    pub(crate) fn to_user(self) -> UserPerm {
        let user = &subject().cred().user;
        UserPerm {
            key: self.key,
            uid: user.uid(self.uid),
            gid: user.gid(self.gid),
            cuid: user.uid(self.cuid),
            cgid: user.gid(self.cgid),
            mode: self.mode,
            seq: (self.id >> INDEX_BITS) as u16,
            ..UserPerm::default()
        }
    }

    /// IPC_SET; EINVAL for a user or group that the caller's user namespace does not have.
    pub(crate) fn set(&mut self, new: &UserPerm) -> Result<()> {
        let user = &subject().cred().user;
        let uid = user.kernel_uid(new.uid).ok_or(Errno::EINVAL)?;
        let gid = user.kernel_gid(new.gid).ok_or(Errno::EINVAL)?;
        (self.uid, self.gid) = (uid, gid);
        self.mode = (self.mode & !0o777) | (new.mode & 0o777);
        Ok(())
    }
}

/// What a registry holds.
pub(crate) trait Entry {
    fn perm(&self) -> &SpinLock<Perm>;
}

/// All objects of one kind.
pub(crate) struct Registry<T> {
    inner: SpinLock<Inner<T>>,
}

struct Inner<T> {
    map: BTreeMap<u32, Arc<T>>,
    seq: u32,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { inner: SpinLock::new(Inner { map: BTreeMap::new(), seq: 0 }) }
    }
}

impl<T: Entry> Registry<T> {
    /// The `*get` calls: finds the object of `key` or makes one. `fits` checks the request against an existing
    /// one.
    pub(crate) fn get(
        &self,
        key: i32,
        flags: GetFlags,
        max: usize,
        fits: impl FnOnce(&T) -> Result<()>,
        make: impl FnOnce(Perm) -> Result<T>,
    ) -> Result<i32> {
        let mut r = self.inner.lock();
        if key != IPC_PRIVATE {
            let found = r.map.values().find(|o| o.perm().lock().key == key);
            if let Some(o) = found {
                if flags.contains(GetFlags::CREAT | GetFlags::EXCL) {
                    return Err(Errno::EEXIST);
                }
                let p = *o.perm().lock();
                fits(o)?;
                let mode = flags.mode();
                p.check((mode >> 6 | mode >> 3 | mode) & 7)?;
                return Ok(p.id);
            }
            if !flags.contains(GetFlags::CREAT) {
                return Err(Errno::ENOENT);
            }
        }
        if r.map.len() >= max || arena::low() {
            return Err(Errno::ENOSPC);
        }
        let index = (0..).zip(r.map.keys()).find(|(i, k)| i != *k).map_or(r.map.len() as u32, |(i, _)| i);
        let id = ((r.seq << INDEX_BITS | index) & i32::MAX.unsigned_abs()).cast_signed();
        let c = subject().cred();
        let (uid, gid) = (c.euid, c.egid);
        let perm = Perm { key, id, uid, gid, cuid: uid, cgid: gid, mode: flags.mode() };
        let object = make(perm)?;
        r.seq = (r.seq + 1) & 0xffff;
        r.map.insert(index, Arc::new(object));
        Ok(id)
    }

    /// The object with an id: EINVAL if there is none, EIDRM if its place was taken by another.
    pub(crate) fn find(&self, id: i32) -> Result<Arc<T>> {
        let index = u32::try_from(id).map_err(|_| Errno::EINVAL)? & ((1 << INDEX_BITS) - 1);
        let o = self.inner.lock().map.get(&index).cloned().ok_or(Errno::EINVAL)?;
        if o.perm().lock().id == id { Ok(o) } else { Err(Errno::EIDRM) }
    }

    /// The object at a place of the table (`*_STAT`).
    pub(crate) fn at(&self, index: i32) -> Result<Arc<T>> {
        let index = u32::try_from(index).map_err(|_| Errno::EINVAL)?;
        self.inner.lock().map.get(&index).cloned().ok_or(Errno::EINVAL)
    }

    /// Takes an object out.
    pub(crate) fn remove(&self, id: i32) {
        let index = id.cast_unsigned() & ((1 << INDEX_BITS) - 1);
        let old = {
            let mut r = self.inner.lock();
            let same = r.map.get(&index).is_some_and(|o| o.perm().lock().id == id);
            if same { r.map.remove(&index) } else { None }
        };
        drop(old);
    }

    /// All objects.
    pub(crate) fn list(&self) -> Vec<Arc<T>> {
        self.inner.lock().map.values().cloned().collect()
    }

    /// The highest place in use (`*_INFO`).
    pub(crate) fn highest(&self) -> u64 {
        self.inner.lock().map.last_key_value().map_or(0, |(k, _)| u64::from(*k))
    }
}

/// Seconds since 1970, for the time stamps of the objects.
pub(crate) fn seconds() -> i64 {
    (crate::core::time::realtime_ns() / 1_000_000_000).cast_signed()
}
