//! Checks a patched copy against the original, without disassembling: the trampolines alone say what was changed,
//! and with exactly that changed the original must become the copy.

use doppel_abi_image::patch::{ENTRY_SLOT, SLOT};

use super::sites::{JUMP, WIDE, WIDE_MOV};

/// The bytes before the operand of a `mov` of this length.
const fn load(len: usize) -> &'static [u8] {
    if len == JUMP { &[0xb8] } else { &WIDE_MOV }
}

/// Numbers of sites by rule a and b. The error is a sentence for people.
pub fn check(
    original: &[u8],
    copy: &[u8],
    trampolines: &[u8],
    distance: u64,
) -> std::result::Result<(u32, u32), String> {
    if original.len() != copy.len() {
        return Err("the copy has another length".into());
    }
    let mut expected = original.to_vec();
    let (mut a, mut b) = (0, 0);
    let mut slots = trampolines.chunks_exact(SLOT as usize).enumerate();
    for (n, slot) in slots.by_ref().take_while(|(_, s)| s[0] != 0xcc) {
        let wrong = |why: &str| format!("trampoline {n}: {why}");
        let int =
            |at: usize| i64::from(i32::from_le_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]));
        let here = n as i64 * SLOT as i64;
        let jumps = slot[5..8] == [0x48, 0x8d, 0x0d]
            && slot[12..16] == [0x65, 0xff, 0x24, 0x25]
            && int(16) == i64::from(ENTRY_SLOT)
            && slot[20..].iter().all(|x| *x == 0xcc);
        if !jumps {
            return Err(wrong("is not as it should be"));
        }
        let back = here + 12 + int(8) - distance as i64;
        let site = usize::try_from(back - 2).map_err(|_| wrong("returns outside the segment"))?;
        if original.get(site..site + 2) != Some(&[0x0f, 0x05]) {
            return Err(wrong("does not stand for a system call"));
        }
        let from = if slot[0] == 0xb8 {
            let before = |len: usize| {
                let mov = site.checked_sub(len)?;
                (original[mov..site - 4] == *load(len) && original[site - 4..site] == slot[1..5])
                    .then_some(mov)
            };
            // The same number as a sign-extended operand, which must be positive, is two bytes longer.
            let mov = before(JUMP).or_else(|| before(WIDE).filter(|_| slot[4] < 0x80));
            a += 1;
            mov.ok_or_else(|| wrong("loads another number than its site"))?
        } else if slot[..5] == [0x0f, 0x1f, 0x44, 0, 0] {
            let [0xeb, short] = copy[site..site + 2] else { return Err(wrong("its site does not jump")) };
            let hole = (site as i64 + 2 + i64::from(short.cast_signed())) as usize;
            if original.get(hole..hole + 5).is_none_or(|h| expected[hole..hole + 5] != *h) {
                return Err(wrong("shares its hole"));
            }
            expected[site..site + 2].copy_from_slice(&[0xeb, short]);
            b += 1;
            hole
        } else {
            return Err(wrong("is not as it should be"));
        };
        let rel = (here - (distance as i64 + from as i64 + 5)) as i32;
        expected[from] = 0xe9;
        expected[from + 1..from + 5].copy_from_slice(&rel.to_le_bytes());
    }
    if trampolines[(a + b) as usize * SLOT as usize..].iter().any(|x| *x != 0xcc) {
        return Err("something follows the last trampoline".into());
    }
    if expected != copy {
        return Err("the copy differs from the original elsewhere than at patched sites".into());
    }
    Ok((a, b))
}
