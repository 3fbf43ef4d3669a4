//! ETXTBSY: a running program's file is not opened for writing, and a file open for writing is not executed.
//!
//! Key type: [`Guard`], one use of a file, kept by the open file ([`super::File::guard`]) that makes it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicI32, Ordering};

use super::inode::Inode;
use crate::{Errno, Result};

/// Above zero: open for writing so often; below zero: executed so often.
#[derive(Default)]
struct Uses(AtomicI32);

/// One use of a file; ends when dropped.
pub struct Guard {
    uses: Arc<Uses>,
    step: i32,
}

impl Guard {
    fn new(inode: &Arc<dyn Inode>, step: i32) -> Result<Option<Self>> {
        let Some(slot) = inode.attachments() else { return Ok(None) };
        let uses = slot.get_or_insert(Uses::default);
        let fits = |v: i32| (v.signum() * step >= 0).then_some(v + step);
        uses.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).map_err(|_| Errno::ETXTBSY)?;
        Ok(Some(Self { uses, step }))
    }

    /// For opening a regular file for writing: ETXTBSY while it is executed.
    pub fn write(inode: &Arc<dyn Inode>) -> Result<Option<Self>> {
        Self::new(inode, 1)
    }

    /// For executing a file: ETXTBSY while it is open for writing.
    pub fn execute(inode: &Arc<dyn Inode>) -> Result<Option<Self>> {
        Self::new(inode, -1)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.uses.0.fetch_sub(self.step, Ordering::SeqCst);
    }
}
