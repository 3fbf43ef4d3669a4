//! System V shared memory (`shmget(2)`, `shmat(2)`).
//!
//! Key types: [`Segment`], [`Attach`] (what keeps a segment while some process has it mapped: the "file" of the
//! mapping). A removed segment goes with its last attachment.

use alloc::sync::Arc;
use core::sync::atomic::AtomicU64;

use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use super::namespace::Ipc;
use super::{Entry, Perm, UserPerm, seconds};
use crate::objects::pages::Object;
use crate::objects::vfs::FileOps;
/// Mode bit of a segment that goes with its last attachment.
pub(crate) const SHM_DEST: u32 = 0o1000;

#[derive(Clone, Copy, Default)]
pub(crate) struct State {
    pub(crate) atime: i64,
    pub(crate) dtime: i64,
    pub(crate) ctime: i64,
    pub(crate) cpid: i32,
    pub(crate) lpid: i32,
    pub(crate) attached: u64,
}

/// A shared memory segment.
pub struct Segment {
    pub(crate) perm: SpinLock<Perm>,
    pub(crate) size: u64,
    pub(crate) pages: Arc<Object>,
    pub(crate) state: SpinLock<State>,
}

impl Entry for Segment {
    fn perm(&self) -> &SpinLock<Perm> {
        &self.perm
    }
}

/// One attachment: the file of its mappings.
pub(crate) struct Attach {
    pub(crate) segment: Arc<Segment>,
    /// Where the segment is.
    pub(crate) home: Arc<Ipc>,
    pub(crate) at: AtomicU64,
}

impl FileOps for Attach {}

impl Drop for Attach {
    fn drop(&mut self) {
        let left = {
            let mut s = self.segment.state.lock();
            s.dtime = seconds();
            s.attached -= 1;
            s.attached
        };
        let perm = *self.segment.perm.lock();
        if left == 0 && perm.mode & SHM_DEST != 0 {
            self.home.segments.remove(perm.id);
        }
    }
}

pod_struct! {
    /// `struct shmid64_ds`.
    pub struct ShmidDs {
        /// Permissions.
        pub perm: UserPerm,
        /// Size in bytes.
        pub segsz: u64,
        /// Last attach.
        pub atime: i64,
        /// Last detach.
        pub dtime: i64,
        /// Last change.
        pub ctime: i64,
        /// Creator.
        pub cpid: i32,
        /// Who attached or detached last.
        pub lpid: i32,
        /// Attachments.
        pub nattch: u64,
        /// Unused.
        pub unused: [u64; 2],
    }
}
