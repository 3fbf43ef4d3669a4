//! Makes the patched copy of a segment and its trampolines.

use doppel_abi_image::patch::{ENTRY_SLOT, SLOT};

use super::elf::Module;
use super::sites::{JUMP, Rule, Site};
use super::{PAGE, Refusal};

/// A module's patched text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patched {
    /// Offset in the file of the segment.
    pub segment: u64,
    /// The segment with its patches, whole pages.
    pub text: Vec<u8>,
    /// The trampolines, whole pages.
    pub trampolines: Vec<u8>,
    /// From the trampolines' address up to the segment's.
    pub distance: u64,
    /// Sites patched by rule a.
    pub rule_a: u32,
    /// Sites patched by rule b.
    pub rule_b: u32,
}

/// Applies the patches. `file` is the whole file: the last page of the segment holds what follows it there.
pub(super) fn emit(module: &Module<'_>, file: &[u8], sites: &[Site]) -> Result<Patched, Refusal> {
    let patches: Vec<(usize, Rule)> = sites.iter().filter_map(|(at, v)| Some((*at, v.ok()?))).collect();
    let trampolines_len = (patches.len() as u64 * SLOT).next_multiple_of(PAGE);
    if module.fixed && module.lowest < trampolines_len + 0x10000 {
        return Err(Refusal::NoRoom);
    }
    let distance = module.base - module.lowest + trampolines_len;
    let len = (module.text.len() as u64).next_multiple_of(PAGE);
    // Every displacement below is between these two ends.
    if distance + len >= 1 << 31 {
        return Err(Refusal::Distance);
    }
    let end = (module.segment + len).min(file.len() as u64) as usize;
    let mut text = file[module.segment as usize..end].to_vec();
    text.resize(len as usize, 0);
    let mut trampolines = Vec::with_capacity(trampolines_len as usize);
    let (mut rule_a, mut rule_b) = (0, 0);
    for (n, (at, rule)) in patches.into_iter().enumerate() {
        // Addresses from the first trampoline on.
        let slot = n as i64 * SLOT as i64;
        let site = distance as i64 + at as i64;
        let jump_to_slot = |from: i64| {
            let mut jump = [0xe9; JUMP];
            jump[1..].copy_from_slice(&((slot - from - JUMP as i64) as i32).to_le_bytes());
            jump
        };
        let load = match rule {
            Rule::A(number, len) => {
                let mov = at - len;
                text[mov..mov + JUMP].copy_from_slice(&jump_to_slot(site - len as i64));
                rule_a += 1;
                let n = number.to_le_bytes();
                [0xb8, n[0], n[1], n[2], n[3]]
            }
            Rule::B(hole) => {
                let short = (hole as i64 - (at as i64 + 2)) as i8;
                text[at..at + 2].copy_from_slice(&[0xeb, short.cast_unsigned()]);
                text[hole..hole + JUMP].copy_from_slice(&jump_to_slot(distance as i64 + hole as i64));
                rule_b += 1;
                [0x0f, 0x1f, 0x44, 0, 0]
            }
        };
        trampolines.extend(load);
        trampolines.extend([0x48, 0x8d, 0x0d]);
        trampolines.extend(((site + 2 - (slot + 12)) as i32).to_le_bytes());
        trampolines.extend([0x65, 0xff, 0x24, 0x25]);
        trampolines.extend(ENTRY_SLOT.to_le_bytes());
        trampolines.resize((slot + SLOT as i64) as usize, 0xcc);
    }
    trampolines.resize(trampolines_len as usize, 0xcc);
    Ok(Patched { segment: module.segment, text, trampolines, distance, rule_a, rule_b })
}
