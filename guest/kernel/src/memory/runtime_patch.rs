//! Patches made at run time: system calls in code that no image was scanned for, made into jumps (docs/design.md §4).
//!
//! A site is patched after [`ENOUGH`] traps from it in a row, by rule a of `doppel_abi_image::patch` only: the `mov` of
//! the number before it becomes a jump to a slot. That it is a `mov` is proven, not guessed: a return address on the
//! stack shows which function was called, disassembly from its start reaches the `mov` and the call behind it, and
//! nothing it reaches goes into the middle of the `mov`. What cannot be proven so goes on trapping.
//!
//! Key types: [`RuntimePatches`] (the patches of one space), [`Traps`] (how often sites trapped). Text is written only while
//! the space is halted ([`Space::halted`]), and only in private mappings that are executable and not writable; before
//! anything happens to a mapping that could make it writable, move or end it, its patches are taken back
//! ([`Mm::before_change`]). Slots lie in one mapping of the space near the first site. They are never used
//! for another site, so a thread that stands in one stays right whatever becomes of the site.
//! Lock order: no lock is held when a space is halted; the map's lock is taken while it is.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_image::patch::{ENTRY_SLOT, SLOT};
use doppel_abi_linux::syscalls::nr;
use doppel_abi_machine::boot_flags;
use doppel_abi_machine::layout::{USER_END, USER_START};
use doppel_algo::x86;
use doppel_machine::sync::SpinGuard;
use doppel_machine::task::UserContext;
use doppel_machine::user::UserPtr;
use doppel_machine::{boot, host};

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
/// Slots of a space.
const SLOTS: usize = 512;
/// Changes of its text a space may cost, taking back included: each of them halts it.
const CHANGES: u32 = 2048;
/// How far from the start of its function a site may be.
const FAR: u64 = 4096;
/// How much is looked at behind it.
const BEHIND: u64 = 256;
/// Words on the stack that are looked at.
const WORDS: usize = 64;
/// How far slots may be from a site.
const REACH: u64 = (1 << 31) - (1 << 20);
/// Bytes of the jump.
const JUMP: usize = 5;

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

/// One site: the `mov` before a system call.
#[derive(Clone, Copy)]
struct Site {
    /// Address and bytes of the `mov`.
    mov: u64,
    len: usize,
    /// What the jump replaces.
    original: [u8; JUMP],
    /// The number it loads.
    number: u32,
}

impl Site {
    /// The address of the system call instruction.
    fn call(&self) -> u64 {
        self.mov + self.len as u64
    }

    fn jump(&self, slot: u64) -> [u8; JUMP] {
        let d = (slot.wrapping_sub(self.mov + JUMP as u64) as u32).to_le_bytes();
        [0xe9, d[0], d[1], d[2], d[3]]
    }

    /// The slot's code, as `doppel_abi_image::patch` describes it.
    fn slot_code(&self, slot: u64) -> Vec<u8> {
        let mut code = Vec::with_capacity(SLOT as usize);
        code.push(0xb8);
        code.extend(self.number.to_le_bytes());
        code.extend([0x48, 0x8d, 0x0d]);
        code.extend(((self.call() + 2).wrapping_sub(slot + 12) as u32).to_le_bytes());
        code.extend([0x65, 0xff, 0x24, 0x25]);
        code.extend(ENTRY_SLOT.to_le_bytes());
        code.resize(SLOT as usize, 0xcc);
        code
    }
}

/// The patches of a space.
#[derive(Clone, Default)]
pub(super) struct RuntimePatches {
    /// Where the slots are, once there are any.
    region: Option<u64>,
    /// What each slot stands for.
    slots: Vec<Site>,
    /// Slots whose sites jump to them, by site.
    live: BTreeMap<u64, usize>,
    changes: u32,
}

impl RuntimePatches {
    fn slot(&self, n: usize) -> u64 {
        self.region.unwrap_or(0) + n as u64 * SLOT
    }

    fn region_hit(&self, start: u64, end: u64) -> bool {
        self.region.is_some_and(|r| start < r + SLOTS as u64 * SLOT && end > r)
    }

    /// The patches with bytes in `start..end`: slot number and site.
    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (usize, &Site)> {
        let from = start.saturating_sub(JUMP as u64 - 1);
        self.live.range(from..end.max(from)).filter_map(|(_, n)| Some((*n, self.slots.get(*n)?)))
    }

    /// Whether a change of `start..end` concerns patches.
    fn concerns(&self, start: u64, end: u64) -> bool {
        self.region_hit(start, end) || self.overlapping(start, end).next().is_some()
    }

    /// What a program counter inside a slot stands for: the `mov` at its beginning, else the call.
    pub fn original_pc(&self, pc: u64) -> Option<u64> {
        let at = pc.checked_sub(self.region?)?;
        let site = self.slots.get((at / SLOT) as usize)?;
        Some(if at % SLOT == 0 { site.mov } else { site.call() })
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
    let site = site_before(regs)?;
    let (low, high) = mm.suitable(&site)?;
    if !called_at(regs).into_iter().any(|start| start >= low && proven(&site, start, high)) {
        return None;
    }
    {
        let mut g = mm.lock();
        if g.runtime_patches.changes >= CHANGES || g.runtime_patches.live.contains_key(&site.mov) {
            return None;
        }
        g.runtime_patches.changes += 1;
    }
    space.halted(|| mm.apply(&site)).ok()?
}

/// The `mov` before the system call that has just trapped, if its bytes look so and loaded the number in use.
fn site_before(regs: &UserContext) -> Option<Site> {
    const NEVER: [u32; 5] = [nr::RT_SIGRETURN, nr::CLONE, nr::FORK, nr::VFORK, nr::CLONE3];
    let number = u32::try_from(regs.orig_rax).ok().filter(|n| n >> 31 == 0 && !NEVER.contains(n))?;
    let from = regs.rip.checked_sub(9)?;
    let code: [u8; 9] = UserPtr(from).peek().ok()?;
    let loads = code[3..7] == number.to_le_bytes() && code[7..] == [0x0f, 0x05];
    let len = match code[..3] {
        _ if !loads => return None,
        [.., 0xb8] => 5,
        [0x48, 0xc7, 0xc0] => 7,
        _ => return None,
    };
    let original = code[7 - len..7 - len + JUMP].try_into().ok()?;
    let site = Site { mov: regs.rip - 2 - len as u64, len, original, number };
    // All of it lies in one page, so that it has one protection whatever happens.
    (page_down(site.mov) == page_down(regs.rip - 1)).then_some(site)
}

/// Starts of functions that may have been called, innermost first: what the calls before the return addresses on
/// the stack lead to.
fn called_at(regs: &UserContext) -> Vec<u64> {
    let mut stack = vec![0u8; WORDS * 8];
    let n = UserPtr(regs.rsp).read_some(&mut stack).unwrap_or(0);
    let words = stack[..n].chunks_exact(8).filter_map(|w| Some(u64::from_le_bytes(w.try_into().ok()?)));
    let mut found = Vec::new();
    for back in words.filter(|w| (USER_START + 7..USER_END).contains(w)) {
        if let Some(start) = callee(regs, back) {
            found.push(start);
            found.extend(jumps_on(start));
        }
    }
    found
}

/// Where the call before the return address `back` leads.
fn callee(regs: &UserContext, back: u64) -> Option<u64> {
    let code: [u8; 7] = UserPtr(back - 7).peek().ok()?;
    let rel = i64::from(i32::from_le_bytes([code[3], code[4], code[5], code[6]]));
    let low = [regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi];
    let high = [regs.r8, regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15];
    match code {
        [_, _, 0xe8, ..] => Some(back.wrapping_add_signed(rel)),
        [_, 0xff, 0x15, ..] => UserPtr(back.wrapping_add_signed(rel)).peek().ok(),
        // By a register, if it still holds the address.
        [.., 0x41, 0xff, r @ 0xd0..=0xd7] => Some(high[usize::from(r - 0xd0)]),
        [.., 0xff, r @ 0xd0..=0xd7] => Some(low[usize::from(r - 0xd0)]),
        _ => None,
    }
}

/// Where code that is only a jump leads: a call through a procedure linkage table.
fn jumps_on(at: u64) -> Option<u64> {
    let mut code: [u8; 11] = UserPtr(at).peek().ok()?;
    let mut end = at;
    if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        code.rotate_left(4);
        end += 4;
    }
    if code[0] == 0xf2 {
        code.rotate_left(1);
        end += 1;
    }
    let rel = |b: &[u8]| Some(i64::from(i32::from_le_bytes(b.try_into().ok()?)));
    match code {
        [0xff, 0x25, ..] => UserPtr((end + 6).wrapping_add_signed(rel(&code[2..6])?)).peek().ok(),
        [0xe9, ..] => Some((end + 5).wrapping_add_signed(rel(&code[1..5])?)),
        _ => None,
    }
}

/// Whether disassembly from `start`, in a mapping that ends at `high`, proves the site.
fn proven(site: &Site, start: u64, high: u64) -> bool {
    let end = (site.call() + 2 + BEHIND).min(high);
    if start > site.mov || site.mov - start > FAR {
        return false;
    }
    let mut code = vec![0u8; (end - start) as usize];
    UserPtr(start).peek_bytes(&mut code).is_ok() && x86::reaches(&code, (site.mov - start) as usize, site.len)
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
        let (start, end, v) = g.map.get(site.mov).filter(|(_, _, v)| changeable(v))?;
        (site.call() + 2 <= start + v.mapped_len(end - start)).then_some((start, end))
    }

    /// Makes the site a jump. The space is halted.
    fn apply(&self, site: &Site) -> Option<()> {
        let g = &mut *self.lock();
        let prot = g.map.get(site.mov).filter(|(_, _, v)| changeable(v))?.2.prot;
        // Everything may have changed before the others stopped.
        let mut code = [0u8; 9];
        let code = &mut code[..site.len + 2];
        UserPtr(site.mov).peek_bytes(code).ok()?;
        if !code.starts_with(&site.original) || !code.ends_with(&[0x0f, 0x05]) {
            return None;
        }
        let region = self.slot_region(g, site.mov)?;
        let same = |s: &Site| s.mov == site.mov && s.len == site.len && s.number == site.number;
        let n = match g.runtime_patches.slots.iter().position(same) {
            Some(n) => n,
            None if g.runtime_patches.slots.len() < SLOTS => g.runtime_patches.slots.len(),
            None => return None,
        };
        let slot = region + n as u64 * SLOT;
        if site.mov.abs_diff(slot) > REACH {
            return None;
        }
        if n == g.runtime_patches.slots.len() {
            if !write_text(slot, &site.slot_code(slot), Prot::RX) {
                return None;
            }
            g.runtime_patches.slots.push(*site);
        }
        // From here on it may be in the text: known before it is.
        g.runtime_patches.live.insert(site.mov, n);
        write_text(site.mov, &site.jump(slot), prot).then_some(())
    }

    /// Where the slots are; maps them near `site` the first time.
    fn slot_region(&self, g: &mut Inner, site: u64) -> Option<u64> {
        if let Some(r) = g.runtime_patches.region {
            return Some(r);
        }
        let len = SLOTS as u64 * SLOT;
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
        g.runtime_patches.region = None;
        g.runtime_patches.slots.clear();
        // Not again: the program wants these addresses.
        g.runtime_patches.changes = CHANGES;
        // If the host cannot, the program's own call will fail in the same way.
        self.unmap_locked(g, region, region + SLOTS as u64 * SLOT).unwrap_or_default()
    }

    /// Shows the program's own text in bytes that were read at `at`.
    pub fn show_original(&self, at: u64, bytes: &mut [u8]) {
        if !self.has_late.load(Ordering::Relaxed) {
            return;
        }
        let g = self.lock();
        for (n, site) in g.runtime_patches.overlapping(at, at.saturating_add(bytes.len() as u64)) {
            let jump = site.jump(g.runtime_patches.slot(n));
            for (i, original) in site.original.iter().enumerate() {
                let k = (site.mov + i as u64).checked_sub(at).map(|k| k as usize);
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
    let list: Vec<(usize, Site)> = g.runtime_patches.overlapping(start, end).map(|(n, s)| (n, *s)).collect();
    for (n, site) in list {
        g.runtime_patches.live.remove(&site.mov);
        let Some((_, _, v)) = g.map.get(site.mov) else { continue };
        let (prot, jump) = (v.prot, site.jump(g.runtime_patches.slot(n)));
        let page = page_down(site.mov);
        // Behind the end of a file there is nothing; a page that was given back shows no jump.
        if host::protect_user(page, PAGE, Prot::RW.bits()).is_err() {
            continue;
        }
        if UserPtr(site.mov).peek::<[u8; JUMP]>() == Ok(jump) {
            write_text(site.mov, &site.original, prot);
        } else {
            let back = host::protect_user(page, PAGE, prot.bits()).is_ok();
            assert!(back, "the protection of program text at {page:#x} cannot be given back");
        }
    }
}
