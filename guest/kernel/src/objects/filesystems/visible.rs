//! proc and sysfs in a user namespace: they show no more there than what can be seen of them already (`mount_namespaces(7)`).

use alloc::sync::Arc;

use crate::objects::vfs::flags::{MountFlags, MountLocks};
use crate::objects::vfs::mount::{MountNamespace, vfs};
use crate::{Errno, Result};

/// The flags a new mount of a type must have in a namespace so as to reveal nothing: EPERM if that cannot be.
pub fn revealing(space: &MountNamespace, kind: &str, flags: MountFlags) -> Result<MountFlags> {
    if space.owner().is_first() || !matches!(kind, "proc" | "sysfs") {
        return Ok(flags);
    }
    let tree = vfs().tree();
    for n in tree.of_space(space.number, 0) {
        let m = &n.mount;
        if m.fstype() != kind || !Arc::ptr_eq(&m.root, &m.sb.root) {
            continue;
        }
        let (locks, old) = (m.locks(), m.flags());
        let read_only = locks.contains(MountLocks::READ_ONLY);
        let atime = locks.contains(MountLocks::ATIME);
        if read_only && !flags.contains(MountFlags::RDONLY)
            || atime && old & MountFlags::ATIME != flags & MountFlags::ATIME
        {
            continue;
        }
        if tree.covered(n) {
            continue;
        }
        return Ok(flags);
    }
    Err(Errno::EPERM)
}
