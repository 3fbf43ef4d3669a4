//! What is mounted where, for walks.
//!
//! Key type: [`Index`], found by the mount and the name that are covered; there is never more than one mount on those.

use alloc::sync::Arc;

use doppel_algo::nametable::NameTable;
use doppel_machine::shield::{Reading, Writing};

use super::{Mount, vfs};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::dentry::Dentry;

/// The mounts that are mounted on something.
#[derive(Default)]
pub(crate) struct Index(NameTable<Arc<Mount>>);

/// The two addresses, mixed.
#[inline]
fn hash(mount: &Arc<Mount>, dentry: &Arc<Dentry>) -> u32 {
    let (a, b) = (Arc::as_ptr(mount) as u64, Arc::as_ptr(dentry) as u64);
    ((a ^ b.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

impl Index {
    /// What is mounted on this name of this mount.
    #[inline]
    pub(crate) fn find<'g>(
        &'g self,
        r: &'g Reading,
        mount: &Arc<Mount>,
        dentry: &Arc<Dentry>,
    ) -> Option<&'g Arc<Mount>> {
        let here = |p: &Path| Arc::ptr_eq(p.dentry(), dentry) && Arc::ptr_eq(p.mount(), mount);
        self.0.find(hash(mount, dentry), |m| m.at_in(r).is_some_and(here))
    }

    /// The number of what is mounted on this name of this mount.
    pub(super) fn find_id(&self, r: &Reading, mount: &Arc<Mount>, dentry: &Arc<Dentry>) -> Option<u64> {
        self.find(r, mount, dentry).map(|m| m.id)
    }
}

/// Moves mounts to other places, in one step for all walks. What they no longer hold is given back in their places, to be dropped
/// without the guard.
pub(super) fn place(w: &mut Writing, moves: &mut [(Arc<Mount>, Option<Path>)]) {
    let v = vfs();
    for (m, _) in moves.iter() {
        let old = m.at.get(w).as_ref().map(|p| hash(p.mount(), p.dentry()));
        if let Some(old) = old {
            // Dropped here, but never the last: the caller has it.
            v.index.get_mut(w).0.remove(old, |o| Arc::ptr_eq(o, m));
        }
    }
    for (m, to) in moves.iter_mut() {
        core::mem::swap(m.at.get_mut(w), to);
        let new = m.at.get(w).as_ref().map(|p| hash(p.mount(), p.dentry()));
        if let Some(new) = new {
            v.index.get_mut(w).0.insert(new, m.clone());
        }
    }
}
