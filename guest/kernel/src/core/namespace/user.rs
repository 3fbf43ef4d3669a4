//! User namespaces (`user_namespaces(7)`).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::ids::{Extent, IdMap};
use super::{Kind, Namespace, fresh};
use crate::core::part::Part;
use crate::core::subject::Cred;
use crate::{Errno, Result};

/// Most namespaces above one.
const DEPTH: u32 = 32;
/// The most namespaces of one kind that a domain may have, unless /proc/sys/user says otherwise.
const MOST: u32 = 4096;
/// What ids without a name in a namespace are shown as.
pub const OVERFLOW: u32 = 65534;
/// No id.
const NONE: u32 = u32::MAX;
/// The map of the first namespace.
const ALL: [Extent; 1] = [Extent { first: 0, lower: 0, count: u32::MAX }];

/// A user namespace: users and groups of its own, and capabilities that count in it.
pub struct UserNamespace {
    number: u64,
    parent: Option<Arc<UserNamespace>>,
    level: u32,
    owner: u32,
    group: u32,
    /// Users.
    pub uids: IdMap,
    /// Groups.
    pub gids: IdMap,
    /// Projects of quotas.
    pub projects: IdMap,
    setgroups: AtomicBool,
    parent_could_setfcap: bool,
    used: [AtomicU32; Kind::COUNT],
    most: [AtomicU32; Kind::COUNT],
}

/// The first user namespace.
pub(crate) struct First(Arc<UserNamespace>);

/// The domain's.
pub(crate) static FIRST: Part<First> = Part::new();

impl Default for First {
    fn default() -> Self {
        Self(Arc::new(UserNamespace {
            number: Kind::User.first(),
            parent: None,
            level: 0,
            owner: 0,
            group: 0,
            uids: IdMap::default(),
            gids: IdMap::default(),
            projects: IdMap::default(),
            setgroups: AtomicBool::new(true),
            parent_could_setfcap: true,
            used: Default::default(),
            most: [const { AtomicU32::new(MOST) }; Kind::COUNT],
        }))
    }
}

/// The first user namespace, in which a domain's program starts.
pub fn first() -> &'static Arc<UserNamespace> {
    &FIRST.get().0
}

/// Whether the domain has namespaces of this kind besides the first: while it has none, nobody need look in which he is.
#[inline]
pub fn any(kind: Kind) -> bool {
    first().used[kind as usize].load(Ordering::Relaxed) != 0
}

impl UserNamespace {
    /// One below that of `maker`, who owns it: ENOSPC if it would lie too deep or be one too many, EPERM if its maker
    /// has no id in its own.
    pub fn new(maker: &Cred) -> Result<Arc<Self>> {
        const SETFCAP: u32 = 31;
        let parent = &maker.user;
        if parent.level > DEPTH {
            return Err(Errno::ENOSPC);
        }
        parent.charge(Kind::User)?;
        let made = Arc::new(Self {
            number: fresh(),
            parent: Some(parent.clone()),
            level: parent.level + 1,
            owner: maker.euid,
            group: maker.egid,
            uids: IdMap::default(),
            gids: IdMap::default(),
            projects: IdMap::default(),
            setgroups: AtomicBool::new(parent.setgroups.load(Ordering::SeqCst)),
            parent_could_setfcap: maker.has(SETFCAP),
            used: Default::default(),
            most: [const { AtomicU32::new(i32::MAX.unsigned_abs()) }; Kind::COUNT],
        });
        // What was made is counted, and given back by its end.
        if parent.shown_uid(maker.euid).is_none() || parent.shown_gid(maker.egid).is_none() {
            return Err(Errno::EPERM);
        }
        Ok(made)
    }

    /// Whether it is the first.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.parent.is_none()
    }

    /// The one it was made in.
    pub fn above(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// How many are above it.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// The user who made it, by the kernel's id.
    pub fn owner_uid(&self) -> u32 {
        self.owner
    }

    /// The group of who made it, by the kernel's id.
    pub fn owner_gid(&self) -> u32 {
        self.group
    }

    /// Whether who made it had CAP_SETFCAP.
    pub fn parent_could_setfcap(&self) -> bool {
        self.parent_could_setfcap
    }

    /// Whether setgroups is allowed as far as /proc/PID/setgroups says.
    pub fn setgroups(&self) -> bool {
        self.setgroups.load(Ordering::SeqCst)
    }

    /// Whether setgroups works: not before there are groups.
    pub fn may_setgroups(&self) -> bool {
        self.is_first() || self.gids.is_set() && self.setgroups()
    }

    /// Takes setgroups away; EPERM once there is a map of groups.
    pub fn deny_setgroups(&self) -> Result<()> {
        if self.is_first() || self.gids.is_set() {
            return Err(Errno::EPERM);
        }
        self.setgroups.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Whether it is `other` or below it.
    pub fn is_within(&self, other: &Self) -> bool {
        let mut at = self;
        loop {
            if core::ptr::eq(at, other) {
                return true;
            }
            let Some(up) = &at.parent else { return false };
            at = up;
        }
    }

    /// Lines of one of its maps.
    pub fn extents<'a>(&self, map: &'a IdMap) -> &'a [Extent] {
        if self.is_first() { &ALL } else { map.extents() }
    }

    /// The kernel's user for one of this namespace's; none if it has no such user.
    #[inline]
    pub fn kernel_uid(&self, id: u32) -> Option<u32> {
        if self.is_first() { (id != NONE).then_some(id) } else { self.uids.kernel(id) }
    }

    /// As [`Self::kernel_uid`], of groups.
    #[inline]
    pub fn kernel_gid(&self, id: u32) -> Option<u32> {
        if self.is_first() { (id != NONE).then_some(id) } else { self.gids.kernel(id) }
    }

    /// This namespace's user for one of the kernel's; none if it has no such user.
    #[inline]
    pub fn shown_uid(&self, id: u32) -> Option<u32> {
        if self.is_first() { Some(id) } else { self.uids.shown(id) }
    }

    /// As [`Self::shown_uid`], of groups.
    #[inline]
    pub fn shown_gid(&self, id: u32) -> Option<u32> {
        if self.is_first() { Some(id) } else { self.gids.shown(id) }
    }

    /// What programs in it are told of one of the kernel's users.
    #[inline]
    pub fn uid(&self, id: u32) -> u32 {
        self.shown_uid(id).unwrap_or(OVERFLOW)
    }

    /// As [`Self::uid`], of groups.
    #[inline]
    pub fn gid(&self, id: u32) -> u32 {
        self.shown_gid(id).unwrap_or(OVERFLOW)
    }

    /// Counts one more namespace of a kind here and in all above; ENOSPC if that is too many somewhere.
    pub(super) fn charge(&self, kind: Kind) -> Result<()> {
        let mut at = Some(self);
        while let Some(ns) = at {
            let most = ns.most[kind as usize].load(Ordering::Relaxed);
            if ns.used[kind as usize].fetch_add(1, Ordering::SeqCst) >= most {
                // Take back what was counted so far, here too.
                let mut undo = self;
                loop {
                    undo.used[kind as usize].fetch_sub(1, Ordering::SeqCst);
                    match &undo.parent {
                        Some(up) if !core::ptr::eq(undo, ns) => undo = up,
                        _ => return Err(Errno::ENOSPC),
                    }
                }
            }
            at = ns.parent.as_deref();
        }
        Ok(())
    }

    pub(super) fn uncharge(&self, kind: Kind) {
        let mut at = Some(self);
        while let Some(ns) = at {
            ns.used[kind as usize].fetch_sub(1, Ordering::SeqCst);
            at = ns.parent.as_deref();
        }
    }

    /// The most namespaces of a kind that may be in it and below.
    pub fn limit(&self, kind: Kind) -> &AtomicU32 {
        &self.most[kind as usize]
    }
}

impl Drop for UserNamespace {
    fn drop(&mut self) {
        if let Some(parent) = &self.parent {
            parent.uncharge(Kind::User);
        }
    }
}

impl Namespace for UserNamespace {
    fn kind(&self) -> Kind {
        Kind::User
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn owner(&self) -> Option<Arc<UserNamespace>> {
        self.parent.clone()
    }

    fn parent(&self) -> Option<Arc<dyn Namespace>> {
        self.parent.clone().map(|p| p as Arc<dyn Namespace>)
    }
}
