//! Host and domain names (`uts_namespaces(7)`).

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::sync::SpinLock;

use crate::core::namespace::{Base, Kind, UserNamespace, namespace};
use crate::{Result, kernel};

/// A host name and a NIS domain name.
pub struct Uts {
    base: Base,
    /// Its host name; the kernel itself keeps that of the first.
    host: Option<SpinLock<Vec<u8>>>,
    domain: SpinLock<Vec<u8>>,
}

impl Uts {
    /// The first.
    pub(super) fn first() -> Self {
        Self { base: Base::first(Kind::Uts), host: None, domain: SpinLock::new(b"(none)".to_vec()) }
    }

    /// A new one with the names of `old`.
    pub(super) fn copy(old: &Self, user: &Arc<UserNamespace>) -> Result<Arc<Self>> {
        let base = Base::new(Kind::Uts, user)?;
        let (host, domain) = (old.host().lock().clone(), old.domain().lock().clone());
        Ok(Arc::new(Self { base, host: Some(SpinLock::new(host)), domain: SpinLock::new(domain) }))
    }

    /// The user namespace it belongs to.
    pub fn user(&self) -> &UserNamespace {
        self.base.owner()
    }

    /// Its host name.
    pub fn host(&self) -> &SpinLock<Vec<u8>> {
        self.host.as_ref().unwrap_or_else(|| &kernel().hostname)
    }

    /// Its NIS domain name.
    pub fn domain(&self) -> &SpinLock<Vec<u8>> {
        &self.domain
    }
}

namespace!(Uts, Uts);
