//! Writes with O_DIRECT, several of one file at once: they go past its pages without the lock of these, each with a range of the file.
//!
//! Whoever changes the file otherwise (its size, its mappings, by writes into pages) is *alone*: waits until none is under way, and those
//! that come meanwhile wait for it. Who reads need not: what a write replaces is dropped from the pages when it is done.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use doppel_machine::sync::SpinLock;

use super::super::mapped::{Held, in_use};
use super::super::node::Node;
use crate::Result;
use crate::core::sched::{MutexGuard, WaitQueue, wait_until_uninterruptible};
use crate::objects::pages::PAGE;
use crate::objects::vfs::io::Input;

/// A file's writes that are under way.
pub(in super::super) struct Passing {
    ranges: SpinLock<Vec<(u64, u64)>>,
    /// Some who want to be alone.
    alone: AtomicU32,
    /// Both wait here.
    queue: WaitQueue,
}

impl Default for Passing {
    fn default() -> Self {
        Self { ranges: SpinLock::default(), alone: AtomicU32::new(0), queue: WaitQueue::new() }
    }
}

impl Passing {
    fn is_quiet(&self) -> bool {
        self.ranges.lock().is_empty()
    }

    /// Whether nobody wants to be alone, and no write is under way that has bytes of a range.
    fn has_room(&self, ranges: &[(u64, u64)], (start, end): (u64, u64)) -> bool {
        self.alone.load(Ordering::SeqCst) == 0 && !ranges.iter().any(|other| start < other.1 && other.0 < end)
    }

    /// Enters a range, if that can be.
    fn enter(&self, range: (u64, u64)) -> bool {
        let mut ranges = self.ranges.lock();
        let enters = self.has_room(&ranges, range);
        if enters {
            ranges.push(range);
        }
        enters
    }

    fn leave(&self, range: (u64, u64)) {
        let mut ranges = self.ranges.lock();
        if let Some(at) = ranges.iter().position(|other| *other == range) {
            ranges.swap_remove(at);
        }
        drop(ranges);
        self.queue.notify_all();
    }
}

impl Node {
    /// The lock of its pages, for who changes the file: no write passes them.
    pub(in super::super) fn lock_alone(&self) -> MutexGuard<'_, Held> {
        let held = self.mapped.lock();
        if self.passing.is_quiet() {
            return held;
        }
        drop(held);
        let passing = &self.passing;
        passing.alone.fetch_add(1, Ordering::SeqCst);
        let held = loop {
            wait_until_uninterruptible(&passing.queue, || passing.is_quiet().then_some(()));
            let held = self.mapped.lock();
            // One may have entered that had looked before.
            if passing.is_quiet() {
                break held;
            }
        };
        passing.alone.fetch_sub(1, Ordering::SeqCst);
        passing.queue.notify_all();
        held
    }

    /// Writes all there is up to `limit` past the pages, beside others; gives how much, and where that ends. None: the file is mapped, so
    /// that is not possible.
    pub(in super::super) fn write_past(
        &self,
        input: &mut Input<'_>,
        offset: u64,
        limit: u64,
    ) -> Option<Result<(usize, u64)>> {
        let range = (offset, offset.saturating_add(input.remaining() as u64));
        loop {
            let mut held = self.mapped.lock();
            if held.as_ref().is_some_and(|m| m.is_mapped()) {
                return None;
            }
            self.write_out_held(&mut held);
            // Under the lock, so that nobody changes the file otherwise from here on.
            if self.passing.enter(range) {
                break;
            }
            drop(held);
            let passing = &self.passing;
            let free = || passing.has_room(&passing.ranges.lock(), range).then_some(());
            wait_until_uninterruptible(&passing.queue, free);
        }
        let done = self.write_pieces(input, offset, limit, None);
        let whole = matches!(done, Ok((_, end)) if end == range.1);
        let dropped = self.drop_range(range, whole);
        self.passing.leave(range);
        Some(dropped.and(done))
    }

    /// Drops pages that have bytes of a range, which was written; all pages, if it was not `whole`, as nobody knows then how far.
    fn drop_range(&self, (start, end): (u64, u64), whole: bool) -> Result<()> {
        let mut held = self.mapped.lock();
        if !whole {
            *held = None;
        }
        let Some(m) = in_use(&mut held, self.lease()) else { return Ok(()) };
        m.whole = false;
        if end > m.object.len() {
            m.object.truncate(end)?;
        }
        let (first, end) = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
        m.object.punch(first, end - first)?;
        m.count(self);
        Ok(())
    }
}
