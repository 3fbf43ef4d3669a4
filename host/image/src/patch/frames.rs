//! Extents of functions from unwind tables (`.eh_frame`): the most reliable list a stripped file has.

use std::ops::Range;

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, elf};

/// A function in an unwind table.
pub(super) struct Function {
    /// Its addresses.
    pub range: Range<u64>,
    /// Whether it is where signal handlers return to (augmentation `S`).
    pub signal: bool,
}

/// The functions the file's unwind table covers; what cannot be read is left out.
pub(super) fn functions(parsed: &ElfFile64<'_, LittleEndian>, file: &[u8]) -> Vec<Function> {
    let section = parsed.section_by_name(".eh_frame").and_then(|s| Some((s.address(), s.data().ok()?)));
    section.or_else(|| by_header(parsed, file)).map_or_else(Vec::new, |(at, data)| read(at, data))
}

/// Finds the table through `PT_GNU_EH_FRAME`, in a file without section headers.
fn by_header<'a>(parsed: &ElfFile64<'_, LittleEndian>, file: &'a [u8]) -> Option<(u64, &'a [u8])> {
    let e = LittleEndian;
    let headers = parsed.elf_program_headers();
    let header = headers.iter().find(|p| p.p_type(e) == elf::PT_GNU_EH_FRAME)?;
    let bytes = file.get(usize::try_from(header.p_offset(e)).ok()?..)?;
    // Version 1; the pointer to the table relative to itself, 4 bytes: what every linker writes.
    if bytes.first() != Some(&1) || bytes.get(1) != Some(&0x1b) {
        return None;
    }
    let rel = i32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    let at = header.p_vaddr(e).wrapping_add(4).wrapping_add_signed(rel.into());
    let load = headers.iter().find(|p| {
        p.p_type(e) == elf::PT_LOAD && at.checked_sub(p.p_vaddr(e)).is_some_and(|d| d < p.p_filesz(e))
    })?;
    let start = load.p_offset(e).checked_add(at - load.p_vaddr(e))?;
    let end = load.p_offset(e).checked_add(load.p_filesz(e))?;
    Some((at, file.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)?))
}

/// Walks the table at address `base`.
fn read(base: u64, data: &[u8]) -> Vec<Function> {
    let word = |at: usize| Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let mut found = Vec::new();
    let mut at = 0;
    // 64-bit lengths (all ones) do not occur in programs; they end the walk like the final zero.
    while let Some(len) = word(at).filter(|l| *l != 0 && *l != u32::MAX) {
        let next = at + 4 + len as usize;
        let Some(id) = word(at + 4) else { break };
        if id != 0
            && let Some(cie) = (at + 4).checked_sub(id as usize)
            && let Some((encoding, signal)) = encoding(data, cie)
            && let Some(range) = range(base, data, at + 8, encoding)
        {
            found.push(Function { range, signal });
        }
        at = next;
    }
    found
}

/// How the frames of the common entry at `cie` write addresses, and whether they are signal frames.
fn encoding(data: &[u8], cie: usize) -> Option<(u8, bool)> {
    let rest = data.get(cie.checked_add(8)?..)?;
    let (version, rest) = rest.split_first()?;
    let end = rest.iter().position(|b| *b == 0)?;
    let (augmentation, mut rest) = (&rest[..end], &rest[end + 1..]);
    if augmentation.first() != Some(&b'z') {
        return augmentation.is_empty().then_some((0, false));
    }
    leb(&mut rest)?;
    leb(&mut rest)?;
    if *version == 1 {
        rest = rest.get(1..)?;
    } else {
        leb(&mut rest)?;
    }
    leb(&mut rest)?;
    let mut encoding = 0;
    for letter in &augmentation[1..] {
        match letter {
            b'R' => (encoding, rest) = (*rest.first()?, &rest[1..]),
            b'L' => rest = rest.get(1..)?,
            b'P' => rest = rest.get(1 + width(*rest.first()?)?..)?,
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some((encoding, augmentation.contains(&b'S')))
}

/// Skips a LEB128 number.
fn leb(rest: &mut &[u8]) -> Option<()> {
    let len = rest.iter().position(|b| b & 0x80 == 0)? + 1;
    *rest = &rest[len..];
    Some(())
}

/// Bytes of a pointer of this encoding.
fn width(encoding: u8) -> Option<usize> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x03 | 0x0b => Some(4),
        0x02 | 0x0a => Some(2),
        _ => None,
    }
}

/// The extent the frame whose fields start at `at` describes.
fn range(base: u64, data: &[u8], at: usize, encoding: u8) -> Option<Range<u64>> {
    let width = width(encoding)?;
    let read = |at: usize| -> Option<u64> {
        let bytes = data.get(at..at.checked_add(width)?)?;
        Some(match width {
            8 => u64::from_le_bytes(bytes.try_into().ok()?),
            4 => u32::from_le_bytes(bytes.try_into().ok()?).into(),
            _ => return None,
        })
    };
    let (raw, len) = (read(at)?, read(at + width)?);
    let signed = if encoding & 0x0f == 0x0b { i64::from(raw as u32 as i32).cast_unsigned() } else { raw };
    let start = match encoding & 0x70 {
        0x00 => signed,
        0x10 => base.wrapping_add(at as u64).wrapping_add(signed),
        _ => return None,
    };
    (len > 0).then_some(start..start.checked_add(len)?)
}
