//! Who calls: identity and limits of the current thread, for the layers below processes.
//!
//! Key types: [`Cred`], [`Rlimits`], [`Subject`] (the current thread as those layers see it).

use alloc::sync::Arc;
use alloc::vec::Vec;

use core::ops::{Index, IndexMut};

use crate::core::hook::Hook;
use crate::core::namespace::user::{self, UserNamespace};
use crate::core::numbers::numbers;

/// Identity of a process (`credentials(7)`). Ids are the kernel's: those of the first user namespace.
#[allow(missing_docs)]
#[derive(Clone)]
pub struct Cred {
    pub ruid: u32,
    pub euid: u32,
    pub suid: u32,
    pub fsuid: u32,
    pub rgid: u32,
    pub egid: u32,
    pub sgid: u32,
    pub fsgid: u32,
    pub groups: Vec<u32>,
    /// Effective, permitted, inheritable, bounding and ambient capabilities (inside the domain only).
    pub cap_effective: u64,
    pub cap_permitted: u64,
    pub cap_inheritable: u64,
    pub cap_bounding: u64,
    pub cap_ambient: u64,
    pub securebits: u32,
    /// Where its capabilities count.
    pub user: Arc<UserNamespace>,
}

/// All capabilities of Linux up to CAP_CHECKPOINT_RESTORE (40).
pub const ALL_CAPS: u64 = (1 << 41) - 1;

impl Cred {
    /// The identity a domain's program starts with.
    pub fn new(uid: u32, gid: u32) -> Self {
        let caps = if uid == 0 { ALL_CAPS } else { 0 };
        Self {
            ruid: uid,
            euid: uid,
            suid: uid,
            fsuid: uid,
            rgid: gid,
            egid: gid,
            sgid: gid,
            fsgid: gid,
            groups: Vec::new(),
            cap_effective: caps,
            cap_permitted: caps,
            cap_inheritable: 0,
            cap_bounding: ALL_CAPS,
            cap_ambient: 0,
            securebits: 0,
            user: user::first().clone(),
        }
    }

    /// Whether `gid` is the file-system group or a supplementary one.
    pub fn in_group(&self, gid: u32) -> bool {
        self.fsgid == gid || self.groups.contains(&gid)
    }

    /// Whether the effective set has capability number `cap`, which counts in the own user namespace and below.
    #[inline]
    pub fn has(&self, cap: u32) -> bool {
        self.cap_effective & (1 << cap) != 0
    }

    /// Whether capability number `cap` is there for what concerns the whole domain: in the first user namespace.
    #[inline]
    pub fn capable(&self, cap: u32) -> bool {
        self.has(cap) && self.user.is_first()
    }

    /// Whether capability number `cap` is there for what belongs to the user namespace `target`: it counts in all
    /// below its own, and who made one has all of them there.
    #[inline]
    pub fn capable_in(&self, target: &UserNamespace, cap: u32) -> bool {
        if core::ptr::eq(target, &raw const *self.user) {
            self.has(cap)
        } else {
            self.capable_below(target, cap)
        }
    }

    fn capable_below(&self, target: &UserNamespace, cap: u32) -> bool {
        let mut at = target;
        while at.level() > self.user.level() {
            let Some(up) = at.above() else { break };
            if Arc::ptr_eq(up, &self.user) {
                return at.owner_uid() == self.euid || self.has(cap);
            }
            at = up;
        }
        false
    }

    /// Whether capability number `cap` is there for a file that belongs to `uid` and `gid`: the user namespace must
    /// have names for them.
    #[inline]
    pub fn capable_over(&self, uid: u32, gid: u32, cap: u32) -> bool {
        self.has(cap)
            && (self.user.is_first()
                || self.user.shown_uid(uid).is_some() && self.user.shown_gid(gid).is_some())
    }
}

/// One resource limit.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    pub cur: u64,
    pub max: u64,
}

numbers! {
    /// Resources of which there are limits (`getrlimit(2)`).
    #[allow(missing_docs)]
    pub enum Resource {
        Cpu = 0,
        Fsize = 1,
        Data = 2,
        Stack = 3,
        Core = 4,
        Rss = 5,
        Nproc = 6,
        Nofile = 7,
        Memlock = 8,
        As = 9,
        Locks = 10,
        Sigpending = 11,
        Msgqueue = 12,
        Nice = 13,
        Rtprio = 14,
        Rttime = 15,
    }
}

impl Rlimit {
    /// No limit.
    pub const INFINITY: u64 = u64::MAX;
}

/// The limits of a process, by [`Resource`].
#[derive(Clone, Copy)]
pub struct Rlimits([Rlimit; 16]);

impl Rlimits {
    /// No limits at all.
    pub const NONE: Self = Self([Rlimit { cur: Rlimit::INFINITY, max: Rlimit::INFINITY }; 16]);

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Rlimit> {
        self.0.iter()
    }
}

impl Index<Resource> for Rlimits {
    type Output = Rlimit;

    fn index(&self, resource: Resource) -> &Rlimit {
        &self.0[resource as usize]
    }
}

impl IndexMut<Resource> for Rlimits {
    fn index_mut(&mut self, resource: Resource) -> &mut Rlimit {
        &mut self.0[resource as usize]
    }
}

/// The current thread.
pub trait Subject: Send + Sync {
    /// Its process.
    fn pid(&self) -> i32;

    /// Its identity.
    fn cred(&self) -> Arc<Cred>;

    /// Soft value of a resource limit of its process.
    fn rlimit(&self, resource: Resource) -> u64;

    /// Sends it a signal, as from the kernel.
    fn raise(&self, signo: i32);
}

/// How the current thread is found.
#[derive(Clone, Copy)]
pub struct Current {
    /// The thread; none on an idle vCPU.
    pub subject: fn() -> Option<Arc<dyn Subject>>,
    /// Its process, 0 on an idle vCPU.
    pub pid: fn() -> i32,
    /// Its number, 0 on an idle vCPU.
    pub tid: fn() -> i32,
    /// RLIMIT_FSIZE of its process, no limit on an idle vCPU.
    pub size_limit: fn() -> u64,
    /// What it is told of a number of the kernel's, 0 for what is not in its PID namespace.
    pub shown: fn(i32) -> i32,
    /// The kernel's number for one that it gives.
    pub kernel: fn(i32) -> Option<i32>,
}

/// Set by the layer of processes.
pub static CURRENT: Hook<Current> = Hook::new();

/// The current thread. Panics on an idle vCPU.
pub fn subject() -> Arc<dyn Subject> {
    match (CURRENT.get().subject)() {
        Some(s) => s,
        None => panic!("no current thread on an idle vCPU"),
    }
}

/// The current process, 0 on an idle vCPU.
pub fn pid() -> i32 {
    (CURRENT.get().pid)()
}

/// What the current thread is told of a process, thread or group that the kernel knows by this number.
pub fn shown_pid(kernel: i32) -> i32 {
    (CURRENT.get().shown)(kernel)
}

/// The kernel's number for one that the current thread gives; none if nobody has it there.
pub fn kernel_pid(shown: i32) -> Option<i32> {
    (CURRENT.get().kernel)(shown)
}

/// The current thread's number, 0 on an idle vCPU.
pub fn tid() -> i32 {
    (CURRENT.get().tid)()
}
