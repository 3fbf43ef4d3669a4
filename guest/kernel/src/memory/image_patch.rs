//! Patched executable text: mapping a file's patched copy and its trampolines (docs/design.md §4).
//!
//! The root image holds, beside each scanned executable, a copy of its text in which system calls jump to
//! trampolines (`doppel_abi_image::patch`). An executable mapping of such a file shows the copy, with the
//! trampolines mapped a fixed distance below it; if that place is taken, it shows the original, which traps.
//! Programs never see the difference: reads give the original bytes, signal frames the original addresses.

use alloc::vec::Vec;

use doppel_abi_image::patch::{FOOTER_FROM_END, PatchEntry, PatchFooter, SLOT};
use doppel_abi_machine::boot_flags;
use doppel_machine::boot;

use super::Mapped;
use super::vma::{Backing, Prot, VmFlags, Vma};
use super::{MapAt, Mm, PAGE};
use crate::Result;
use crate::core::part::{Lazy, Part};

/// The image's patched segments, in order of node and segment. Empty with `--no-patch`.
pub(crate) struct Patches(Vec<PatchEntry>);

/// The domain's.
pub(crate) static PATCHES: Part<Lazy<Patches>> = Part::new();

impl Default for Patches {
    fn default() -> Self {
        let off = boot::boot_data().args.flags & boot_flags::NO_PATCH != 0;
        Self(if off { Vec::new() } else { read_table(boot::image()).unwrap_or_default() })
    }
}

/// The entries of the image's patch section that are sound.
fn read_table(image: &[u8]) -> Option<Vec<PatchEntry>> {
    let footer = PatchFooter::parse(image.get(image.len().checked_sub(FOOTER_FROM_END as usize)?..)?)?;
    let table = usize::try_from(footer.table).ok()?;
    let len = (footer.count as usize).checked_mul(PatchEntry::SIZE)?;
    let bytes = image.get(table..table.checked_add(len)?)?;
    let entries = bytes.chunks_exact(PatchEntry::SIZE).filter_map(PatchEntry::parse);
    Some(entries.filter(|e| sound(e, image.len() as u64)).collect())
}

fn sound(e: &PatchEntry, image: u64) -> bool {
    let within = |at: u64, len: u64| {
        at.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && at.checked_add(len).is_some_and(|x| x <= image)
    };
    within(e.text, e.len)
        && within(e.trampolines, e.trampolines_len)
        && e.segment.is_multiple_of(PAGE)
        && e.text >= e.segment
        && e.distance.is_multiple_of(PAGE)
        && e.distance >= e.trampolines_len
        && e.distance < 1 << 31
}

/// The patched segment of a clean file of the root image, if it has one.
fn entry_of(file: &dyn Mapped) -> Option<PatchEntry> {
    let patches = PATCHES.get().get();
    if patches.0.is_empty() {
        return None;
    }
    let (_, nid) = file.place()?;
    patches.0.binary_search_by_key(&nid, |e| e.nid).ok().map(|i| patches.0[i])
}

impl Mm {
    /// Maps a file: as [`Mm::map`], but executable text of the root image shows its patched copy where it can.
    pub fn map_file(&self, place: MapAt, len: u64, v: Vma, populate: bool) -> Result<u64> {
        let Some(e) = v
            .file
            .as_ref()
            .filter(|_| matches!(v.backing, Backing::Image { .. }))
            .and_then(|f| entry_of(&**f))
        else {
            return self.map(place, len, v, populate);
        };
        match place {
            MapAt::Fixed(at) if v.prot.contains(Prot::EXEC) && !v.shared() => {
                let v = self.with_trampolines(at, len, &e, v);
                self.map(place, len, v, populate)
            }
            // A whole module: leave room for its trampolines below.
            MapAt::Hint(0) if v.offset == 0 && len > e.len => {
                let below = e.trampolines_len;
                let at = self.find_gap(len + below).map(|gap| MapAt::NoReplace(gap + below));
                match at.and_then(|p| self.map(p, len, v.clone(), populate)) {
                    Ok(a) => Ok(a),
                    Err(_) => self.map(place, len, v, populate),
                }
            }
            _ => self.map(place, len, v, populate),
        }
    }

    /// The mapping to make at `at`: patched if the trampolines can be (or are) where it expects them.
    fn with_trampolines(&self, at: u64, len: u64, e: &PatchEntry, v: Vma) -> Vma {
        let inside = v.offset >= e.segment && v.offset + len <= e.segment + e.len;
        let Some(place) =
            at.checked_sub(v.offset - e.segment.min(v.offset)).and_then(|a| a.checked_sub(e.distance))
        else {
            return v;
        };
        if !inside {
            return v;
        }
        let mut t = Vma::object(
            Prot::RX,
            VmFlags::TRAMPOLINE,
            Backing::Image { base: e.trampolines, len: e.trampolines_len },
            v.file.clone(),
            0,
        );
        t.max_prot = Prot::RX;
        let present = {
            let g = self.lock();
            g.map.get(place).is_some_and(|(s, _, o)| {
                s == place && matches!(o.backing, Backing::Image { base, .. } if base == e.trampolines)
            })
        };
        if !present && self.map(MapAt::NoReplace(place), e.trampolines_len, t, false).is_err() {
            return v;
        }
        let len = match v.backing {
            Backing::Image { len, .. } => len.max(e.segment + e.len),
            _ => e.segment + e.len,
        };
        Vma {
            backing: Backing::Image { base: e.text - e.segment, len },
            flags: v.flags | VmFlags::PATCHED,
            ..v
        }
    }

    /// Unmaps the trampolines of patched text that has just been unmapped whole.
    pub(super) fn drop_trampolines(&self, removed: &[(u64, u64, Vma)]) {
        for (start, _, v) in removed.iter().filter(|(_, _, v)| v.flags.contains(VmFlags::PATCHED)) {
            let Some(e) = v.file.as_ref().and_then(|f| entry_of(&**f)).filter(|e| e.segment == v.offset)
            else {
                continue;
            };
            let at = start - e.distance;
            // Only what is ours: the program may have mapped something else there.
            let ours = self
                .lock()
                .map
                .get(at)
                .is_some_and(|(s, _, o)| s == at && o.flags.contains(VmFlags::TRAMPOLINE));
            if ours {
                // Best effort: a failure leaves an unused mapping behind.
                let _ = self.unmap(at, at + e.trampolines_len);
            }
        }
    }

    /// The program counter a program expects to see: for one inside a trampoline or its jump, the address of the
    /// system call it stands for.
    pub fn original_pc(&self, pc: u64) -> u64 {
        let g = self.lock();
        if let Some(pc) = g.runtime_patches.original_pc(pc) {
            return pc;
        }
        let Some((start, _, v)) = g.map.get(pc) else { return pc };
        let text_at = |at: u64| g.map.get(at).and_then(|(start, _, v)| code_at::<5>(v, start, at));
        if v.flags.contains(VmFlags::TRAMPOLINE) {
            let slot = pc & !(SLOT - 1);
            return slot_site(v, start, slot, pc, text_at).unwrap_or(pc);
        }
        if !v.flags.contains(VmFlags::PATCHED) {
            return pc;
        }
        // A hole of rule b holds `jmp rel32` to a slot; a site of rule a does too, but is where it should be.
        let Some([0xe9, d @ ..]) = code_at::<5>(v, start, pc) else { return pc };
        let target = pc.wrapping_add(5).wrapping_add_signed(i64::from(i32::from_le_bytes(d)));
        let Some((tramp, _, t)) = g.map.get(target).filter(|(_, _, t)| t.flags.contains(VmFlags::TRAMPOLINE))
        else {
            return pc;
        };
        match code_at::<1>(t, tramp, target) {
            Some([0xb8]) => pc,
            _ => slot_site(t, tramp, target, target, text_at).unwrap_or(pc),
        }
    }
}

/// Bytes of the image shown at `pc` by a mapping that starts at `start`.
fn code_at<const N: usize>(v: &Vma, start: u64, pc: u64) -> Option<[u8; N]> {
    let Backing::Image { base, .. } = v.backing else { return None };
    let at = usize::try_from(base + v.offset + (pc - start)).ok()?;
    boot::image().get(at..at + N)?.try_into().ok()
}

/// The original address for `pc` in the trampoline slot at `slot`; `text_at` reads mapped code.
fn slot_site(
    v: &Vma,
    start: u64,
    slot: u64,
    pc: u64,
    text_at: impl Fn(u64) -> Option<[u8; 5]>,
) -> Option<u64> {
    let code: [u8; 12] = code_at(v, start, slot)?;
    let rel = i32::from_le_bytes(code[8..12].try_into().ok()?);
    let back = slot.wrapping_add(12).wrapping_add_signed(i64::from(rel));
    // Otherwise the number is loaded: the syscall instruction.
    if code[0] != 0xb8 || pc != slot {
        return Some(back - 2);
    }
    // Rule a before its mov: the whole site again. The jump to here is where the mov was.
    let jumps = |mov: u64| {
        let rel = slot.wrapping_sub(mov + 5) as u32;
        text_at(mov).is_some_and(|b| b[0] == 0xe9 && b[1..] == rel.to_le_bytes())
    };
    Some(if jumps(back - 7) { back - 7 } else { back - 9 })
}
