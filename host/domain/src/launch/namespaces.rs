//! Namespaces that the domains of one process have in common, if it has many.
//!
//! Making and freeing a network namespace is the host's largest single cost of a small domain, in time and in memory.
//! So the first domain's mount, UTS, IPC and network namespaces are joined by the later ones. Nothing gets through
//! them: they hold an empty read-only root and a loopback device that is down, and the filter permits no call that
//! takes a path, makes a socket or an IPC object, or asks for a host name (SECURITY.md). PID and cgroup namespaces
//! and the user id are each domain's own.

use std::sync::{Arc, Mutex, PoisonError};

use doppel_sys::child::{self, Child, ChildPlan, Namespaces, SpawnError};

/// Those of the first domain, kept for as long as this process lives.
static COMMON: Mutex<Option<Arc<Namespaces>>> = Mutex::new(None);

/// Spawns a domain's first process in the common namespaces; the first one makes them. An ordinary user's domain has
/// all its own: they belong to its user namespace.
pub(crate) fn spawn(plan: ChildPlan<'_>) -> Result<Child, SpawnError> {
    if plan.user_namespace {
        return child::spawn(&plan);
    }
    // Held while the first is made: to wait for it is cheaper than to make more.
    let mut common = COMMON.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(namespaces) = common.clone() {
        drop(common);
        return child::spawn(&ChildPlan {
            namespaces: plan.namespaces & !Namespaces::FLAGS,
            join: Some(&namespaces),
            ..plan
        });
    }
    let child = child::spawn(&plan)?;
    // If it has ended already, the next one is the first.
    *common = Namespaces::of(&child).ok().map(Arc::new);
    Ok(child)
}
