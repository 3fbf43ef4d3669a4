//! Writes the ELF image of a vDSO around given machine code: one read-execute segment with a dynamic symbol
//! table, a SysV hash table and the symbol version LINUX_2.6, as glibc, musl and Go look for them.

use alloc::vec::Vec;

/// A function of the vDSO: its name, its offset in the code, its length.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Symbol name.
    pub name: &'static str,
    /// Offset in the code.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

const SONAME: &str = "linux-vdso.so.1";
const VERSION: &str = "LINUX_2.6";
const HEADERS: usize = 64 + 3 * 56;
/// Section number that only says "defined here".
const SECTION: u16 = 1;

/// The hash of SysV symbol tables.
fn elf_hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |h, b| {
        let h = (h << 4).wrapping_add(u32::from(b));
        let g = h & 0xf000_0000;
        (h ^ (g >> 24)) & !g
    })
}

fn put(out: &mut Vec<u8>, values: &[(u64, usize)]) {
    for &(v, n) in values {
        out.extend_from_slice(&v.to_le_bytes()[..n]);
    }
}

fn align(out: &mut Vec<u8>, n: usize) {
    out.resize(out.len().next_multiple_of(n), 0);
}

struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, s: &str) -> u64 {
        let at = self.0.len() as u64;
        self.0.extend_from_slice(s.as_bytes());
        self.0.push(0);
        at
    }
}

/// The image, and the offset in it where `code` begins (a multiple of 64).
pub fn build(code: &[u8], functions: &[Function]) -> (Vec<u8>, usize) {
    let mut strings = Strings(alloc::vec![0]);
    let soname = strings.add(SONAME);
    let version = strings.add(VERSION);
    let names: Vec<u64> = functions.iter().map(|f| strings.add(f.name)).collect();
    let count = functions.len() + 1;

    let hash_at = HEADERS;
    let sym_at = (hash_at + 4 * (2 + 1 + count)).next_multiple_of(8);
    let str_at = sym_at + 24 * count;
    let versym_at = (str_at + strings.0.len()).next_multiple_of(8);
    let verdef_at = (versym_at + 2 * count).next_multiple_of(8);
    let dyn_at = (verdef_at + 2 * 28).next_multiple_of(16);
    let dyn_len = 10 * 16;
    let code_at = (dyn_at + dyn_len).next_multiple_of(64);
    let total = (code_at + code.len()) as u64;

    let mut o = Vec::new();
    o.extend_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // ET_DYN, x86-64; entry 0, program headers at 64, no sections.
    put(&mut o, &[(3, 2), (62, 2), (1, 4), (0, 8), (64, 8), (0, 8), (0, 4), (64, 2), (56, 2), (3, 2)]);
    put(&mut o, &[(64, 2), (0, 2), (0, 2)]);
    put(&mut o, &[(1, 4), (5, 4), (0, 8), (0, 8), (0, 8), (total, 8), (total, 8), (4096, 8)]);
    let d = dyn_at as u64;
    put(&mut o, &[(2, 4), (4, 4), (d, 8), (d, 8), (d, 8), (dyn_len as u64, 8), (dyn_len as u64, 8), (8, 8)]);
    put(&mut o, &[(0x6474_e551, 4), (4, 4), (0, 8), (0, 8), (0, 8), (0, 8), (0, 8), (16, 8)]);
    // One hash bucket: a chain through all symbols.
    put(&mut o, &[(1, 4), (count as u64, 4), (count as u64 - 1, 4)]);
    for i in 0..count as u64 {
        put(&mut o, &[(i.saturating_sub(1), 4)]);
    }
    align(&mut o, 8);
    put(&mut o, &[(0, 8), (0, 8), (0, 8)]);
    for (f, name) in functions.iter().zip(&names) {
        // Global function.
        let value = (code_at + f.offset) as u64;
        put(
            &mut o,
            &[(*name, 4), (0x12, 1), (0, 1), (u64::from(SECTION), 2), (value, 8), (f.size as u64, 8)],
        );
    }
    o.extend_from_slice(&strings.0);
    align(&mut o, 8);
    put(&mut o, &[(0, 2)]);
    functions.iter().for_each(|_| put(&mut o, &[(2, 2)]));
    align(&mut o, 8);
    // Version 1 is the file itself, version 2 LINUX_2.6.
    let h = |s| u64::from(elf_hash(s));
    put(&mut o, &[(1, 2), (1, 2), (1, 2), (1, 2), (h(SONAME), 4), (20, 4), (28, 4), (soname, 4), (0, 4)]);
    put(&mut o, &[(1, 2), (0, 2), (2, 2), (1, 2), (h(VERSION), 4), (20, 4), (0, 4), (version, 4), (0, 4)]);
    align(&mut o, 16);
    // SONAME HASH STRTAB SYMTAB STRSZ SYMENT VERSYM VERDEF VERDEFNUM NULL.
    for (tag, value) in [
        (14, soname),
        (4, hash_at as u64),
        (5, str_at as u64),
        (6, sym_at as u64),
        (10, strings.0.len() as u64),
        (11, 24),
        (0x6fff_fff0, versym_at as u64),
        (0x6fff_fffc, verdef_at as u64),
        (0x6fff_fffd, 2),
        (0, 0),
    ] {
        put(&mut o, &[(tag, 8), (value, 8)]);
    }
    align(&mut o, 64);
    o.extend_from_slice(code);
    (o, code_at)
}

#[cfg(test)]
mod tests;
