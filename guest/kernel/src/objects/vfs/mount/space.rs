//! Mount namespaces as such; what is in them is in the [`super::tree`], and what is done with them in namespace.rs.
//!
//! Key types: [`MountNamespace`], which its processes hold, and [`Space`], which the tree holds as long as it has mounts of it. One that
//! no process is in holds a tree that a descriptor stands for (`open_tree(2)`, `fsmount(2)`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use doppel_machine::sync::SpinLock;

use crate::core::hook::Hook;
use crate::core::namespace::{Base, Kind, Namespace, UserNamespace, user};
use crate::core::part::Part;
use crate::core::sched::{PollEvents, WaitQueue};
use crate::kernel;

/// What is known of a namespace, as long as it has mounts.
pub struct Space {
    /// Never used twice.
    pub number: u64,
    anonymous: bool,
    /// How many mounts are in it.
    pub(super) count: AtomicUsize,
    /// How often they have changed, and who waits for the next time.
    changes: AtomicU64,
    pub(super) changed: Arc<WaitQueue>,
    /// The user namespace it belongs to.
    owner: Arc<UserNamespace>,
}

impl Space {
    /// Whether no process can be in it.
    pub fn is_anonymous(&self) -> bool {
        self.anonymous
    }

    /// How many mounts are in it.
    pub fn mounts(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The user namespace it belongs to.
    pub fn owner(&self) -> &Arc<UserNamespace> {
        &self.owner
    }

    /// Whether both belong to one user namespace.
    pub(super) fn has_owner_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }

    /// How often its mounts have changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Its mounts have changed.
    pub(super) fn tell(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.changed.wake_all(PollEvents::PRI | PollEvents::ERR);
    }
}

/// The mounts that some processes see; the last who has it takes them away.
pub struct MountNamespace {
    space: Arc<Space>,
    /// None: no process can be in it.
    base: Option<Base>,
}

impl Deref for MountNamespace {
    type Target = Arc<Space>;

    fn deref(&self) -> &Arc<Space> {
        &self.space
    }
}

impl Namespace for MountNamespace {
    fn kind(&self) -> Kind {
        Kind::Mount
    }

    fn number(&self) -> u64 {
        self.space.number
    }

    fn owner(&self) -> Option<Arc<UserNamespace>> {
        Some(self.space.owner.clone())
    }
}

/// The one that processes start in.
pub struct First {
    initial: Arc<MountNamespace>,
    /// Namespaces that are gone, whose mounts are still there.
    pub(super) doomed: SpinLock<Vec<u64>>,
}

/// The domain's.
pub static FIRST: Part<First> = Part::new();

impl Default for First {
    fn default() -> Self {
        let initial = MountNamespace::make(Some(Base::first(Kind::Mount)), user::first().clone());
        Self { initial, doomed: SpinLock::default() }
    }
}

impl MountNamespace {
    pub(super) fn make(base: Option<Base>, owner: Arc<UserNamespace>) -> Arc<Self> {
        let space = Arc::new(Space {
            number: base.as_ref().map_or_else(|| kernel().next_id(), Base::number),
            anonymous: base.is_none(),
            count: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            changed: Arc::default(),
            owner,
        });
        Arc::new(Self { space, base })
    }

    /// The one that processes start in.
    pub fn first() -> Arc<Self> {
        FIRST.initial.clone()
    }

    /// One that no process is in.
    pub(super) fn anonymous(of: &Self) -> Arc<Self> {
        Self::make(None, of.owner.clone())
    }
}

/// Takes away the mounts of namespaces that are gone, if nobody is changing mounts now.
pub(super) static CLEAR: Hook<fn()> = Hook::new();

impl Drop for MountNamespace {
    /// May happen where mounts are being changed, as one can hold a namespace: then who changes some next does the rest.
    fn drop(&mut self) {
        let _ = self.base.take();
        FIRST.doomed.lock().push(self.number);
        (CLEAR.get())();
    }
}
