//! What the host needs to know of the guest kernel's ELF; the build script uses this module too.

use object::elf::{FileHeader64, PT_LOAD};
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

    #[test]
    fn other_files_are_refused() {
        assert!(gates(b"#!/bin/sh\n").is_err());
        assert!(gates(&std::fs::read("/bin/true").unwrap()).unwrap_err().contains("not a guest kernel"));
        assert!(trim(b"\x7fELF".to_vec()).is_err());
        assert!(trim(Vec::new()).is_err());
    }
}
