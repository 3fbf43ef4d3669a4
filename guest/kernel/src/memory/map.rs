//! The memory map of an address space: mapping, unmapping, protecting, brk, fork.

use crate::memory::commit::COMMIT;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_abi_machine::layout::{USER_END, USER_START};
use doppel_algo::rangemap::{Piece, RangeMap};
use doppel_machine::host;
use doppel_machine::sync::{SpinGuard, SpinLock};

use super::commit::Commit;
use super::frozen::LOG;
use super::swap;
use super::vma::{Prot, VmFlags, Vma};
use super::{Layout, PAGE, page_up};
use crate::core::subject::{Resource, subject};
use crate::{Errno, Result};

/// Most mappings of one space; the host's own limit is 65,530.
const MAX_VMAS: usize = 60_000;

/// Room kept below a mapping that grows down (`stack_guard_gap`).
pub(super) const STACK_GUARD: u64 = 256 * PAGE;

/// Bytes mapped from which on a space counts as large.
const LARGE: u64 = 32 << 20;

/// Where a mapping goes.
#[derive(Clone, Copy, Debug)]
pub enum MapAt {
    /// Anywhere, here if it is free (0: anywhere).
    Hint(u64),
    /// In the low 2 GiB (MAP_32BIT).
    Low(u64),
    /// Here, replacing what is there.
    Fixed(u64),
    /// Here; EEXIST if something is there.
    NoReplace(u64),
}

/// Addresses of a program's parts, for /proc/PID/stat and prctl.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Areas {
    pub start_code: u64,
    pub end_code: u64,
    pub start_data: u64,
    pub end_data: u64,
    pub start_brk: u64,
    pub brk: u64,
    pub start_stack: u64,
    pub arg_start: u64,
    pub arg_end: u64,
    pub env_start: u64,
    pub env_end: u64,
}

#[derive(Clone, Default)]
pub(super) struct Inner {
    pub map: RangeMap<Vma>,
    pub layout: Layout,
    pub areas: Areas,
    /// Bytes charged to the domain.
    pub charged: u64,
    /// Bytes mapped.
    pub total: u64,
    /// Bytes of private writable memory (RLIMIT_DATA).
    pub data: u64,
    /// Bytes locked.
    pub locked: u64,
    /// mlockall(MCL_FUTURE).
    pub lock_future: bool,
    /// Ranges the host copied at fork that the child must not have (MADV_DONTFORK).
    pub leftovers: Vec<(u64, u64)>,
    /// Ranges that the host copied at fork and that must be new in the child: MADV_WIPEONFORK of pages mapped from
    /// a frozen image, where the host does not do it.
    pub wiped: Vec<(u64, u64)>,
    /// Where and how often the last fault was retried.
    pub last_retry: (u64, u32),
    /// What is mapped from the swap region.
    pub swapped: RangeMap<swap::Piece>,
    /// Patches made at run time.
    pub runtime_patches: super::runtime_patch::RuntimePatches,
}

/// The memory map of one address space.
pub struct Mm {
    pub(super) inner: SpinLock<Inner>,
    pub(super) commit: &'static Commit,
    /// How often system calls trapped.
    pub(super) traps: super::runtime_patch::Traps,
    /// Whether there are patches made at run time.
    pub(super) has_late: AtomicBool,
    /// What faults when it is written.
    pub(super) guards: super::frozen::Guards,
}

impl Default for Mm {
    fn default() -> Self {
        Self {
            inner: SpinLock::default(),
            commit: COMMIT.get(),
            traps: super::runtime_patch::Traps::default(),
            has_late: AtomicBool::new(false),
            guards: super::frozen::Guards::default(),
        }
    }
}

/// Mappings taken out of the tree; dropped by callers after the lock is released.
pub(super) type Removed = Vec<(u64, u64, Vma)>;

fn is_data(v: &Vma) -> bool {
    v.prot.contains(Prot::WRITE) && !v.shared() && !v.flags.contains(VmFlags::STACK)
}

impl Inner {
    /// Takes `start..end` out of the tree and the accounts.
    pub fn take(&mut self, commit: &Commit, start: u64, end: u64) -> Removed {
        let old = self.map.remove(start, end);
        self.swapped.remove(start, end);
        for (s, e, v) in &old {
            self.uncount(commit, v, e - s);
        }
        old
    }

    /// Puts a mapping into the tree and the accounts (the charge was made before).
    pub fn put(&mut self, start: u64, end: u64, mut v: Vma) {
        let n = end - start;
        v.note_written();
        self.total += n;
        if is_data(&v) {
            self.data += n;
        }
        if v.flags.contains(VmFlags::LOCKED) {
            self.locked += n;
        }
        if v.flags.contains(VmFlags::CHARGED) {
            self.charged += n;
        }
        self.map.insert(start, end, v);
    }

    fn uncount(&mut self, commit: &Commit, v: &Vma, n: u64) {
        self.total -= n;
        if is_data(v) {
            self.data -= n;
        }
        if v.flags.contains(VmFlags::LOCKED) {
            self.locked -= n;
        }
        if v.flags.contains(VmFlags::CHARGED) {
            self.charged -= n;
            commit.uncharge(n);
        }
    }

    /// Finds room.
    pub fn place(&self, place: MapAt, len: u64) -> Result<u64> {
        let fits = |a: u64| a >= USER_START && a.checked_add(len).is_some_and(|e| e <= USER_END);
        let hinted = |a: u64| {
            let a = super::page_down(a);
            (a != 0 && fits(a) && self.map.is_free(a, a + len)).then_some(a)
        };
        match place {
            MapAt::Hint(a) => hinted(a).or_else(|| self.gap_below(len)).ok_or(Errno::ENOMEM),
            MapAt::Low(a) => hinted(a)
                .filter(|a| a + len <= 1 << 31)
                .or_else(|| self.map.gap_above(0x4000_0000, 1 << 31, len))
                .ok_or(Errno::ENOMEM),
            MapAt::Fixed(a) | MapAt::NoReplace(a) => {
                if a % PAGE != 0 {
                    return Err(Errno::EINVAL);
                }
                if !fits(a) {
                    return Err(if a < USER_START { Errno::EPERM } else { Errno::ENOMEM });
                }
                if matches!(place, MapAt::NoReplace(_)) && !self.map.is_free(a, a + len) {
                    return Err(Errno::EEXIST);
                }
                Ok(a)
            }
        }
    }

    /// The highest gap that leaves room below mappings that grow down.
    fn gap_below(&self, len: u64) -> Option<u64> {
        let mut top = self.layout.mmap_top;
        loop {
            let at = self.map.gap_below(USER_START, top, len)?;
            let end = at + len;
            match self.map.overlapping(end, end + STACK_GUARD).next() {
                Some((s, _, v)) if v.flags & (VmFlags::GROWSDOWN | VmFlags::STACK) == VmFlags::GROWSDOWN => {
                    top = s.checked_sub(STACK_GUARD)?;
                }
                _ => return Some(at),
            }
        }
    }

    /// RLIMIT_AS, RLIMIT_DATA and the number of mappings, before `len` more bytes.
    pub fn check_limits(&self, v: &Vma, len: u64) -> Result<()> {
        let p = subject();
        if self.map.len() >= MAX_VMAS
            || self.total.saturating_add(len) > p.rlimit(Resource::As)
            || (is_data(v) && self.data.saturating_add(len) > p.rlimit(Resource::Data))
        {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }
}

impl Mm {
    pub(super) fn lock(&self) -> SpinGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Maps `len` bytes (page aligned, not 0) as `v` says; returns the address.
    pub fn map(&self, place: MapAt, len: u64, v: Vma, populate: bool) -> Result<u64> {
        let mut g = match place {
            MapAt::Fixed(at) => self.lock_changing(at, at.saturating_add(len))?,
            _ => self.lock(),
        };
        if let MapAt::Fixed(at) = place {
            g.check_unsealed(at, at.saturating_add(len))?;
        }
        let (r, garbage) = self.map_locked(&mut g, place, len, v, populate);
        drop(g);
        drop(garbage);
        r
    }

    pub(super) fn map_locked(
        &self,
        g: &mut Inner,
        place: MapAt,
        len: u64,
        v: Vma,
        populate: bool,
    ) -> (Result<u64>, Removed) {
        let mut garbage = Removed::new();
        let r = self.map_into(g, place, len, v, populate, &mut garbage);
        (r, garbage)
    }

    fn map_into(
        &self,
        g: &mut Inner,
        place: MapAt,
        len: u64,
        mut v: Vma,
        populate: bool,
        garbage: &mut Removed,
    ) -> Result<u64> {
        let start = g.place(place, len)?;
        let end = start + len;
        let replaced: u64 = g.map.overlapping(start, end).map(|(s, e, _)| e.min(end) - s.max(start)).sum();
        g.check_limits(&v, len - replaced)?;
        if g.lock_future {
            v.flags |= VmFlags::LOCKED;
        }
        if v.flags.contains(VmFlags::LOCKED) {
            let gone: u64 = g
                .map
                .overlapping(start, end)
                .map(
                    |(s, e, o)| if o.flags.contains(VmFlags::LOCKED) { e.min(end) - s.max(start) } else { 0 },
                )
                .sum();
            super::advise::check_lock_limit(g.locked - gone + len).map_err(|_| Errno::EAGAIN)?;
        }
        if v.chargeable() {
            self.commit.charge(len)?;
            v.flags |= VmFlags::CHARGED;
        }
        v.present = v.file_end();
        let mapped = v.mapped_len(len);
        // The host replaces what is there in one step, except behind the end of a file.
        if replaced > 0 && mapped < len {
            let _ = host::unmap_user(start + mapped, len - mapped);
        }
        if let Err(e) = v.map_host(start, 0, mapped, populate) {
            *garbage = g.take(self.commit, start, end);
            // Nothing must be left of a half-made mapping; the pages were just mapped, so this cannot fail.
            let _ = host::unmap_user(start, len);
            if v.flags.contains(VmFlags::CHARGED) {
                self.commit.uncharge(len);
            }
            return Err(e);
        }
        if replaced > 0 {
            *garbage = g.take(self.commit, start, end);
        }
        g.put(start, end, v);
        Ok(start)
    }

    /// Unmaps `start..end` (page aligned).
    pub fn unmap(&self, start: u64, end: u64) -> Result<()> {
        let mut g = self.lock_changing(start, end)?;
        g.check_unsealed(start, end)?;
        let garbage = self.unmap_locked(&mut g, start, end)?;
        drop(g);
        self.drop_trampolines(&garbage);
        drop(garbage);
        Ok(())
    }

    pub(super) fn unmap_locked(&self, g: &mut Inner, start: u64, end: u64) -> Result<Removed> {
        let mut bounds = g.map.overlapping(start, end).map(|(s, e, _)| (s.max(start), e.min(end)));
        let Some((first, mut last)) = bounds.next() else { return Ok(Removed::new()) };
        last = bounds.last().map_or(last, |(_, e)| e);
        host::unmap_user(first, last - first).map_err(|_| Errno::ENOMEM)?;
        Ok(g.take(self.commit, first, last))
    }

    /// Changes the protection of `start..end`.
    pub fn protect(&self, start: u64, end: u64, prot: Prot) -> Result<()> {
        let mut g = self.lock_changing(start, end)?;
        g.check_unsealed(start, end)?;
        let g = &mut *g;
        let mut at = start;
        // (start, end, host end) of runs whose host mappings are contiguous.
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        let mut charge = 0;
        let mut result = Ok(());
        for (s, e, v) in g.map.overlapping(start, end) {
            let (s, e, whole) = (s.max(start), e.min(end), s);
            if s > at {
                result = Err(Errno::ENOMEM);
                break;
            }
            if !v.max_prot.contains(prot) {
                result = Err(Errno::EACCES);
                break;
            }
            let host_end = (whole + v.mapped_len(u64::MAX >> 1)).clamp(s, e);
            if v.prot != prot {
                let mut new = v.clone();
                new.prot = prot;
                if new.chargeable() {
                    charge += e - s;
                }
                match runs.last_mut() {
                    Some(r) if r.1 == s && r.2 == s => (r.1, r.2) = (e, host_end),
                    _ => runs.push((s, e, host_end)),
                }
            }
            at = e;
        }
        if result.is_ok() && at < end {
            result = Err(Errno::ENOMEM);
        }
        if charge > 0 {
            self.commit.charge(charge)?;
        }
        let mut charged = 0;
        for (s, e, host_end) in runs {
            if prot.contains(Prot::WRITE) && LOG.pages().is_some() {
                // It may be written from here on.
                g.map.overlapping(s, e).filter(|(.., v)| v.shared()).for_each(|(from, to, v)| {
                    v.note_written_to(0, v.mapped_len(to - from));
                });
            }
            if host_end > s && host::protect_user(s, host_end - s, prot.bits()).is_err() {
                result = Err(Errno::ENOMEM);
                break;
            }
            let (mut more, mut less) = (0, 0);
            g.map.update(s, e, |s, e, v| {
                less += if is_data(v) { e - s } else { 0 };
                v.prot = prot;
                v.note_written();
                if v.chargeable() {
                    v.flags |= VmFlags::CHARGED;
                    charged += e - s;
                }
                more += if is_data(v) { e - s } else { 0 };
            });
            g.data = g.data + more - less;
        }
        g.charged += charged;
        self.commit.uncharge(charge - charged);
        result
    }

    /// brk(2): moves the end of the heap to `new` if possible; returns where it is.
    pub fn brk(&self, new: u64) -> u64 {
        let (at, garbage) = {
            let mut g = self.lock();
            let garbage = self.brk_locked(&mut g, new);
            (g.areas.brk, garbage)
        };
        drop(garbage);
        at
    }

    fn brk_locked(&self, g: &mut Inner, new: u64) -> Removed {
        let (start, old) = (g.areas.start_brk, g.areas.brk);
        if new < start || new > USER_END || start == 0 {
            return Removed::new();
        }
        let (from, to) = (page_up(old), page_up(new));
        let mut garbage = Removed::new();
        if to < from {
            if g.check_unsealed(to, from).is_err() {
                return garbage;
            }
            match self.unmap_locked(g, to, from) {
                Ok(r) => garbage = r,
                Err(_) => return garbage,
            }
        } else if to > from {
            if new - start > subject().rlimit(Resource::Data) {
                return garbage;
            }
            let (r, old) = self.map_locked(
                g,
                MapAt::NoReplace(from),
                to - from,
                Vma::anonymous(Prot::RW, VmFlags::empty()),
                false,
            );
            garbage = old;
            if r.is_err() {
                return garbage;
            }
        }
        g.areas.brk = new;
        garbage
    }

    /// A copy of the map for a forked space; the host copies the memory.
    pub fn fork(&self) -> Result<Self> {
        let mut new = self.lock().clone();
        let with = |bits: VmFlags| -> Vec<(u64, u64)> {
            new.map.iter().filter(|(_, _, v)| v.flags.contains(bits)).map(|(s, e, _)| (s, e)).collect()
        };
        let gone = with(VmFlags::DONTFORK);
        let wiped = with(VmFlags::WIPEONFORK | VmFlags::THAWED);
        // What the parent was charged for is shared until written; the child pays for new memory only. Locks
        // are not inherited.
        new.map.update(0, USER_END, |_, _, v| {
            v.flags -= VmFlags::LOCKED;
            if v.flags.contains(VmFlags::CHARGED) {
                v.flags = (v.flags - VmFlags::CHARGED) | VmFlags::NO_CHARGE;
            }
        });
        new.charged = 0;
        new.locked = 0;
        new.lock_future = false;
        for &(s, e) in &gone {
            new.take(self.commit, s, e);
        }
        for &(s, e) in &wiped {
            new.swapped.remove(s, e);
        }
        let guards = self.guards.fork(&gone);
        new.leftovers = gone;
        new.wiped = wiped;
        Ok(Self {
            inner: SpinLock::new(new),
            commit: self.commit,
            traps: super::runtime_patch::Traps::default(),
            has_late: AtomicBool::new(self.has_late.load(Ordering::SeqCst)),
            guards,
        })
    }

    /// First thing in a new host process, before any of its threads runs: removes what it must not have.
    /// `frozen`: take the memory from there.
    pub fn enter(&self, frozen: i32) {
        if frozen != 0 {
            self.restore(frozen);
            return;
        }
        let mut g = self.lock();
        for (s, e) in core::mem::take(&mut g.wiped) {
            let host = |v: &Vma| v.map_host(s, 0, e - s, false);
            if g.map.get(s).is_some_and(|(_, _, v)| host(v).is_err()) {
                panic!("memory that forks wipe cannot be mapped anew at {s:#x}");
            }
        }
        let gone = core::mem::take(&mut g.leftovers);
        drop(g);
        for (s, e) in gone {
            // The host copied these pages; taking them away again cannot fail for want of memory.
            let _ = host::unmap_user(s, e - s);
        }
    }

    /// Unmaps everything of the current space (exec).
    pub fn exec_reset(&self) -> Result<()> {
        host::unmap_all_user().map_err(|_| Errno::ENOMEM)?;
        let old = core::mem::take(&mut *self.lock());
        self.forget_late();
        self.commit.uncharge(old.charged);
        Ok(())
    }

    /// Whether so much is mapped that unmapping it may take longer than making a new host process.
    pub fn is_large(&self) -> bool {
        self.lock().total > LARGE
    }

    /// Forgets all mappings: the last thread is leaving, and the host process with it.
    pub fn release(&self) {
        let old = core::mem::take(&mut *self.lock());
        self.commit.uncharge(old.charged);
    }

    /// Chooses the addresses of a new program and maps its stack.
    pub fn begin_program(&self, stack_size: u64, stack_prot: Prot) -> Result<Layout> {
        let layout = Layout::new(stack_size);
        self.lock().layout = layout;
        let v = Vma::anonymous(stack_prot, VmFlags::NO_CHARGE | VmFlags::GROWSDOWN | VmFlags::STACK);
        let len = layout.stack_top - layout.stack_low;
        self.map(MapAt::NoReplace(layout.stack_low), len, v, false)?;
        Ok(layout)
    }

    /// The mapping at `addr`, as seen from `addr` on.
    pub fn vma(&self, addr: u64) -> Option<Vma> {
        let g = self.lock();
        g.map.get(addr).map(|(s, _, v)| Piece::tail(v, addr - s))
    }

    /// Where mmap would put `len` bytes.
    pub fn find_gap(&self, len: u64) -> Result<u64> {
        self.lock().place(MapAt::Hint(0), len)
    }

    /// Addresses of the program's parts.
    pub fn areas(&self) -> Areas {
        self.lock().areas
    }

    /// Changes the addresses of the program's parts.
    pub fn with_areas(&self, f: impl FnOnce(&mut Areas)) {
        f(&mut self.lock().areas);
    }

    /// ENOMEM unless `n` bytes can be charged; `anew`: once this map has given back all of its own.
    pub fn check_room(&self, n: u64, anew: bool) -> Result<()> {
        let own = if anew { self.lock().charged } else { 0 };
        self.commit.check_room(n, own)
    }

    /// Bytes charged in the whole domain (`Committed_AS`).
    pub fn committed(&self) -> u64 {
        self.commit.used()
    }
}

impl Drop for Mm {
    fn drop(&mut self) {
        let charged = self.lock().charged;
        self.commit.uncharge(charged);
    }
}

impl Mm {
    /// Start of the MAP_GROWSDOWN mapping that holds `addr` (mprotect with PROT_GROWSDOWN).
    pub(crate) fn growsdown_start(&self, addr: u64) -> Result<u64> {
        let g = self.lock();
        let (s, _, v) = g.map.get(addr).ok_or(Errno::ENOMEM)?;
        if v.flags.contains(VmFlags::GROWSDOWN) { Ok(s) } else { Err(Errno::EINVAL) }
    }
}
