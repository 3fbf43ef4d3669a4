//! Namespaces (`namespaces(7)`): what the kinds have in common, and those the layers below processes know.
//!
//! Key types: [`Namespace`] (any of them), [`Base`] (number, owner and count of one), [`UserNamespace`].

pub mod ids;
pub mod pid;
pub mod user;

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

pub use user::UserNamespace;

use crate::Result;
use crate::core::part::Part;

/// Kinds of namespaces.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    Cgroup,
    Ipc,
    Mount,
    Net,
    Pid,
    Time,
    User,
    Uts,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// The name in /proc/PID/ns.
    pub const fn name(self) -> &'static str {
        ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"][self as usize]
    }

    /// The `CLONE_NEW` flag that makes one.
    pub const fn flag(self) -> u32 {
        [0x200_0000, 0x800_0000, 0x2_0000, 0x4000_0000, 0x2000_0000, 0x80, 0x1000_0000, 0x400_0000]
            [self as usize]
    }

    /// The number of the first one.
    pub const fn first(self) -> u64 {
        4_026_531_800 + [35, 39, 41, 40, 36, 34, 37, 38][self as usize]
    }
}

/// A namespace of any kind.
pub trait Namespace: Any + Send + Sync {
    /// Its kind.
    fn kind(&self) -> Kind;

    /// The number it is known by: the inode number of its files.
    fn number(&self) -> u64;

    /// The user namespace it belongs to; the parent of a user namespace, none of the first.
    fn owner(&self) -> Option<Arc<UserNamespace>>;

    /// The one it was made in, of those that have parents.
    fn parent(&self) -> Option<Arc<dyn Namespace>> {
        None
    }
}

/// Numbers of namespaces made after boot.
pub(crate) struct Numbers(AtomicU64);

/// The domain's.
pub(crate) static NUMBERS: Part<Numbers> = Part::new();

impl Default for Numbers {
    fn default() -> Self {
        Self(AtomicU64::new(4_026_532_200))
    }
}

/// A number no namespace had before.
fn fresh() -> u64 {
    NUMBERS.0.fetch_add(1, Ordering::Relaxed)
}

/// What each namespace that is no user namespace has: it counts for its owner as long as it is.
pub struct Base {
    kind: Kind,
    number: u64,
    owner: Arc<UserNamespace>,
    counted: bool,
}

impl Base {
    /// Of the first of its kind.
    pub fn first(kind: Kind) -> Self {
        Self { kind, number: kind.first(), owner: user::first().clone(), counted: false }
    }

    /// Of a new one; ENOSPC when `owner` or one of its ancestors has as many as it may.
    pub fn new(kind: Kind, owner: &Arc<UserNamespace>) -> Result<Self> {
        owner.charge(kind)?;
        Ok(Self { kind, number: fresh(), owner: owner.clone(), counted: true })
    }

    /// Whether it is the first of its kind.
    #[inline]
    pub fn is_first(&self) -> bool {
        !self.counted
    }

    /// See [`Namespace::number`].
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The user namespace it belongs to.
    pub fn owner(&self) -> &Arc<UserNamespace> {
        &self.owner
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        if self.counted {
            self.owner.uncharge(self.kind);
        }
    }
}

/// Implements [`Namespace`] for a type with a field `base` of type [`Base`].
macro_rules! namespace {
    ($name:ty, $kind:ident $(, $me:ident => $parent:expr)?) => {
        impl $crate::core::namespace::Namespace for $name {
            fn kind(&self) -> $crate::core::namespace::Kind {
                $crate::core::namespace::Kind::$kind
            }

            fn number(&self) -> u64 {
                self.base.number()
            }

            fn owner(&self) -> Option<alloc::sync::Arc<$crate::core::namespace::UserNamespace>> {
                Some(self.base.owner().clone())
            }

            $(fn parent(&self) -> Option<alloc::sync::Arc<dyn $crate::core::namespace::Namespace>> {
                let $me = self;
                $parent
            })?
        }
    };
}
pub(crate) use namespace;
