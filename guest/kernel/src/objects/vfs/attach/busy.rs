//! ETXTBSY: a running program's file is not opened for writing, and a file open for writing is not executed.
//!
//! Key type: [`Guard`], one use of a file, kept by the open file ([`super::super::File::guard`]) that makes it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicI32, Ordering};

use super::Attachments;
use crate::{Errno, Result};

/// Above zero: open for writing so often; below zero: executed so often.
#[derive(Default)]
struct Uses(AtomicI32);

/// Whether a file is open for writing.
pub fn is_written(slot: Option<&Attachments>) -> bool {
    slot.and_then(|s| s.get::<Uses>()).is_some_and(|u| u.0.load(Ordering::SeqCst) > 0)
}

/// One use of a file; ends when dropped.
pub struct Guard {
    uses: Arc<Uses>,
    step: i32,
}

impl Guard {
    /// `slot` is what the file's inode gives ([`super::super::Inode::attachments`]); without one nobody minds.
    fn new(slot: Option<&Attachments>, step: i32) -> Result<Option<Self>> {
        let Some(slot) = slot else { return Ok(None) };
        let uses = slot.get_or_insert(Uses::default);
        let fits = |v: i32| (v.signum() * step >= 0).then_some(v + step);
        uses.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).map_err(|_| Errno::ETXTBSY)?;
        Ok(Some(Self { uses, step }))
    }

    /// For opening a regular file for writing: ETXTBSY while it is executed.
    pub fn write(slot: Option<&Attachments>) -> Result<Option<Self>> {
        Self::new(slot, 1)
    }

    /// For executing a file: ETXTBSY while it is open for writing.
    pub fn execute(slot: Option<&Attachments>) -> Result<Option<Self>> {
        Self::new(slot, -1)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.uses.0.fetch_sub(self.step, Ordering::SeqCst);
    }
}
