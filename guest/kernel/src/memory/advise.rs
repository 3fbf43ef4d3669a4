//! Advice, locking, residency and synchronisation of mapped memory.

use doppel_machine::host;

use super::Mm;
use super::map::Inner;
use super::vma::{Backing, Vma, vm};
use crate::core::subject::{rlimit, subject};
use crate::{Errno, Result};

/// Values of madvise.
#[allow(missing_docs)]
pub mod advice {
    pub const DONTNEED: i32 = 4;
    pub const FREE: i32 = 8;
    pub const REMOVE: i32 = 9;
    pub const DONTFORK: i32 = 10;
    pub const DOFORK: i32 = 11;
    pub const DONTDUMP: i32 = 16;
    pub const DODUMP: i32 = 17;
    pub const WIPEONFORK: i32 = 18;
    pub const KEEPONFORK: i32 = 19;
    pub const POPULATE_READ: i32 = 22;
    pub const POPULATE_WRITE: i32 = 23;
    pub const DONTNEED_LOCKED: i32 = 24;
    pub const COLLAPSE: i32 = 25;
}
use advice as adv;

const CAP_IPC_LOCK: u32 = 14;

/// One part of a mapping inside a range.
struct Part {
    start: u64,
    end: u64,
    v: Vma,
}

impl Part {
    /// End of its host mapping.
    fn host_end(&self) -> u64 {
        self.start + self.v.mapped_len(self.end - self.start)
    }

    fn host(&self, advice: i32) -> Result<()> {
        let n = self.host_end() - self.start;
        if n == 0 {
            return Ok(());
        }
        if self.v.flags & vm::THAWED != 0 {
            match advice {
                adv::DONTNEED | adv::FREE => return self.v.map_host(self.start, 0, n, false),
                // The host refuses it for mappings of files: fork does it (map.rs).
                adv::WIPEONFORK => return Ok(()),
                _ => {}
            }
        }
        host::advise_user(self.start, n, advice).map_err(|e| match e.0 {
            12 => Errno::ENOMEM,
            14 => Errno::EFAULT,
            _ => Errno::EINVAL,
        })
    }
}

/// The parts of mappings inside `start..end`, and whether they cover it all.
fn parts(g: &Inner, start: u64, end: u64) -> (alloc::vec::Vec<Part>, bool) {
    let list = g
        .map
        .overlapping(start, end)
        .map(|(s, e, v)| {
            let cut = start.saturating_sub(s);
            Part { start: s.max(start), end: e.min(end), v: doppel_algo::rangemap::Piece::tail(v, cut) }
        })
        .collect();
    (list, g.map.is_covered(start, end))
}

/// EINVAL for advice that nobody knows.
pub(crate) fn check(what: i32) -> Result<()> {
    if matches!(what, 0..=4 | 8..=25) { Ok(()) } else { Err(Errno::EINVAL) }
}

impl Mm {
    /// `madvise(2)` on `start..end`; ENOMEM if part of it is not mapped, after the rest was done.
    pub fn advise(&self, start: u64, end: u64, what: i32) -> Result<()> {
        check(what)?;
        if start == end {
            return Ok(());
        }
        let mut g = self.lock_changing(start, end)?;
        let (list, covered) = parts(&g, start, end);
        let mut punch = alloc::vec::Vec::new();
        for p in &list {
            match what {
                adv::DONTNEED | adv::DONTNEED_LOCKED => {
                    if what == adv::DONTNEED && p.v.flags & vm::LOCKED != 0 {
                        return Err(Errno::EINVAL);
                    }
                    if !p.v.shared() {
                        p.host(adv::DONTNEED)?;
                    }
                }
                adv::FREE => {
                    let locked = p.v.flags & vm::LOCKED != 0;
                    if locked || p.v.shared() || !matches!(p.v.backing, Backing::Anonymous) {
                        return Err(Errno::EINVAL);
                    }
                    p.host(what)?;
                }
                adv::REMOVE => punch.push(removable(p)?),
                adv::POPULATE_READ | adv::POPULATE_WRITE => p.host(what)?,
                adv::WIPEONFORK | adv::KEEPONFORK => {
                    if p.v.shared() || !matches!(p.v.backing, Backing::Anonymous) {
                        return Err(Errno::EINVAL);
                    }
                    p.host(what)?;
                    set(&mut g, p, vm::WIPEONFORK, what == adv::WIPEONFORK);
                }
                adv::DONTFORK | adv::DOFORK => set(&mut g, p, vm::DONTFORK, what == adv::DONTFORK),
                adv::DONTDUMP | adv::DODUMP => set(&mut g, p, vm::DONTDUMP, what == adv::DONTDUMP),
                adv::COLLAPSE => return Err(Errno::EINVAL),
                // Read-ahead, huge pages, merging and reclaim are the host's own business.
                _ => {}
            }
        }
        drop(g);
        for (o, offset, len) in punch {
            o.punch(offset, len)?;
        }
        if covered { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// mlock and munlock.
    pub fn set_locked(&self, start: u64, end: u64, on: bool) -> Result<()> {
        let mut g = self.lock();
        let (list, covered) = parts(&g, start, end);
        let unlocked = |p: &&Part| p.v.flags & vm::LOCKED == 0;
        if on {
            let more: u64 = list.iter().filter(unlocked).map(|p| p.end - p.start).sum();
            check_lock_limit(g.locked + more)?;
        }
        for p in &list {
            let n = p.end - p.start;
            match (p.v.flags & vm::LOCKED != 0, on) {
                (false, true) => g.locked += n,
                (true, false) => g.locked -= n,
                _ => {}
            }
            set(&mut g, p, vm::LOCKED, on);
        }
        if covered { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// mlockall (with `future` for MCL_FUTURE) and munlockall.
    pub fn set_all_locked(&self, current: bool, future: bool) -> Result<()> {
        if current || future {
            let total = if current { self.lock().total } else { 0 };
            check_lock_limit(total)?;
        }
        self.lock().lock_future = future;
        if current || !future {
            // Everything between the ends of the tree: gaps are no error here.
            let _ = self.set_locked(0, doppel_abi_machine::layout::USER_END, current);
        }
        Ok(())
    }

    /// Whether all of `start..end` is mapped.
    pub fn is_covered(&self, start: u64, end: u64) -> bool {
        self.lock().map.is_covered(start, end)
    }

    /// Whether nothing may be done with some part of `start..end`.
    pub fn any_untouchable(&self, start: u64, end: u64) -> bool {
        self.lock().map.overlapping(start, end).any(|(_, _, v)| v.prot == 0)
    }

    /// Whether any part of `start..end` is locked.
    pub fn any_locked(&self, start: u64, end: u64) -> bool {
        self.lock().map.overlapping(start, end).any(|(_, _, v)| v.flags & vm::LOCKED != 0)
    }
}

fn set(g: &mut Inner, p: &Part, bit: u32, on: bool) {
    g.map.update(p.start, p.end, |_, _, v| {
        v.flags = if on { v.flags | bit } else { v.flags & !bit };
    });
}

/// What MADV_REMOVE punches out of a shared object.
fn removable(p: &Part) -> Result<(alloc::sync::Arc<dyn super::PageObject>, u64, u64)> {
    if p.v.flags & vm::LOCKED != 0 || !p.v.shared() {
        return Err(Errno::EINVAL);
    }
    if p.v.max_prot & 2 == 0 {
        return Err(Errno::EACCES);
    }
    match &p.v.backing {
        Backing::Pages(o) => Ok((o.clone(), p.v.offset, p.end - p.start)),
        _ => Err(Errno::EINVAL),
    }
}

/// EPERM for those who may lock nothing.
pub(crate) fn check_may_lock() -> Result<()> {
    match check_lock_limit(1) {
        Err(Errno::EPERM) => Err(Errno::EPERM),
        _ => Ok(()),
    }
}

pub(super) fn check_lock_limit(bytes: u64) -> Result<()> {
    let p = subject();
    let limit = p.rlimit(rlimit::MEMLOCK);
    if bytes <= limit || p.cred().capable(CAP_IPC_LOCK) {
        Ok(())
    } else if limit == 0 {
        Err(Errno::EPERM)
    } else {
        Err(Errno::ENOMEM)
    }
}
