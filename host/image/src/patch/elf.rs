//! What patching needs to know of an ELF file: its executable segment, where its code is, and where functions are.
//!
//! Boundary: the file is hostile; everything is read through `object`, and a number that does not fit refuses the
//! file. What is found here is only a hint of where to start disassembling: `flow` proves it.

use std::ops::Range;

use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolFlags, SymbolKind};

use super::{PAGE, Refusal, frames};

/// Largest segment that is scanned; scanning takes as much memory again, twice.
const MOST_TEXT: u64 = 512 << 20;

/// Most executable segments a file may have beside the largest.
const MOST_SEGMENTS: usize = 4;

/// An executable segment that may be patched. Addresses are those of the file, before relocation.
pub(super) struct Module<'a> {
    /// File offset of the segment, rounded down to a page.
    pub segment: u64,
    /// Address of that offset.
    pub base: u64,
    /// Lowest address of the module, rounded down to a page.
    pub lowest: u64,
    /// Whether addresses are final (`ET_EXEC`).
    pub fixed: bool,
    /// Bytes of the file from `segment` on, to the segment's end.
    pub text: &'a [u8],
    /// Other executable segments, without system calls, and their addresses.
    pub others: Vec<(u64, &'a [u8])>,
    /// Where code may be, sorted: executable sections, or the whole segment.
    pub code: Vec<Range<u64>>,
    /// Extents of functions, from unwind tables and symbols.
    pub functions: Vec<Range<u64>>,
    /// Extents of functions that signal handlers return to, and that unwind tables describe as such.
    pub signal_returns: Vec<Range<u64>>,
    /// Starts of functions.
    pub roots: Vec<u64>,
    /// Labels: places that somebody may jump to.
    pub labels: Vec<u64>,
}

/// Whether the file may be a program or library of this machine, by its first bytes.
pub(super) fn is_candidate(file: &[u8]) -> bool {
    let half = |at: usize| file.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    file.starts_with(b"\x7fELF\x02\x01")
        && [elf::ET_EXEC.0, elf::ET_DYN.0].map(Some).contains(&half(16))
        && half(18) == Some(elf::EM_X86_64.0)
}

impl<'a> Module<'a> {
    /// Reads a candidate. `None`: it has no code at all.
    pub fn parse(file: &'a [u8]) -> Result<Option<Self>, Refusal> {
        let parsed = ElfFile64::<LittleEndian>::parse(file).map_err(|_| Refusal::Malformed)?;
        let e = LittleEndian;
        let loads = parsed.elf_program_headers().iter().filter(|p| p.p_type(e) == elf::PT_LOAD);
        let lowest = loads.clone().map(|p| p.p_vaddr(e)).min().unwrap_or(0) & !(PAGE - 1);
        let executable = loads.filter(|p| p.p_flags(e).0 & elf::PF_X.0 != 0 && p.p_filesz(e) > 0);
        let Some(load) = executable.clone().max_by_key(|p| p.p_filesz(e)) else { return Ok(None) };
        let mut others = Vec::new();
        for other in executable.filter(|p| p.p_vaddr(e) != load.p_vaddr(e)) {
            let code = other.data(e, file).map_err(|()| Refusal::Malformed)?;
            if others.len() == MOST_SEGMENTS || code.windows(2).any(|w| w == [0x0f, 0x05]) {
                return Err(Refusal::Segments);
            }
            others.push((other.p_vaddr(e), code));
        }
        if load.p_flags(e).0 & elf::PF_W.0 != 0 || load.p_memsz(e) != load.p_filesz(e) {
            return Err(Refusal::Writable);
        }
        let (offset, address, size) = (load.p_offset(e), load.p_vaddr(e), load.p_filesz(e));
        let end = offset.checked_add(size).filter(|end| *end <= file.len() as u64);
        let end = end.ok_or(Refusal::Malformed)?;
        // Half the address space is plenty, and keeps all sums below from overflowing.
        if offset % PAGE != address % PAGE || address > 1 << 62 {
            return Err(Refusal::Malformed);
        }
        if size > MOST_TEXT {
            return Err(Refusal::Distance);
        }
        let segment = offset & !(PAGE - 1);
        let text = &file[segment as usize..end as usize];
        let mut module = Self {
            segment,
            base: address & !(PAGE - 1),
            lowest,
            fixed: parsed.elf_header().e_type(e) == elf::ET_EXEC,
            text,
            others,
            code: Vec::new(),
            functions: Vec::new(),
            signal_returns: Vec::new(),
            roots: vec![parsed.entry()],
            labels: Vec::new(),
        };
        module.sections(&parsed, address..address + size);
        module.symbols(&parsed);
        for f in frames::functions(&parsed, file) {
            let mut range = f.range;
            if f.signal {
                // By convention one byte early: unwinders look up the byte before a return address.
                range.start = (range.start + 1).min(range.end - 1);
                module.signal_returns.push(range.clone());
            }
            module.roots.push(range.start);
            module.functions.push(range);
        }
        module.functions.sort_by_key(|f| f.start);
        Ok(Some(module))
    }

    fn sections(&mut self, parsed: &ElfFile64<'_, LittleEndian>, whole: Range<u64>) {
        for s in parsed.sections() {
            let SectionFlags::Elf { sh_flags, .. } = s.flags() else { continue };
            let Some(end) = s.address().checked_add(s.size()) else { continue };
            let inside = s.address() >= whole.start && end <= whole.end && s.size() > 0;
            if sh_flags.0 & elf::SHF_EXECINSTR.0 != 0 && inside {
                self.code.push(s.address()..end);
            }
        }
        self.code.sort_by_key(|r| r.start);
        if self.code.is_empty() {
            self.code.push(whole);
        }
    }

    fn symbols(&mut self, parsed: &ElfFile64<'_, LittleEndian>) {
        for s in parsed.symbols().chain(parsed.dynamic_symbols()) {
            if s.is_undefined() {
                continue;
            }
            let ifunc = matches!(s.flags(), SymbolFlags::Elf { st_info, .. } if st_info.st_type() == elf::STT_GNU_IFUNC);
            if s.kind() != SymbolKind::Text && !ifunc {
                self.labels.push(s.address());
                continue;
            }
            self.roots.push(s.address());
            if let Some(end) = s.address().checked_add(s.size()).filter(|_| s.size() > 0) {
                self.functions.push(s.address()..end);
            }
        }
    }
}
