//! How many bytes of files a layer may hold, if that is limited.
//!
//! Each byte that is written counts until it would be too much. Then what was noted is written, and pages are counted as the layer has
//! them: what was overwritten or removed counts no more. What is written through mappings is found then. The host bounds the
//! layer's file itself, whatever happens here.
//!
//! What a device can say of files is bounded too: names and attributes count likewise.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use super::Layer;
use super::log::Log;
use crate::objects::rootfs::Fs;
use crate::{Errno, Result};

/// The limit, and what is known of its use; in bytes.
pub(super) struct Room {
    /// 0: there is none.
    limit: u64,
    /// At least what files hold.
    used: AtomicU64,
    /// Bytes of records, and at least how many there are; of a layer without such a bound 0.
    most_records: u64,
    records: AtomicU64,
}

/// What a new file or name takes at most, besides its texts.
const A_NAME: u64 = 256;

impl Room {
    /// That of a layer which says this.
    pub fn of(log: &Log, limit: u64) -> Self {
        let (records, most_records) = log.records().unwrap_or_default();
        let used = AtomicU64::new(log.held());
        Self { limit, used, most_records, records: AtomicU64::new(records) }
    }
}

impl Layer {
    /// Bytes that are about to be written find room; `new` are those of them that are in pages which nobody has written yet.
    ///
    /// # Errors
    /// ENOSPC: they do not; or what the service says.
    pub fn make_room(&self, fs: &Arc<Fs>, bytes: u64, new: impl FnOnce() -> u64) -> Result<()> {
        let Room { limit, used, .. } = &self.room;
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= *limit);
        if *limit == 0 || used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok() {
            return Ok(());
        }
        self.sync(fs)?;
        let held = self.hold()?;
        // In a clone there is none.
        let Some(writer) = held.as_ref() else { return Ok(()) };
        let now = writer.held();
        used.store(fits(now).unwrap_or(now), Ordering::Release);
        // What is written over what is there finds room when it is written out.
        let found = new();
        if found == 0 || now.saturating_add(found) <= *limit { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    /// What counted before, of which only `held` is left, was written; what was counted since then stays.
    pub fn wrote(&self, counted: u64, held: u64) {
        let now = |used: u64| Some(held + used.saturating_sub(counted));
        let _ = self.room.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, now);
    }

    /// What counts now.
    pub fn counted(&self) -> u64 {
        self.room.used.load(Ordering::Acquire)
    }

    /// A name or attributes that are about to be made, with so many bytes of text, find room. The caller does not hold
    /// [`Self::changes`].
    ///
    /// # Errors
    /// As for [`Self::make_room`].
    pub fn make_name_room(&self, fs: &Arc<Fs>, text: usize) -> Result<()> {
        let Room { most_records, records, .. } = &self.room;
        let fits = |now: u64| now.checked_add(A_NAME + text as u64).filter(|sum| *sum <= *most_records);
        if *most_records == 0 || records.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok() {
            return Ok(());
        }
        self.sync(fs)?;
        let now = self.hold()?.as_ref().and_then(|log| log.records()).map_or(0, |(now, _)| now);
        records.store(fits(now).unwrap_or(now), Ordering::Release);
        fits(now).map(drop).ok_or(Errno::ENOSPC)
    }

    /// Files that can be made, and how many of those are left, as far as that can be told; none if there is no such bound.
    pub fn files(&self) -> Option<(u64, u64)> {
        let Room { most_records, records, .. } = &self.room;
        let left = most_records.saturating_sub(records.load(Ordering::Relaxed));
        (*most_records != 0).then(|| (most_records / A_NAME, left / A_NAME))
    }

    /// Bytes that files hold, and the most they may, if there is a limit.
    pub fn room(&self) -> Option<(u64, u64)> {
        (self.room.limit != 0).then(|| (self.room.used.load(Ordering::Relaxed), self.room.limit))
    }
}
