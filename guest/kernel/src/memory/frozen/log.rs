//! Which pages of the page file are written while the host copies it, ahead of a freeze (docs/freezer.md).
//!
//! Key type: [`Log`]. It begins and ends while all stands still, so whoever writes in between knows of it. A page counts from when
//! its place is asked for to write or to map it, under its object's lock: what is mapped may be written at any time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doppel_abi_machine::frozen::{PAGEFILE, Segment};
use doppel_abi_machine::layout::PAGE;
use doppel_machine::sync::RwSpin;

use crate::core::part::Part;

/// Pages that were written.
#[derive(Default)]
pub struct Log {
    on: AtomicBool,
    /// A bit a page; none of pages that were never used when it began.
    written: RwSpin<Box<[AtomicU64]>>,
}

/// The domain's.
pub static LOG: Part<Log> = Part::new();

impl Log {
    /// Begins, with pages up to `end`. Nothing runs.
    pub fn begin(&self, end: u64) {
        *self.written.write() = (0..end.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        self.on.store(true, Ordering::SeqCst);
    }

    /// Ends. Nothing runs.
    pub fn end(&self) {
        self.on.store(false, Ordering::SeqCst);
        *self.written.write() = Box::default();
    }

    /// Pages it knows of, while it is on.
    pub fn pages(&self) -> Option<u64> {
        self.on.load(Ordering::SeqCst).then(|| self.written.read().len() as u64 * 64)
    }

    /// Pages `page..page + n` will be written.
    #[inline]
    pub fn note(&self, page: u64, n: u64) {
        if self.on.load(Ordering::Relaxed) {
            self.set(page, n);
        }
    }

    #[cold]
    fn set(&self, page: u64, n: u64) {
        let written = self.written.read();
        let (mut at, end) = (page, page + n);
        while at < end {
            let n = (64 - at % 64).min(end - at);
            let Some(word) = written.get((at / 64) as usize) else { return };
            word.fetch_or((u64::MAX >> (64 - n)) << (at % 64), Ordering::Relaxed);
            at += n;
        }
    }

    /// Runs of pages that were written.
    pub fn list(&self) -> Vec<Segment> {
        let mut runs: Vec<Segment> = Vec::new();
        for (i, word) in self.written.read().iter().enumerate() {
            let word = word.load(Ordering::Relaxed);
            for bit in (0..64).filter(|bit| word >> bit & 1 != 0) {
                let addr = (i as u64 * 64 + bit) * PAGE;
                match runs.last_mut() {
                    Some(last) if last.addr + last.len == addr => last.len += PAGE,
                    _ => runs.push(Segment { space: PAGEFILE, file: 0, addr, len: PAGE, offset: 0 }),
                }
            }
        }
        runs
    }
}
