//! Faults of programs: which signal they mean, and those that can be repaired.
//!
//! Pages of a mapped file behind its end have no host mapping, so touching them faults: SIGBUS, unless the file
//! has grown since, in which case the new pages are mapped and the instruction runs again. So it is with holes of sparse
//! files and of shared pages that a clone's frozen image still has, which get memory when they are touched, and below mappings that grow
//! down. Copies of the kernel's that meet such memory have it made too, and go on ([`mend_missed`]), but for those under locks: what
//! they are to meet is touched before ([`before_copies`]). Only if it has gone between, a call that has moved nothing is made again.
//! Guards (frozen/guard.rs) are lifted where they are met.

use core::sync::atomic::{AtomicBool, Ordering};

use doppel_abi_machine::layout::{USER_END, USER_START};
use doppel_machine::host;
use doppel_machine::trap::{FaultInfo, Guard};
use doppel_machine::user::{Fault, Missed, UserPtr, take_missed};

use super::OTHERS;
use super::map::STACK_GUARD;
use super::vma::{Backing, Prot, VmFlags, Vma};
use super::{MapAt, Mm, PAGE, page_down, page_up};
use crate::core::part::Part;
use crate::core::subject::{Resource, subject};
use crate::process::signal::sig;

/// What to do about an exception of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOutcome {
    /// The cause is gone: run the instruction again.
    Retry,
    /// Deliver this signal.
    Signal {
        /// Signal number.
        signo: i32,
        /// `si_code`.
        code: i32,
        /// `si_addr`.
        addr: u64,
    },
}

const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const BUS_ADRERR: i32 = 2;
const SI_KERNEL: i32 = 0x80;
const TRAP_PAGE_FAULT: u64 = 14;
/// Retries of one address in a row before it counts as a real fault.
const MAX_RETRIES: u32 = 64;

/// Judges a fault of the current thread, whose memory this is.
pub fn handle_fault(mm: &Mm, info: &FaultInfo) -> FaultOutcome {
    let as_is = FaultOutcome::Signal { signo: info.signo, code: info.code, addr: info.addr };
    // The host's own signals have the numbers of some exception before.
    if info.trapno != TRAP_PAGE_FAULT
        || info.code == SI_KERNEL
        || !matches!(info.signo, sig::SIGSEGV | sig::SIGBUS)
    {
        return as_is;
    }
    // Error code bits: 1 write, 4 instruction fetch.
    let want = if info.err & 2 != 0 {
        Prot::WRITE
    } else if info.err & 16 != 0 {
        Prot::EXEC
    } else {
        Prot::READ
    };
    if want == Prot::WRITE && info.signo == sig::SIGSEGV && mm.lift_guard(info.addr) == Guard::Lifted {
        return FaultOutcome::Retry;
    }
    mm.judge(info.addr, want, info.signo, as_is)
}

/// After a copy of the kernel's has met memory of the current space, whose map this is, that was not there: whether it is now.
#[cold]
pub fn mend_missed(mm: &Mm) -> bool {
    take_missed().is_some_and(|m| mm.mend(m))
}

/// Copies `len` bytes from or to memory of the current space, whose map this is, as far as it is there or can be: `step(done)` copies
/// what follows `done` bytes, up to a fault; gives how many bytes were copied.
pub fn copy_mended(
    mm: &Mm,
    len: usize,
    mut step: impl FnMut(usize) -> core::result::Result<usize, Fault>,
) -> core::result::Result<usize, Fault> {
    let (mut done, mut retries) = (0, 0);
    loop {
        let got = step(done).unwrap_or(0);
        done += got;
        retries = if got == 0 { retries + 1 } else { 0 };
        if done >= len || retries > MAX_RETRIES || !mend_missed(mm) {
            break;
        }
    }
    if done == 0 && len != 0 { Err(Fault) } else { Ok(done) }
}

/// Whether pages may be mapped into programs that have to be touched before they are there.
#[derive(Default)]
pub struct Missing(AtomicBool);

/// The domain's.
pub static MISSING: Part<Missing> = Part::new();

impl Missing {
    /// There are some from here on, or none yet.
    pub fn set(&self, any: bool) {
        self.0.store(any, Ordering::SeqCst);
    }

    /// Whether there may be some.
    #[inline]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Before a call copies many bytes from or to memory of the current space, holding locks: what can be there is there then, so that it
/// is not cut short. Pages may miss in clones ([`super::PageObject::map_lazily`]), and holes of sparse files; once there they stay.
#[inline]
pub fn before_copies(at: UserPtr, len: usize) {
    if len != 0 && MISSING.any() {
        touch_all(at, len);
    }
}

#[cold]
fn touch_all(at: UserPtr, len: usize) {
    (OTHERS.get().here)(&mut |mm| mm.touch(at.0, at.0.saturating_add(len as u64)));
}

impl Mm {
    /// Touches the pages of `start..end` that may miss.
    fn touch(&self, start: u64, end: u64) {
        let pages: alloc::vec::Vec<(u64, u64)> = {
            let g = self.lock();
            let may_miss = |v: &Vma| matches!(v.backing, Backing::Pages(_)) && !v.prot.is_empty();
            let mine = g.map.overlapping(start, end).filter(|(.., v)| may_miss(v));
            mine.map(|(s, e, v)| (s.max(start), e.min(end).min(s + v.mapped_len(e - s)))).collect()
        };
        for (mut at, end) in pages {
            let mut retries = 0;
            while at < end {
                if UserPtr(at & !3).load_u32().is_ok() {
                    (at, retries) = (page_down(at) + PAGE, 0);
                } else if retries > MAX_RETRIES || !mend_missed(self) {
                    break;
                }
                retries += 1;
            }
        }
    }

    fn judge(&self, addr: u64, want: Prot, signo: i32, as_is: FaultOutcome) -> FaultOutcome {
        let segv = |code| FaultOutcome::Signal { signo: sig::SIGSEGV, code, addr };
        let bus = FaultOutcome::Signal { signo: sig::SIGBUS, code: BUS_ADRERR, addr };
        let mut g = self.lock();
        let g = &mut *g;
        let Some((start, end, v)) = g.map.get(addr) else {
            return if self.grow_down(g, addr) { FaultOutcome::Retry } else { segv(SEGV_MAPERR) };
        };
        // On x86 everything readable: write or execute permission includes reading.
        let allowed = v.prot | Prot::READ.when(v.prot.intersects(Prot::WRITE | Prot::EXEC));
        if !allowed.contains(want) {
            return segv(SEGV_ACCERR);
        }
        let rel = page_down(addr - start);
        if rel >= v.mapped_len(end - start) {
            return if self.map_grown(g, start, end, rel) { FaultOutcome::Retry } else { bus };
        }
        if signo == sig::SIGBUS && v.fill_hole(start, end - start, rel).is_err() {
            // Neither the domain nor the host has memory for a page of the page file.
            return bus;
        }
        if signo == sig::SIGSEGV && want == Prot::WRITE && v.may_write_pages() {
            // A guard that is not on the list: the space was forked meanwhile.
            v.unguard(start, end, addr);
        }
        // The tree allows it, so another thread changed the mapping between the fault and now: look again.
        if g.may_retry(addr) {
            FaultOutcome::Retry
        } else if signo == sig::SIGBUS {
            bus
        } else {
            as_is
        }
    }

    /// Grows the MAP_GROWSDOWN mapping above `addr` down to it, if the limits allow it and nothing lies too close below.
    fn grow_down(&self, g: &mut super::map::Inner, addr: u64) -> bool {
        let at = page_down(addr);
        let Some((start, _, v)) = g.map.overlapping(at, USER_END).next() else { return false };
        let (v, len) = (v.clone(), start - at);
        if v.flags & (VmFlags::GROWSDOWN | VmFlags::STACK) != VmFlags::GROWSDOWN || at < USER_START {
            return false;
        }
        let close = g.map.overlapping(at.saturating_sub(STACK_GUARD).max(USER_START), at).last();
        if close
            .is_some_and(|(_, _, below)| !below.prot.is_empty() && !below.flags.contains(VmFlags::GROWSDOWN))
        {
            return false;
        }
        let process = subject();
        let size = g.map.get(start).map_or(0, |(s, e, _)| e - s) + len;
        if size > process.rlimit(Resource::Stack) {
            return false;
        }
        let mut more = v;
        more.flags -= VmFlags::CHARGED;
        let (r, garbage) = self.map_locked(g, MapAt::NoReplace(at), len, more, false);
        drop(garbage);
        r.is_ok()
    }

    /// Whether memory that a copy of the kernel's missed can be there now: the call may be made again.
    fn mend(&self, missed: Missed) -> bool {
        let mut g = self.lock();
        let g = &mut *g;
        match g.map.get(missed.page) {
            None => !missed.bus && self.grow_down(g, missed.page),
            Some((start, end, v)) => {
                let rel = missed.page - start;
                let there = rel < v.mapped_len(end - start);
                if !missed.bus && there && v.may_write_pages() {
                    v.unguard(start, end, missed.page);
                    return g.may_retry(missed.page);
                }
                missed.bus && there && v.fill_hole(start, end - start, rel).is_ok()
            }
        }
    }

    /// Maps the pages a file has gained, if they include `rel` bytes from `start`.
    fn map_grown(&self, g: &mut super::map::Inner, start: u64, end: u64, rel: u64) -> bool {
        let Some((_, _, v)) = g.map.get(start) else { return false };
        let v: Vma = v.clone();
        if matches!(v.backing, Backing::Anonymous) {
            return false;
        }
        let (old, new) = (v.mapped_len(end - start), v.file_end());
        let to = new.saturating_sub(v.offset).min(end - start);
        if rel >= to || v.map_host(start, old, to, false).is_err() {
            return false;
        }
        g.map.update(start, end, |_, _, v| v.present = new);
        true
    }
}

impl super::map::Inner {
    /// Whether what failed at `addr` may be tried once more.
    fn may_retry(&mut self, addr: u64) -> bool {
        self.last_retry = if self.last_retry.0 == addr { (addr, self.last_retry.1 + 1) } else { (addr, 1) };
        self.last_retry.1 <= MAX_RETRIES
    }
}

/// Where the word of a futex lies, for processes that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexPlace {
    /// In memory of one space only.
    Own,
    /// In an object that others may map.
    Object {
        /// The object.
        id: u64,
        /// Offset of the word in it.
        offset: u64,
    },
    /// It cannot be read, or not written: private pages count only if they may be written.
    Nowhere,
}

impl Mm {
    /// Where the word at `addr` lies; `write`: for one that the kernel changes.
    pub fn futex_place(&self, addr: u64, write: bool) -> FutexPlace {
        let g = self.lock();
        let Some((start, _, v)) = g.map.get(addr) else { return FutexPlace::Nowhere };
        if v.prot.is_empty()
            || !v.prot.contains(Prot::WRITE) && (write || matches!(v.backing, Backing::Anonymous))
        {
            return FutexPlace::Nowhere;
        }
        match &v.backing {
            Backing::Pages(o) if v.shared() => {
                FutexPlace::Object { id: o.id(), offset: v.offset + (addr - start) }
            }
            _ => FutexPlace::Own,
        }
    }
}

/// An object became shorter: its pages behind the new end leave every space that maps it, so that touching them
/// gives SIGBUS. The caller holds no lock: other spaces do that themselves.
pub fn object_shrunk(id: u64, len: u64) {
    (OTHERS.get().object_shrunk)(id, len);
}

impl Mm {
    /// Whether pages of an object behind `len` are mapped here.
    pub fn shows_shrunk(&self, id: u64, len: u64) -> bool {
        let end = page_up(len);
        self.lock().map.iter().any(|(.., v)| shows_behind(v, id, end))
    }
}

fn shows_behind(v: &Vma, id: u64, end: u64) -> bool {
    matches!(&v.backing, Backing::Pages(o) if o.id() == id) && v.present > end
}

/// Takes the pages of an object behind `len` out of the current space.
pub fn unmap_behind(mm: &Mm, id: u64, len: u64) {
    let end = page_up(len);
    let mut g = mm.lock();
    let list: alloc::vec::Vec<(u64, u64, u64, u64)> = g
        .map
        .iter()
        .filter(|(.., v)| shows_behind(v, id, end))
        .map(|(s, e, v)| (s, e, v.mapped_len(e - s), end.saturating_sub(v.offset).min(e - s)))
        .collect();
    for (s, e, old, new) in list {
        mm.guards.release(s + new, s + old);
        if new < old && host::unmap_user(s + new, old - new).is_err() {
            // The host has too many mappings: the pages stay and read as zeros.
            continue;
        }
        g.map.update(s, e, |_, _, v| v.present = end);
    }
}
