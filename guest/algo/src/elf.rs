//! ELF headers of x86-64 programs, checked (`elf(5)`).
//!
//! Key types: [`Header`], [`Program`] (what exec needs to know of a file). All input is hostile: every sum is
//! checked, and what cannot be mapped is refused before anything is changed.

use alloc::vec::Vec;

/// Why a file is not a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadElf;

/// Bytes of the file header.
pub const HEADER_SIZE: usize = 64;
/// Bytes of one program header.
pub const PHDR_SIZE: usize = 56;
const PAGE: u64 = 4096;
/// Most bytes of program headers, as on Linux.
const PHDRS_MAX: usize = 65536;
/// Largest segment alignment honoured.
const ALIGN_MAX: u64 = 1 << 30;

const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_PHDR: u32 = 6;
const PT_GNU_STACK: u32 = 0x6474_e551;

fn u16_at(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).map_or(0, |s| u16::from_le_bytes([s[0], s[1]]))
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from(u16_at(b, at)) | u32::from(u16_at(b, at + 2)) << 16
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

/// The file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Position-independent (ET_DYN).
    pub dynamic: bool,
    /// Entry point.
    pub entry: u64,
    /// Offset of the program headers.
    pub phoff: u64,
    /// Number of program headers.
    pub phnum: u16,
}

impl Header {
    /// Parses the first [`HEADER_SIZE`] bytes of a file.
    pub fn parse(b: &[u8]) -> Result<Self, BadElf> {
        let ident = [0x7f, b'E', b'L', b'F', 2, 1];
        let (kind, machine) = (u16_at(b, 16), u16_at(b, 18));
        let phnum = u16_at(b, 56);
        let ok = b.len() >= HEADER_SIZE
            && b.starts_with(&ident)
            && matches!(kind, 2 | 3)
            && machine == 62
            && usize::from(u16_at(b, 54)) == PHDR_SIZE
            && phnum >= 1
            && usize::from(phnum) * PHDR_SIZE <= PHDRS_MAX;
        if !ok {
            return Err(BadElf);
        }
        Ok(Self { dynamic: kind == 3, entry: u64_at(b, 24), phoff: u64_at(b, 32), phnum })
    }

    /// Bytes of all program headers.
    pub fn phdrs_len(&self) -> usize {
        usize::from(self.phnum) * PHDR_SIZE
    }
}

/// One PT_LOAD segment, page geometry checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address (before relocation), not aligned.
    pub vaddr: u64,
    /// Offset in the file, congruent to `vaddr` modulo the page size.
    pub offset: u64,
    /// Bytes from the file.
    pub filesz: u64,
    /// Bytes in memory.
    pub memsz: u64,
    /// Protection: 1 read, 2 write, 4 execute.
    pub prot: u32,
}

impl Segment {
    /// Bytes of memory of its own that it needs, in whole pages.
    pub fn private_bytes(&self) -> u64 {
        const PAGE: u64 = 4096;
        let writable = self.prot & 2 != 0;
        if writable { (self.vaddr % PAGE).saturating_add(self.memsz).next_multiple_of(PAGE) } else { 0 }
    }
}

/// What exec needs to know of a program or interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file header.
    pub header: Header,
    /// Segments to load, at least one.
    pub segments: Vec<Segment>,
    /// Offset and length of the interpreter's name.
    pub interp: Option<(u64, u64)>,
    /// Address of the program headers in memory (before relocation), if they are loaded.
    pub phdr: Option<u64>,
    /// Whether PT_GNU_STACK asks for an executable stack.
    pub exec_stack: bool,
    /// Lowest page address and end (page rounded) of all segments.
    pub span: (u64, u64),
    /// Largest alignment of a segment, at least a page.
    pub align: u64,
}

impl Program {
    /// Parses program headers; addresses must stay below `top`.
    pub fn parse(header: Header, phdrs: &[u8], top: u64) -> Result<Self, BadElf> {
        let mut p = Self {
            header,
            segments: Vec::new(),
            interp: None,
            phdr: None,
            exec_stack: false,
            span: (u64::MAX, 0),
            align: PAGE,
        };
        for ph in phdrs.chunks_exact(PHDR_SIZE).take(usize::from(header.phnum)) {
            let flags = u32_at(ph, 4);
            match u32_at(ph, 0) {
                PT_LOAD => p.load(ph, flags, top)?,
                PT_INTERP if p.interp.is_none() => p.interp = Some((u64_at(ph, 8), u64_at(ph, 32))),
                PT_PHDR => p.phdr = Some(u64_at(ph, 16)),
                PT_GNU_STACK => p.exec_stack = flags & 1 != 0,
                _ => {}
            }
        }
        if p.segments.is_empty() {
            return Err(BadElf);
        }
        if p.phdr.is_none() {
            let at = header.phoff;
            let holds = |s: &&Segment| at >= s.offset && at - s.offset < s.filesz;
            p.phdr = p.segments.iter().find(holds).map(|s| s.vaddr + (at - s.offset));
        }
        Ok(p)
    }

    fn load(&mut self, ph: &[u8], flags: u32, top: u64) -> Result<(), BadElf> {
        let (offset, vaddr) = (u64_at(ph, 8), u64_at(ph, 16));
        let (filesz, memsz, align) = (u64_at(ph, 32), u64_at(ph, 40), u64_at(ph, 48));
        if memsz == 0 {
            return Ok(());
        }
        let end = vaddr.checked_add(memsz).filter(|e| *e <= top - PAGE).ok_or(BadElf)?;
        let file_end = offset.checked_add(filesz).filter(|e| *e <= i64::MAX as u64 - PAGE);
        if filesz > memsz || file_end.is_none() || offset % PAGE != vaddr % PAGE {
            return Err(BadElf);
        }
        let prot = (flags >> 2 & 1) | (flags & 2) | (flags & 1) << 2;
        self.segments.push(Segment { vaddr, offset, filesz, memsz, prot });
        self.span.0 = self.span.0.min(vaddr & !(PAGE - 1));
        self.span.1 = self.span.1.max(end.next_multiple_of(PAGE));
        if align.is_power_of_two() && align <= ALIGN_MAX {
            self.align = self.align.max(align);
        }
        Ok(())
    }

    /// Bytes of address space the program spans.
    pub fn size(&self) -> u64 {
        self.span.1 - self.span.0
    }
}

/// A script's interpreter and the one argument its line may give it.
pub type Interpreter<'a> = (&'a [u8], Option<&'a [u8]>);

/// The interpreter and its optional argument of a script's first line (`#!`); `None` if it is no script.
pub fn script(head: &[u8]) -> Option<Result<Interpreter<'_>, BadElf>> {
    let line = head.strip_prefix(b"#!")?;
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let whole = line.len() + 2 < SCRIPT_MAX;
    let end = line.iter().position(|&b| b == b'\n' || b == 0);
    let cut = end.is_none() && !whole;
    let line = &line[..end.unwrap_or(line.len())];
    let start = line.iter().position(|b| !blank(b)).unwrap_or(line.len());
    let line = &line[start..];
    let stop = line.iter().rposition(|b| !blank(b)).map_or(0, |i| i + 1);
    let line = &line[..stop];
    if line.is_empty() {
        return Some(Err(BadElf));
    }
    let name_end = line.iter().position(blank);
    // A name cut off by the buffer's end must not be run as another one.
    if cut && name_end.is_none() {
        return Some(Err(BadElf));
    }
    let name = &line[..name_end.unwrap_or(line.len())];
    let arg = name_end.map(|e| &line[e..]).and_then(|r| {
        let s = r.iter().position(|b| !blank(b))?;
        Some(&r[s..])
    });
    Some(Ok((name, arg)))
}

/// Bytes of a script that are looked at.
pub const SCRIPT_MAX: usize = 256;

#[cfg(test)]
mod tests;
