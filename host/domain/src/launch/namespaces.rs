//! Namespaces that the domains of one process have in common, if it has many.
//!
//! Making and freeing a network namespace is the host's largest single cost of a small domain, in time and in memory.
//! So the first domain's mount, UTS, IPC and network namespaces are joined by the later ones. Nothing gets through
//! them: they hold an empty read-only root and a loopback device that is down, and the filter permits no call that
//! takes a path, makes a socket or an IPC object, or asks for a host name (SECURITY.md). PID and cgroup namespaces
//! and the user id are each domain's own.
//!
//! Who knows that a domain will be wanted has them made meanwhile ([`begin`]), by a thread beside whatever comes before the
//! first process.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use doppel_sys::child::{self, Child, ChildPlan, Namespaces, SpawnError};

/// Those of the first domain, kept for as long as this process lives.
static COMMON: Mutex<Option<Arc<Namespaces>>> = Mutex::new(None);

/// Those that are being made, for the next domain.
static AHEAD: Mutex<Option<JoinHandle<Result<Namespaces, SpawnError>>>> = Mutex::new(None);

/// Has the namespaces of this process' next domain made from now on. What fails here is done by the domain itself, which
/// tells why if it fails again.
pub fn begin() {
    if rustix::process::geteuid().is_root() {
        *AHEAD.lock().unwrap_or_else(PoisonError::into_inner) = Namespaces::begin().ok();
    }
}

/// Those that were begun.
fn ahead() -> Option<Namespaces> {
    let begun = AHEAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    begun?.join().ok()?.ok()
}

/// Spawns the first process of a domain that is alone in its process.
pub(crate) fn spawn_alone(plan: &ChildPlan<'_>) -> Result<Child, SpawnError> {
    match ahead() {
        Some(namespaces) if !plan.user_namespace => spawn_in(plan, &namespaces),
        _ => child::spawn(plan),
    }
}

fn spawn_in(plan: &ChildPlan<'_>, namespaces: &Namespaces) -> Result<Child, SpawnError> {
    child::spawn(&ChildPlan {
        namespaces: plan.namespaces & !Namespaces::FLAGS,
        join: Some(namespaces),
        ..*plan
    })
}

/// Spawns a domain's first process in the common namespaces; the first one makes them. An ordinary user's domain has
/// all its own: they belong to its user namespace.
pub(crate) fn spawn(plan: &ChildPlan<'_>) -> Result<Child, SpawnError> {
    if plan.user_namespace {
        return child::spawn(plan);
    }
    // Held while the first is made: to wait for it is cheaper than to make more.
    let mut common = COMMON.lock().unwrap_or_else(PoisonError::into_inner);
    if common.is_none() {
        *common = ahead().map(Arc::new);
    }
    if let Some(namespaces) = common.clone() {
        drop(common);
        return spawn_in(plan, &namespaces);
    }
    let child = child::spawn(plan)?;
    // If it has ended already, the next one is the first.
    *common = Namespaces::of(&child).ok().map(Arc::new);
    Ok(child)
}
