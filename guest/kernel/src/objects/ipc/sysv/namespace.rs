//! IPC namespaces (`ipc_namespaces(7)`): System V objects and POSIX message queues.
//!
//! Key type: [`Ipc`]. Those of the current thread are found by [`here`], which costs nothing more in the first one than
//! looking.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::ops::Deref;

use doppel_machine::sync::SpinLock;

use super::Registry;
use super::msg::Queue;
use super::sem::{Set, Undos};
use super::shm::Segment;
use crate::Result;
use crate::core::hook::Hook;
use crate::core::namespace::{Base, Kind, UserNamespace, namespace, user};
use crate::core::part::Part;

/// POSIX message queues by name; the layer of processes knows what they are.
pub(crate) type Named = SpinLock<BTreeMap<Vec<u8>, Arc<dyn Any + Send + Sync>>>;

/// An IPC namespace.
pub struct Ipc {
    base: Base,
    pub(crate) queues: Registry<Queue>,
    pub(crate) sets: Registry<Set>,
    pub(crate) undos: Undos,
    pub(crate) segments: Registry<Segment>,
    pub(crate) named: Named,
}

namespace!(Ipc, Ipc);

impl Ipc {
    fn with(base: Base) -> Self {
        Self {
            base,
            queues: Registry::default(),
            sets: Registry::default(),
            undos: Undos::default(),
            segments: Registry::default(),
            named: Named::default(),
        }
    }

    /// An empty one.
    pub fn new(user: &Arc<UserNamespace>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::with(Base::new(Kind::Ipc, user)?)))
    }

    /// The user namespace it belongs to.
    pub fn user(&self) -> &UserNamespace {
        self.base.owner()
    }

    /// Whether it is the first.
    pub fn is_first(&self) -> bool {
        self.base.is_first()
    }
}

/// The first IPC namespace.
pub(crate) struct First(Arc<Ipc>);

/// The domain's.
pub(crate) static FIRST: Part<First> = Part::new();

impl Default for First {
    fn default() -> Self {
        Self(Arc::new(Ipc::with(Base::first(Kind::Ipc))))
    }
}

/// The first IPC namespace.
pub fn first() -> &'static Arc<Ipc> {
    &FIRST.get().0
}

/// How that of the current thread is found, if it is not the first; set by the layer of processes.
pub static HERE: Hook<fn() -> Option<Arc<Ipc>>> = Hook::new();

/// The current thread's.
pub struct Here(Option<Arc<Ipc>>);

impl Here {
    /// As one to keep.
    pub fn keep(self) -> Arc<Ipc> {
        self.0.unwrap_or_else(|| first().clone())
    }
}

impl Deref for Here {
    type Target = Ipc;

    fn deref(&self) -> &Ipc {
        self.0.as_ref().unwrap_or_else(|| first())
    }
}

/// The current thread's IPC namespace.
pub fn here() -> Here {
    if !user::any(Kind::Ipc) {
        return Here(None);
    }
    Here((HERE.get())())
}
