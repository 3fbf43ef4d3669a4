//! Advice, locking, residency and synchronisation of mapped memory.

use doppel_machine::host;

use super::Mm;
use super::map::Inner;
use super::vma::{Backing, Prot, VmFlags, Vma};
use crate::core::numbers::numbers;
use crate::core::subject::{Resource, subject};
use crate::{Errno, Result};

numbers! {
    /// What a program says of memory it has mapped (`madvise(2)`).
    #[allow(missing_docs)]
    pub enum Advice {
        Normal = 0,
        Random = 1,
        Sequential = 2,
        WillNeed = 3,
        DontNeed = 4,
        Free = 8,
        Remove = 9,
        DontFork = 10,
        DoFork = 11,
        Mergeable = 12,
        Unmergeable = 13,
        HugePage = 14,
        NoHugePage = 15,
        DontDump = 16,
        DoDump = 17,
        WipeOnFork = 18,
        KeepOnFork = 19,
        Cold = 20,
        PageOut = 21,
        PopulateRead = 22,
        PopulateWrite = 23,
        DontNeedLocked = 24,
        Collapse = 25,
    }
}

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

    fn host(&self, advice: Advice) -> Result<()> {
        let n = self.host_end() - self.start;
        if n == 0 {
            return Ok(());
        }
        if self.v.flags.contains(VmFlags::THAWED) {
            match advice {
                Advice::DontNeed | Advice::Free => return self.v.map_host(self.start, 0, n, false),
                // The host refuses it for mappings of files: fork does it (map.rs).
                Advice::WipeOnFork => return Ok(()),
                _ => {}
            }
        }
        host::advise_user(self.start, n, advice as i32).map_err(|e| match e.0 {
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

impl Inner {
    /// EPERM if part of `start..end` is sealed: then it is not to be unmapped, moved, mapped over or protected otherwise.
    pub(super) fn check_unsealed(&self, start: u64, end: u64) -> Result<()> {
        let sealed = self.map.overlapping(start, end).any(|(_, _, v)| v.flags.contains(VmFlags::SEALED));
        if sealed { Err(Errno::EPERM) } else { Ok(()) }
    }
}

/// Whether advice would change what a program sees in memory that is sealed, and that it could not write itself.
fn changes_sealed(v: &Vma, what: Advice) -> bool {
    use Advice::{DontFork, DontNeed, DontNeedLocked, Free, Remove, WipeOnFork};
    let discards = matches!(what, Free | DontNeed | DontNeedLocked | Remove | DontFork | WipeOnFork);
    let anonymous = !v.shared() && matches!(v.backing, Backing::Anonymous);
    discards && v.flags.contains(VmFlags::SEALED) && anonymous && !v.prot.contains(Prot::WRITE)
}

impl Mm {
    /// `mseal(2)`: ENOMEM if part of it is not mapped, and nothing is sealed then.
    pub fn seal(&self, start: u64, end: u64) -> Result<()> {
        let mut g = self.lock();
        let (list, covered) = parts(&g, start, end);
        if !covered {
            return Err(Errno::ENOMEM);
        }
        list.iter().for_each(|p| set(&mut g, p, VmFlags::SEALED, true));
        Ok(())
    }

    /// `madvise(2)` on `start..end`; ENOMEM if part of it is not mapped, after the rest was done.
    pub fn advise(&self, start: u64, end: u64, what: Advice) -> Result<()> {
        if start == end {
            return Ok(());
        }
        let mut g = self.lock_changing(start, end)?;
        let (list, covered) = parts(&g, start, end);
        let mut punch = alloc::vec::Vec::new();
        for p in &list {
            if changes_sealed(&p.v, what) {
                return Err(Errno::EPERM);
            }
            match what {
                Advice::DontNeed | Advice::DontNeedLocked => {
                    if what == Advice::DontNeed && p.v.flags.contains(VmFlags::LOCKED) {
                        return Err(Errno::EINVAL);
                    }
                    if !p.v.shared() {
                        p.host(Advice::DontNeed)?;
                        g.swapped.remove(p.start, p.end);
                    }
                }
                Advice::Free => {
                    let locked = p.v.flags.contains(VmFlags::LOCKED);
                    if locked || p.v.shared() || !matches!(p.v.backing, Backing::Anonymous) {
                        return Err(Errno::EINVAL);
                    }
                    p.host(what)?;
                    g.swapped.remove(p.start, p.end);
                }
                Advice::Remove => punch.push(removable(p)?),
                Advice::PopulateRead | Advice::PopulateWrite => {
                    if p.v.shared() && super::MISSING.any() {
                        p.v.map_whole(p.start, 0, p.host_end() - p.start, false)?;
                    }
                    p.host(what)?;
                }
                Advice::WipeOnFork | Advice::KeepOnFork => {
                    if p.v.shared() || !matches!(p.v.backing, Backing::Anonymous) {
                        return Err(Errno::EINVAL);
                    }
                    p.host(what)?;
                    set(&mut g, p, VmFlags::WIPEONFORK, what == Advice::WipeOnFork);
                }
                Advice::DontFork | Advice::DoFork => {
                    set(&mut g, p, VmFlags::DONTFORK, what == Advice::DontFork)
                }
                Advice::DontDump | Advice::DoDump => {
                    set(&mut g, p, VmFlags::DONTDUMP, what == Advice::DontDump)
                }
                Advice::Collapse => return Err(Errno::EINVAL),
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
        let unlocked = |p: &&Part| !p.v.flags.contains(VmFlags::LOCKED);
        if on {
            let more: u64 = list.iter().filter(unlocked).map(|p| p.end - p.start).sum();
            check_lock_limit(g.locked + more)?;
        }
        for p in &list {
            let n = p.end - p.start;
            match (p.v.flags.contains(VmFlags::LOCKED), on) {
                (false, true) => {
                    g.locked += n;
                    bring_back(&g, p);
                }
                (true, false) => g.locked -= n,
                _ => {}
            }
            set(&mut g, p, VmFlags::LOCKED, on);
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
        self.lock().map.overlapping(start, end).any(|(_, _, v)| v.prot.is_empty())
    }

    /// Whether any part of `start..end` is locked.
    pub fn any_locked(&self, start: u64, end: u64) -> bool {
        self.lock().map.overlapping(start, end).any(|(_, _, v)| v.flags.contains(VmFlags::LOCKED))
    }
}

/// What was moved to the swap region and is locked now is in memory from here on, as far as there is some.
fn bring_back(g: &Inner, p: &Part) {
    let advice = if p.v.prot.contains(Prot::WRITE) { Advice::PopulateWrite } else { Advice::PopulateRead };
    for (s, e, _) in g.swapped.overlapping(p.start, p.end) {
        let (s, e) = (s.max(p.start), e.min(p.end));
        let _ = host::advise_user(s, e - s, advice as i32);
    }
}

fn set(g: &mut Inner, p: &Part, bit: VmFlags, on: bool) {
    g.map.update(p.start, p.end, |_, _, v| {
        v.flags.set(bit, on);
    });
}

/// What MADV_REMOVE punches out of a shared object.
fn removable(p: &Part) -> Result<(alloc::sync::Arc<dyn super::PageObject>, u64, u64)> {
    if p.v.flags.contains(VmFlags::LOCKED) || !p.v.shared() {
        return Err(Errno::EINVAL);
    }
    if !p.v.max_prot.contains(Prot::WRITE) {
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
    let limit = p.rlimit(Resource::Memlock);
    if bytes <= limit || p.cred().capable(CAP_IPC_LOCK) {
        Ok(())
    } else if limit == 0 {
        Err(Errno::EPERM)
    } else {
        Err(Errno::ENOMEM)
    }
}
