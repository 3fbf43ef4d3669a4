//! Resource limits (`getrlimit(2)`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_machine::pod_struct;

use super::{Process, Resource, Rlimit};
use crate::objects::vfs::fdtable::NR_OPEN;
use crate::{Errno, Result};
pub(crate) const CAP_SYS_RESOURCE: u32 = 24;

pod_struct! {
    /// `struct rlimit64`.
    pub struct UserRlimit {
        /// Soft limit.
        pub cur: u64,
        /// Hard limit.
        pub max: u64,
    }
}

/// Gives `p` a new limit; returns the old one.
pub(crate) fn set(caller: &Process, p: &Arc<Process>, resource: Resource, new: UserRlimit) -> Result<Rlimit> {
    if new.cur > new.max {
        return Err(Errno::EINVAL);
    }
    if resource == Resource::Nofile && new.max > NR_OPEN {
        return Err(Errno::EPERM);
    }
    let privileged = caller.acting_cred().capable(CAP_SYS_RESOURCE);
    let old = {
        let mut limits = p.rlimits.lock();
        let old = limits[resource];
        if new.max > old.max && !privileged {
            return Err(Errno::EPERM);
        }
        limits[resource] = Rlimit { cur: new.cur, max: new.max };
        if resource == Resource::Fsize {
            p.size_limit.store(new.cur, Ordering::Relaxed);
        }
        old
    };
    if resource == Resource::Nofile {
        p.files().set_limit(new.cur);
    }
    if resource == Resource::Cpu {
        p.timers.cpu.limit_changed(p);
    }
    Ok(old)
}
