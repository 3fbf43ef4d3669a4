//! The guest kernel's table of functions (`doppel_unwind::kernel`) as a segment of its own; the build script uses this
//! module too.

use doppel_unwind::cfi::{Common, Entries};
use doppel_unwind::kernel::Builder;
use object::elf::{FileHeader64, PF_R, PT_LOAD, PT_PHDR, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SymbolKind};

/// `layout::KERNEL_BASE` and `layout::SYMBOLS_BASE` of `doppel-abi-machine`, which is no dependency of the build script.
const KERNEL_BASE: u64 = 0x7e80_0000_0000;
/// See [`KERNEL_BASE`].
pub const SYMBOLS_BASE: u64 = 0x7e80_0800_0000;
const PAGE: usize = 4096;

/// The table of a kernel that was not trimmed; without symbols it is empty.
///
/// # Errors
/// If it is no ELF file.
pub fn table(elf: &[u8]) -> Result<Vec<u8>, String> {
    let file = object::File::parse(elf).map_err(|e| format!("not an ELF file: {e}"))?;
    let mut builder = Builder::default();
    let mut functions: Vec<_> = file
        .symbols()
        .filter(|s| s.kind() == SymbolKind::Text && s.size() != 0)
        .filter_map(|s| Some((offset(s.address())?, u32::try_from(s.size()).ok()?, s.name().ok()?)))
        .collect();
    functions.sort_unstable();
    functions.dedup_by_key(|(start, ..)| *start);
    for (start, len, name) in functions {
        builder.function(start, len, &readable(name));
    }
    if let Some(section) = file.section_by_name(".debug_frame") {
        let bytes = section.uncompressed_data().map_err(|e| format!("its .debug_frame: {e}"))?;
        rows(&bytes, &mut builder);
    }
    Ok(builder.finish())
}

fn offset(address: u64) -> Option<u32> {
    address.checked_sub(KERNEL_BASE).and_then(|o| u32::try_from(o).ok())
}

/// A function's path without the compiler's hash.
fn readable(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

fn rows(section: &[u8], builder: &mut Builder) {
    for entry in Entries::new(section).filter(|e| e.id != u32::MAX) {
        let common = section.get(entry.id as usize..).and_then(|from| Entries::new(from).next());
        let Some(common) = common.and_then(|c| Common::parse(c.body, false)) else { continue };
        let Some(frame) = common.debug_frame(entry.body) else { continue };
        // What the linker left out is at an impossible address.
        let (Some(start), Some(end)) = (offset(frame.start), offset(frame.start.saturating_add(frame.len)))
        else {
            continue;
        };
        let whole = common.rows(&frame, &mut |at, row| {
            if at < frame.len {
                builder.row(start + at as u32, Some(row));
            }
        });
        if whole.is_none() {
            builder.row(start, None);
        }
        builder.row(end, None);
    }
}

/// Adds the table to a trimmed kernel, in place of the segment that names the table of segments. A program without one is
/// left as it is: our kernel's linker always writes one, and others (the tests' own) look for no table.
///
/// # Errors
/// If it is no 64-bit ELF file.
pub fn attach(mut elf: Vec<u8>, table: &[u8]) -> Result<Vec<u8>, String> {
    let bad = |e: object::Error| format!("not a 64-bit ELF file: {e}");
    let le = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(&*elf).map_err(bad)?;
    let segments = header.program_headers(le, &*elf).map_err(bad)?;
    let size = size_of::<ProgramHeader64<LittleEndian>>();
    let at = usize::try_from(header.e_phoff(le)).map_err(|_| "impossible headers".to_owned())?;
    let replaced = segments.iter().position(|s| s.p_type(le) == PT_PHDR);
    let Some(replaced) = replaced else { return Ok(elf) };
    // Behind the others: loaders want them in order.
    let last = segments.iter().rposition(|s| s.p_type(le) == PT_LOAD).filter(|l| *l > replaced);
    let last = last.ok_or("it has no code")?;
    let from = elf.len().next_multiple_of(PAGE);
    elf.copy_within(at + (replaced + 1) * size..at + (last + 1) * size, at + replaced * size);
    let entry = &mut elf[at + last * size..][..size];
    let len = table.len() as u64;
    entry[..4].copy_from_slice(&PT_LOAD.0.to_le_bytes());
    entry[4..8].copy_from_slice(&PF_R.0.to_le_bytes());
    let fields = [from as u64, SYMBOLS_BASE, SYMBOLS_BASE, len, len, PAGE as u64];
    for (field, value) in entry[8..].chunks_exact_mut(8).zip(fields) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    elf.resize(from, 0);
    elf.extend_from_slice(table);
    Ok(elf)
}
