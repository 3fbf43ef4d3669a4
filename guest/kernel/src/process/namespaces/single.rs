//! Kinds of namespaces that are the same in all of a domain.

use alloc::sync::Arc;

use crate::Result;
use crate::core::namespace::{Base, Kind, Namespace, UserNamespace};

/// One that has nothing of its own: a domain has one network, one clock and one control group, whatever the namespace.
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

impl Single {
    /// A new one, of a kind whose namespaces differ in nothing but their number.
    pub fn new(kind: Kind, user: &Arc<UserNamespace>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { base: Base::new(kind, user)?, kind }))
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
