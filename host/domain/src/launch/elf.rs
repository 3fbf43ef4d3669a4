//! What the host needs to know of the guest kernel's ELF; the build script uses this module too.

use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol};

/// Addresses of the guest kernel's two `syscall` instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// The host-call instruction.
    pub syscall: u64,
    /// The address right after it.
    pub syscall_end: u64,
    /// The address right after the signal return's instruction.
    pub sigreturn_end: u64,
}

/// Finds the gates by their symbols.
///
/// # Errors
/// If it is no ELF file, or not that of a guest kernel.
pub fn gates(elf: &[u8]) -> Result<Gates, String> {
    let file = object::File::parse(elf).map_err(|e| format!("not an ELF file: {e}"))?;
    let find = |name: &str| {
        let symbol = file.symbols().find(|s| s.name_bytes() == Ok(name.as_bytes()));
        symbol.map(|s| s.address()).ok_or_else(|| format!("it has no symbol {name}: not a guest kernel"))
    };
    Ok(Gates {
        syscall: find("doppel_gate_syscall")?,
        syscall_end: find("doppel_gate_syscall_end")?,
        sigreturn_end: find("doppel_sigreturn_end")?,
    })
}

/// FNV-1a: tells versions of the kernel apart (and protects from nothing).
#[cfg_attr(not(test), allow(dead_code, reason = "for the build script"))]
pub fn digest(elf: &[u8]) -> u64 {
    elf.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Cuts off everything that is not loaded: symbols and debugging information.
///
/// # Errors
/// If it is no 64-bit ELF file.
pub fn trim(mut elf: Vec<u8>) -> Result<Vec<u8>, String> {
    let bad = |e: object::Error| format!("not a 64-bit ELF file: {e}");
    let header = FileHeader64::<LittleEndian>::parse(&*elf).map_err(bad)?;
    let segments = header.program_headers(LittleEndian, &*elf).map_err(bad)?;
    let loaded = segments.iter().filter(|s| s.p_type(LittleEndian) == PT_LOAD);
    let end = loaded.map(|s| s.p_offset(LittleEndian).saturating_add(s.p_filesz(LittleEndian))).max();
    let table = header.e_phoff(LittleEndian)
        + segments.len() as u64 * size_of::<object::elf::ProgramHeader64<LittleEndian>>() as u64;
    let end = usize::try_from(end.unwrap_or(0).max(table)).map_err(|_| "impossible segments".to_owned())?;
    elf.truncate(end);
    // No section table any more: e_shoff, then e_shentsize (which may stay), e_shnum and e_shstrndx.
    elf.get_mut(0x28..0x30).ok_or("no header")?.fill(0);
    elf.get_mut(0x3c..0x40).ok_or("no header")?.fill(0);
    Ok(elf)
}

/// Extends the code segment of a trimmed guest kernel to whole huge pages, over what lies behind it in the file.
///
/// The host can then show it with one page table entry, which spares every new address space the faults for it
/// (about a third of a `fork`). Whether it does depends on the file system; nothing else depends on it.
///
/// # Errors
/// If it is no 64-bit ELF file, or its code does not begin a huge page or leaves no room.
#[cfg_attr(not(test), allow(dead_code, reason = "for the build script"))]
pub fn widen(mut elf: Vec<u8>) -> Result<Vec<u8>, String> {
    let bad = |e: object::Error| format!("not a 64-bit ELF file: {e}");
    let header = FileHeader64::<LittleEndian>::parse(&*elf).map_err(bad)?;
    let segments = header.program_headers(LittleEndian, &*elf).map_err(bad)?;
    let le = LittleEndian;
    let code = segments.iter().position(|s| s.p_type(le) == PT_LOAD && s.p_flags(le).contains(PF_X));
    let code = code.ok_or("it has no code")?;
    let s = &segments[code];
    let (start, len) = (s.p_vaddr(le), s.p_filesz(le).next_multiple_of(HUGE));
    let whole = |n: u64| n.is_multiple_of(HUGE);
    if !whole(start) || !whole(s.p_offset(le)) || s.p_filesz(le) != s.p_memsz(le) {
        return Err("its code does not begin a huge page".to_owned());
    }
    let free = |o: &object::elf::ProgramHeader64<LittleEndian>| {
        o.p_type(le) != PT_LOAD || o.p_vaddr(le) <= start || o.p_vaddr(le) >= start + len
    };
    if !segments.iter().all(free) {
        return Err("no room behind its code".to_owned());
    }
    let end = usize::try_from(s.p_offset(le) + len).map_err(|_| "impossible segments".to_owned())?;
    let entry = usize::try_from(header.e_phoff(le)).map_err(|_| "impossible headers".to_owned())?
        + code * size_of::<object::elf::ProgramHeader64<LittleEndian>>();
    elf.resize(elf.len().max(end), 0);
    // p_filesz and p_memsz.
    for field in [32, 40] {
        let at = entry + field;
        elf.get_mut(at..at + 8).ok_or("no program header")?.copy_from_slice(&len.to_le_bytes());
    }
    Ok(elf)
}

/// Bytes of a huge page.
pub const HUGE: u64 = 2 << 20;

/// Bytes of its code segment, with the constants in it.
///
/// # Errors
/// If it is no 64-bit ELF file, or has no code.
#[allow(dead_code, reason = "for the library")]
pub fn code_len(elf: &[u8]) -> Result<u64, String> {
    let bad = |e: object::Error| format!("not a 64-bit ELF file: {e}");
    let header = FileHeader64::<LittleEndian>::parse(elf).map_err(bad)?;
    let segments = header.program_headers(LittleEndian, elf).map_err(bad)?;
    let le = LittleEndian;
    let code = segments.iter().find(|s| s.p_type(le) == PT_LOAD && s.p_flags(le).contains(PF_X));
    code.map(|s| s.p_memsz(le)).ok_or_else(|| "it has no code".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trimmed_program_still_runs() {
        let whole = std::fs::read("/bin/true").unwrap();
        let trimmed = trim(whole.clone()).unwrap();
        assert!(trimmed.len() < whole.len());
        assert_ne!(digest(&trimmed), digest(&whole));
        let path = std::env::temp_dir().join(format!("doppel-trimmed-{}", std::process::id()));
        std::fs::write(&path, trimmed).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&path, mode).unwrap();
        assert!(std::process::Command::new(&path).status().unwrap().success());
        std::fs::remove_file(&path).unwrap();
    }

    /// An ELF header and two segments: code at `vaddr`, data `gap` bytes behind it.
    fn program(vaddr: u64, gap: u64) -> Vec<u8> {
        let mut elf = vec![0u8; 64 + 2 * 56];
        elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
        let mut put =
            |at: usize, value: u64, n: usize| elf[at..at + n].copy_from_slice(&value.to_le_bytes()[..n]);
        put(16, 2, 2);
        put(18, 62, 2);
        put(20, 1, 4);
        put(32, 64, 8);
        put(52, 64, 2);
        put(54, 56, 2);
        put(56, 2, 2);
        for (i, (flags, address)) in [(5, vaddr), (6, vaddr + gap)].into_iter().enumerate() {
            let at = 64 + i * 56;
            put(at, 1, 4);
            put(at + 4, flags, 4);
            put(at + 16, address, 8);
            put(at + 32, 176, 8);
            put(at + 40, 176, 8);
        }
        elf
    }

    #[test]
    fn code_is_widened_to_a_huge_page_where_there_is_room() {
        let wide = widen(program(4 << 20, 2 << 20)).unwrap();
        assert_eq!(code_len(&wide), Ok(HUGE));
        assert_eq!(wide.len(), 2 << 20);
        assert_eq!(wide[64 + 32..64 + 48], [(2u64 << 20).to_le_bytes(); 2].concat());
        assert_eq!(wide[120 + 32..120 + 40], 176u64.to_le_bytes());
        assert!(widen(program(4 << 20, 1 << 20)).unwrap_err().contains("no room"));
        assert!(widen(program((4 << 20) + 4096, 2 << 20)).unwrap_err().contains("huge page"));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(gates(b"#!/bin/sh\n").is_err());
        assert!(gates(&std::fs::read("/bin/true").unwrap()).unwrap_err().contains("not a guest kernel"));
        assert!(trim(b"\x7fELF".to_vec()).is_err());
        assert!(trim(Vec::new()).is_err());
    }
}
