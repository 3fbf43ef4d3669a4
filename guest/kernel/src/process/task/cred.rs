//! Changing identities: users, groups, capabilities (`credentials(7)`, `capabilities(7)`).
//!
//! Identities belong to threads: programs that want one for the whole process have every thread make the call, as
//! glibc does. Others see a process' identity as its leader's.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_machine::shield;

use crate::Result;
use crate::process::task::{Cred, Thread};
pub(crate) const SECURE_NO_SETUID_FIXUP: u32 = 1 << 2;
const SECURE_KEEP_CAPS: u32 = 1 << 4;

pub(crate) fn change_of<T>(t: &Thread, f: impl FnOnce(&mut Cred) -> Result<T>) -> Result<T> {
    let before = t.cred();
    let mut new = (*before).clone();
    let r = f(&mut new)?;
    if (before.fsuid, before.fsgid) != (new.fsuid, new.fsgid) {
        t.keyrings.lock().follow(new.fsuid, new.fsgid);
    }
    let ids = |c: &Cred| (c.euid, c.egid, c.fsuid, c.fsgid);
    let differs = ids(&before) != ids(&new);
    // Only the thread itself changes its identity.
    install(t, Arc::new(new));
    let p = &t.process;
    if differs {
        p.dumpable.store(0, Ordering::Relaxed);
        p.pdeathsig.store(0, Ordering::Relaxed);
    }
    Ok(r)
}

/// Gives a thread another identity; its process too, if it is the leader.
pub(crate) fn install(t: &Thread, cred: Arc<Cred>) {
    let leads = t.tid() == t.process.pid;
    let mut w = shield::write();
    let old = core::mem::replace(t.cred.get_mut(&mut w), cred.clone());
    let shown = leads.then(|| core::mem::replace(t.process.cred.get_mut(&mut w), cred));
    drop(w);
    drop((old, shown));
}

/// What a change of user ids does to the capabilities.
pub(crate) fn fix_caps(old: &Cred, new: &mut Cred) {
    if old.securebits & SECURE_NO_SETUID_FIXUP != 0 {
        return;
    }
    // Root of the own user namespace, if that has one.
    let zero = new.user.kernel_uid(0);
    let is_zero = |id| zero == Some(id);
    let root = |c: &Cred| is_zero(c.ruid) || is_zero(c.euid) || is_zero(c.suid);
    if root(old) && !root(new) {
        if old.securebits & SECURE_KEEP_CAPS == 0 {
            new.cap_permitted = 0;
            new.cap_effective = 0;
        }
        new.cap_ambient = 0;
    }
    if is_zero(old.euid) && !is_zero(new.euid) {
        new.cap_effective = 0;
    }
    if !is_zero(old.euid) && is_zero(new.euid) {
        new.cap_effective = new.cap_permitted;
    }
}
