//! Patches made at run time: system calls in code that no image was scanned for, made into jumps (docs/design.md §4).
//!
//! A site is patched after [`ENOUGH`] traps from it in a row, by one of two rules.
//!
//! Rule a of `doppel_abi_image::patch`: the `mov` of the number before the call becomes a jump to a slot. That it is a `mov`
//! is proven, not guessed: a return address on the stack shows which function was called, disassembly from its start reaches
//! the `mov` and the call behind it, and nothing it reaches goes into the middle of the `mov`.
//!
//! Rule c, for what is left: the call itself and the beginning of the instruction behind it become a jump; the slot makes the
//! call, does that instruction, and jumps behind it. Both are instructions, as they were executed. A thread, a signal's frame or a
//! jump may stand between them: the third byte of the jump is there, and the slot lies where that is an `int3`, which
//! leads to the slot ([`Mm::behind_call`]). What has no such instruction behind it goes on trapping.
//!
//! Key types: [`RuntimePatches`] (the patches of one space), [`Traps`] (how often sites trapped). Text is written only while
//! the space is halted ([`Space::halted`]), and only in private mappings that are executable and not writable; before
//! anything happens to a mapping that could make it writable, move or end it, its patches are taken back
//! ([`Mm::before_change`]). Slots lie in one mapping of the space near the first site. They are never used
//! for another site, so a thread that stands in one stays right whatever becomes of the site.
//! Lock order: no lock is held when a space is halted; the map's lock is taken while it is.

mod site;
mod slots;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_machine::boot_flags;
use doppel_abi_machine::layout::{USER_END, USER_START};
use doppel_machine::sync::SpinGuard;
use doppel_machine::task::UserContext;
use doppel_machine::user::UserPtr;
use doppel_machine::{boot, host};

use site::{JUMP, REACH, Site};
use slots::REGION;
pub(super) use slots::RuntimePatches;

use super::OTHERS;
use super::map::Inner;
use super::vma::{Backing, Prot, VmFlags, Vma};
use super::{MapAt, Mm, PAGE, page_down};
use crate::Result;
use crate::core::events::{Kind, record};
use crate::core::part::{Lazy, Part};
use crate::core::sched::{Runnable, Space};

/// Traps from one site before it is patched.
const ENOUGH: u64 = 10;
/// Places in a table of traps: more sites that trap in turns are not patched.
const COUNTED: usize = 64;

/// How often system calls trapped, by address: the address and below it a count of 16 bits.
pub(super) struct Traps(Vec<AtomicU64>);

impl Default for Traps {
    fn default() -> Self {
        Self((0..COUNTED).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Traps {
    /// Counts a trap; true if it is time to patch. Threads may count over each other: then it takes longer.
    fn count(&self, pc: u64) -> bool {
        let entry = &self.0[(pc ^ pc >> 6) as usize % COUNTED];
        let old = entry.load(Ordering::Relaxed);
        if old >> 16 != pc {
            entry.store(pc << 16 | 1, Ordering::Relaxed);
            return false;
        }
        let n = old & 0xffff;
        if n > ENOUGH {
            return false;
        }
        entry.store(old + 1, Ordering::Relaxed);
        n == ENOUGH
    }

    fn forget(&self) {
        self.0.iter().for_each(|e| e.store(0, Ordering::Relaxed));
    }
}

/// Whether patches are wanted at all.
pub(crate) struct Enabled(bool);

/// The domain's.
pub(crate) static ENABLED: Part<Lazy<Enabled>> = Part::new();

impl Default for Enabled {
    fn default() -> Self {
        Self(boot::boot_data().args.flags & boot_flags::NO_PATCH == 0)
    }
}

/// A system call of the current thread came by a trap: counts it, and patches its site when it is time to.
/// Not one that is watched, which must come by the trap.
pub fn trapped<R: Runnable<Memory = Mm>>(t: &R, watched: impl FnOnce() -> bool) {
    let space = t.entity().space();
    let regs = t.task().regs();
    if space.mm.traps.count(regs.rip) && !watched() && ENABLED.get().get().0 {
        // Most sites that stay as they are cannot be proven; the next attempt is ten traps after another site has
        // taken this one's place in the table.
        let kind = if patch(&space, &regs).is_some() { Kind::PatchMade } else { Kind::PatchFailed };
        record(kind, [regs.orig_rax, regs.rip, 0]);
    }
}

/// Patches the site the registers come from; `None` if it stays as it is.
fn patch<R: Runnable<Memory = Mm>>(space: &alloc::sync::Arc<Space<R>>, regs: &UserContext) -> Option<()> {
    let mm = &space.mm;
    let load = site::load_before(regs).filter(|site| {
        mm.suitable(site).is_some_and(|(low, high)| {
            let starts = site::called_at(regs);
            starts.into_iter().any(|start| start >= low && site::proven(site, start, high))
        })
    });
    let call = || site::call_at(regs).filter(|site| mm.suitable(site).is_some());
    let site = load.or_else(call)?;
    if !mm.lock().runtime_patches.may_change(&site) {
        return None;
    }
    space.halted(|| mm.apply(&site)).ok()?
}

/// Whether text may be changed there.
fn changeable(v: &Vma) -> bool {
    let own = !v.flags.intersects(VmFlags::SHARED | VmFlags::VDSO | VmFlags::PATCHED | VmFlags::TRAMPOLINE);
    own && v.prot.contains(Prot::EXEC)
        && !v.prot.contains(Prot::WRITE)
        && !matches!(v.backing, Backing::Image { .. })
}

/// Writes to a page of text, whose protection is `prot`. The space is halted.
fn write_text(at: u64, bytes: &[u8], prot: Prot) -> bool {
    let page = page_down(at);
    if host::protect_user(page, PAGE, Prot::RW.bits()).is_err() {
        return false;
    }
    let done = UserPtr(at).poke_bytes(bytes).is_ok();
    // The page exists, so this fails only if the host splits its mapping and has no room: it was split just now.
    let back = host::protect_user(page, PAGE, prot.bits()).is_ok();
    assert!(back, "the protection of program text at {at:#x} cannot be given back");
    done
}

impl Mm {
    /// The mapping around a site whose text may be changed.
    fn suitable(&self, site: &Site) -> Option<(u64, u64)> {
        let g = self.lock();
        let (start, end, v) = g.map.get(site.at).filter(|(_, _, v)| changeable(v))?;
        (site.end() <= start + v.mapped_len(end - start)).then_some((start, end))
    }

    /// Makes the site a jump. The space is halted.
    fn apply(&self, site: &Site) -> Option<()> {
        let g = &mut *self.lock();
        let prot = g.map.get(site.at).filter(|(_, _, v)| changeable(v))?.2.prot;
        // Everything may have changed before the others stopped.
        if !site.is_there() {
            return None;
        }
        let region = self.slot_region(g, site.at)?;
        let slot = g.runtime_patches.place(region, site)?;
        if !g.runtime_patches.has(slot) {
            if !write_text(slot, &site.slot_code(slot), Prot::RX) {
                return None;
            }
            g.runtime_patches.add(slot, *site);
        }
        // From here on it may be in the text: known before it is.
        g.runtime_patches.jumps(site, slot);
        write_text(site.at, &site.jump(slot), prot).then_some(())
    }

    /// Where the slots are; maps them near `site` the first time.
    fn slot_region(&self, g: &mut Inner, site: u64) -> Option<u64> {
        if let Some(r) = g.runtime_patches.region {
            return Some(r);
        }
        let len = REGION;
        let near = REACH / 2;
        let low = site.saturating_sub(near).max(USER_START);
        let high = site.saturating_add(near).min(USER_END);
        let at = g
            .map
            .gap_below(low, page_down(site), len)
            .or_else(|| g.map.gap_above(page_down(site), high, len))?;
        let mut v = Vma::anonymous(Prot::RX, VmFlags::NO_CHARGE | VmFlags::TRAMPOLINE);
        v.max_prot = Prot::RX;
        let (r, garbage) = self.map_locked(g, MapAt::NoReplace(at), len, v, false);
        drop(garbage);
        r.ok()?;
        g.runtime_patches.region = Some(at);
        self.has_late.store(true, Ordering::SeqCst);
        Some(at)
    }

    /// Before the mapping or the bytes of `start..end` change: takes the patches there back, so that the program finds its
    /// own text. If the program lays hands on the slots' mapping, all patches go and it too, as if it never was.
    pub fn before_change(&self, start: u64, end: u64) -> Result<()> {
        if !self.has_late.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !self.lock().runtime_patches.concerns(start, end) {
            return Ok(());
        }
        (OTHERS.get().halted)(self, &mut || {
            let garbage = {
                let g = &mut *self.lock();
                if g.runtime_patches.region_hit(start, end) {
                    self.drop_late(g)
                } else {
                    take_back(g, start, end);
                    super::map::Removed::new()
                }
            };
            drop(garbage);
            // What is there next is counted anew.
            self.traps.forget();
        })
    }

    /// The lock of the map, with no patch and no guard in `start..end` as long as it is held.
    pub(super) fn lock_changing(&self, start: u64, end: u64) -> Result<SpinGuard<'_, Inner>> {
        self.lock_changing_both((start, end), (0, 0))
    }

    /// As [`Self::lock_changing`], for two ranges.
    pub(super) fn lock_changing_both(&self, a: (u64, u64), b: (u64, u64)) -> Result<SpinGuard<'_, Inner>> {
        loop {
            self.before_change(a.0, a.1)?;
            self.before_change(b.0, b.1)?;
            let g = self.lock();
            if !g.runtime_patches.concerns(a.0, a.1) && !g.runtime_patches.concerns(b.0, b.1) {
                self.guards.release(a.0, a.1);
                self.guards.release(b.0, b.1);
                return Ok(g);
            }
        }
    }

    /// Takes all patches back and unmaps the slots. The space is halted.
    fn drop_late(&self, g: &mut Inner) -> super::map::Removed {
        take_back(g, 0, USER_END);
        let Some(region) = g.runtime_patches.region else { return super::map::Removed::new() };
        // Those who stand in a slot go on in the text it stands for.
        (OTHERS.get().each_thread)(&mut |task| {
            let mut regs = task.regs();
            if let Some(pc) = g.runtime_patches.original_pc(regs.rip) {
                regs.rip = pc;
                task.set_regs(&regs);
            }
        });
        // Not again: the program wants these addresses.
        g.runtime_patches.end();
        // If the host cannot, the program's own call will fail in the same way.
        self.unmap_locked(g, region, region + REGION).unwrap_or_default()
    }

    /// Where a program goes on that has come to an `int3` of ours: behind a system call that is a jump by now.
    pub fn behind_call(&self, pc: u64) -> Option<u64> {
        if !self.has_late.load(Ordering::Relaxed) {
            return None;
        }
        self.lock().runtime_patches.behind_call(pc)
    }

    /// As [`Mm::original_pc`], for a thread that is behind a call or not: then it can be in a slot of rule c only.
    pub fn shown_pc(&self, pc: u64, behind_call: bool) -> u64 {
        if behind_call && !self.has_late.load(Ordering::Relaxed) { pc } else { self.original_pc(pc) }
    }

    /// Whether a program counter is in code that stands for a part of one instruction of the program's.
    pub fn is_inside(&self, pc: u64) -> bool {
        self.original_pc(pc) != pc && !self.lock().runtime_patches.is_back(pc)
    }

    /// Shows the program's own text in bytes that were read at `at`.
    pub fn show_original(&self, at: u64, bytes: &mut [u8]) {
        if !self.has_late.load(Ordering::Relaxed) {
            return;
        }
        let g = self.lock();
        for (slot, site) in g.runtime_patches.overlapping(at, at.saturating_add(bytes.len() as u64)) {
            let jump = site.jump(slot);
            for (i, original) in site.original.iter().enumerate() {
                let k = (site.at + i as u64).checked_sub(at).map(|k| k as usize);
                if let Some(b) = k.and_then(|k| bytes.get_mut(k)).filter(|b| **b == jump[i]) {
                    *b = *original;
                }
            }
        }
    }

    /// The program is replaced by another one.
    pub(super) fn forget_late(&self) {
        self.has_late.store(false, Ordering::SeqCst);
        self.traps.forget();
    }
}

/// Writes the original text of the patches in `start..end` back. The space is halted.
fn take_back(g: &mut Inner, start: u64, end: u64) {
    let list: Vec<(u64, Site)> = g.runtime_patches.overlapping(start, end).map(|(n, s)| (n, *s)).collect();
    for (slot, site) in list {
        g.runtime_patches.taken_back(&site);
        let Some((_, _, v)) = g.map.get(site.at) else { continue };
        let (prot, jump) = (v.prot, site.jump(slot));
        let page = page_down(site.at);
        // Behind the end of a file there is nothing; a page that was given back shows no jump.
        if host::protect_user(page, PAGE, Prot::RW.bits()).is_err() {
            continue;
        }
        if UserPtr(site.at).peek::<[u8; JUMP]>() == Ok(jump) {
            write_text(site.at, &site.original, prot);
        } else {
            let back = host::protect_user(page, PAGE, prot.bits()).is_ok();
            assert!(back, "the protection of program text at {page:#x} cannot be given back");
        }
    }
}
