//! Programs' writes to the page file, noticed while the host copies it ahead of a freeze (docs/freezer.md).
//!
//! The host takes away the permission to write from shared mappings of a space. A write faults then, is noted, and may go on in all of a
//! piece of the mapping. A guard stays until that: it costs nothing but the fault. What is mapped later is noted when it is.
//! Key type: [`Guards`]. A guard is lifted where the fault is met, also in the middle of a copy of the kernel's, whatever locks that
//! holds: so no call is cut short by one, or made twice. For that a space has a list of its own of what is guarded, with the places in
//! the page file, which stay as long as they are mapped. Invariants: what is on the list is mapped as it was; whoever changes a mapping
//! takes it from the list before. Lock order: any lock → the list's.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_machine::host;
use doppel_machine::sync::SpinLock;
use doppel_machine::trap::Guard;

use super::super::vma::{Backing, Prot, Vma};
use super::super::{Mm, PAGE, page_down};
use super::LOG;

/// What may be written again after a fault, of a mapping: one part in so many, within bounds, since the host has no more mappings than it
/// can.
const PARTS: u64 = 1024;
const PART_MIN: u64 = 64 << 10;
const PART_MAX: u64 = 2 << 20;
/// Shorter mappings are not guarded, and count as written: they are copied quickly.
const WORTH: u64 = PART_MIN;
/// A space has no more runs on its list; what lies in more pieces counts as written.
const MOST: usize = 1 << 14;

/// Guarded addresses, whose pages lie in a row in the page file.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    /// The first page in the page file.
    page: u64,
    /// What the program may do there.
    prot: Prot,
    part: u64,
}

impl Run {
    /// Notes that `from..to` of it may be written, and lets the program do so.
    fn open(&self, from: u64, to: u64) -> bool {
        LOG.note(self.page + (from - self.start) / PAGE, (to - from) / PAGE);
        host::protect_user(from, to - from, self.prot.bits()).is_ok()
    }
}

/// What of a space is guarded.
#[derive(Default)]
pub struct Guards {
    /// There are some, or were.
    any: AtomicBool,
    /// By address.
    runs: SpinLock<Vec<Run>>,
}

impl Guards {
    /// Nothing is: all is mapped anew.
    pub fn forget(&self) {
        self.any.store(false, Ordering::SeqCst);
        self.runs.lock().clear();
    }

    /// Those of a space that was forked from this one, but for what it does not have.
    pub fn fork(&self, gone: &[(u64, u64)]) -> Self {
        let mut runs = self.runs.lock().clone();
        runs.retain(|r| gone.iter().all(|&(start, end)| r.end <= start || end <= r.start));
        Self { any: AtomicBool::new(self.any.load(Ordering::SeqCst)), runs: SpinLock::new(runs) }
    }

    /// A program, or the kernel for it, could not write at `addr`, in the current space.
    pub fn lift(&self, addr: u64) -> Guard {
        if !self.any.load(Ordering::Relaxed) {
            return Guard::None;
        }
        let runs = self.runs.lock();
        let Some(r) = runs.get(runs.partition_point(|r| r.end <= addr)).filter(|r| r.start <= addr) else {
            return Guard::Elsewhere;
        };
        let from = addr / r.part * r.part;
        // If the host has no more mappings for it, all.
        if r.open(from.max(r.start), (from + r.part).min(r.end)) || r.open(r.start, r.end) {
            Guard::Lifted
        } else {
            Guard::None
        }
    }

    /// Before the mappings of `start..end` change, in the current space: nothing of them is guarded any more.
    pub fn release(&self, start: u64, end: u64) {
        if !self.any.load(Ordering::Relaxed) || start >= end {
            return;
        }
        let mut runs = self.runs.lock();
        let first = runs.partition_point(|r| r.end <= start);
        let n = runs[first..].partition_point(|r| r.start < end);
        for r in runs.drain(first..first + n) {
            // Fails only where the host has run out of mappings: then a fault there is looked at under the map's lock.
            r.open(r.start, r.end);
        }
    }
}

impl Mm {
    /// See [`Guards::lift`].
    pub fn lift_guard(&self, addr: u64) -> Guard {
        self.guards.lift(addr)
    }

    /// See [`Guards::release`].
    pub fn release_guards(&self, start: u64, end: u64) {
        self.guards.release(start, end);
    }

    /// Whether programs may write to the page file through mappings of the space.
    pub fn may_write_pages(&self) -> bool {
        self.lock().map.iter().any(|(.., v)| v.may_write_pages())
    }

    /// Guards the mappings of the current space; those that cannot be are noted as written. Nothing else runs in the space.
    pub fn guard(&self) {
        let g = self.lock();
        let mut runs = Vec::new();
        for (start, end, v) in g.map.iter().filter(|(.., v)| v.may_write_pages()) {
            let len = v.mapped_len(end - start);
            let before = runs.len();
            if len < WORTH || !v.list(start, len, &mut runs) || !guard_all(&runs[before..]) {
                runs.truncate(before);
                v.note_written_to(0, len);
                // What was guarded before is on no list any more; if the host refuses, a fault is looked at under the map's lock.
                let _ = host::protect_user(start, len, v.prot.bits());
            }
        }
        self.guards.any.store(true, Ordering::SeqCst);
        *self.guards.runs.lock() = runs;
    }

    /// Notes, if that is noted, what of the page file the space may write to through its mappings.
    pub fn note_mapped(&self) {
        for (start, end, v) in self.lock().map.iter().filter(|(.., v)| v.shared()) {
            v.note_written_to(0, v.mapped_len(end - start));
        }
    }
}

/// Takes away the permission to write to all of these; false if the host has not done it for all.
fn guard_all(runs: &[Run]) -> bool {
    runs.chunk_by(|a, b| a.end == b.start).all(|group| {
        let (start, end) = (group[0].start, group[group.len() - 1].end);
        host::protect_user(start, end - start, (group[0].prot - Prot::WRITE).bits()).is_ok()
    })
}

impl Vma {
    pub(in super::super) fn may_write_pages(&self) -> bool {
        self.shared() && self.prot.contains(Prot::WRITE) && matches!(self.backing, Backing::Pages(_))
    }

    /// Notes that bytes from `from` on, relative to the range, may be written.
    pub(in super::super) fn note_written_to(&self, from: u64, len: u64) {
        if let Backing::Pages(o) = &self.backing {
            o.note_mapped(self.offset + from, len);
        }
    }

    /// Lists what the `len` bytes mapped at `start` have in the page file; what has nothing there faults anyway. False if these are too
    /// many pieces.
    fn list(&self, start: u64, len: u64, runs: &mut Vec<Run>) -> bool {
        let Backing::Pages(o) = &self.backing else { return false };
        let part = (len / PARTS).next_power_of_two().clamp(PART_MIN, PART_MAX);
        let mut at = start;
        o.places(self.offset, len, &mut |place, n| {
            if let Some(place) = place
                && runs.len() < MOST
            {
                runs.push(Run { start: at, end: at + n, page: place / PAGE, prot: self.prot, part });
            }
            at += n;
        });
        runs.len() < MOST
    }

    /// Lets the program write around `addr` again, in the mapping at `start..end`, if it may; that is noted.
    pub(in super::super) fn unguard(&self, start: u64, end: u64, addr: u64) {
        let end = start + self.mapped_len(end - start);
        let from = (page_down(addr) / PART_MIN * PART_MIN).max(start);
        let to = (from / PART_MIN * PART_MIN + PART_MIN).min(end);
        if !self.may_write_pages() || from >= to {
            return;
        }
        self.note_written_to(from - start, to - from);
        if host::protect_user(from, to - from, self.prot.bits()).is_err() {
            // The host has no more mappings for it: all of it then.
            self.note_written_to(0, end - start);
            let _ = host::protect_user(start, end - start, self.prot.bits());
        }
    }
}
