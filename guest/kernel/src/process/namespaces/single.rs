//! Kinds of namespaces of which a domain has one.

use alloc::sync::Arc;

use crate::core::namespace::{Base, Kind, Namespace, UserNamespace};

/// The only one of its kind.
pub struct Single {
    base: Base,
    kind: Kind,
}

impl Single {
    /// Makes it.
    pub fn first(kind: Kind) -> Self {
        Self { base: Base::first(kind), kind }
    }
}

impl Namespace for Single {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn number(&self) -> u64 {
        self.base.number()
    }

    fn owner(&self) -> Option<Arc<UserNamespace>> {
        Some(self.base.owner().clone())
    }
}
