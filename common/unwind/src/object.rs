//! ELF files of programs: how to leave their frames (`.eh_frame_hdr`), and the names of their functions.
//!
//! Key types: [`Object`] (what was read of a file once), [`Source`] (the file's bytes). A file is hostile: each step reads a
//! bounded part of it, and what is wrong with it gives `None`.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::Registers;
use crate::cfi::{Common, Entries};
use crate::reader::Reader;

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
/// Most headers of a kind that are looked at.
const HEADERS_MAX: u16 = 1024;
/// Most symbols that are looked at, and how many are read at a time.
const SYMBOLS_MAX: u64 = 1 << 18;
const SYMBOLS_AT_A_TIME: u64 = 1024;
/// No file is longer, and no address of one is higher.
const FILE_MAX: u64 = i64::MAX as u64;
/// Longest `.eh_frame` without a sorted table that is looked through, in bytes.
const SECTION_MAX: u64 = 1 << 20;
/// Longest name and longest entry of `.eh_frame`, in bytes.
const NAME_MAX: usize = 256;
const ENTRY_MAX: u32 = 64 << 10;

/// A file's bytes.
pub trait Source {
    /// Fills `buf` from this offset; `None` if the file has not so many.
    fn read(&self, at: u64, buf: &mut [u8]) -> Option<()>;
}

fn bytes(source: &dyn Source, at: u64, len: usize) -> Option<Vec<u8>> {
    at.checked_add(len as u64).filter(|end| *end <= FILE_MAX)?;
    let mut buf = vec![0; len];
    source.read(at, &mut buf)?;
    Some(buf)
}

/// A part of the file that is mapped.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    offset: u64,
    len: u64,
}

/// A table of symbols and its names.
#[derive(Clone, Copy, Debug)]
struct Symbols {
    offset: u64,
    count: u64,
    names: u64,
    names_len: u64,
}

/// What leaving a frame led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The caller's registers, and whether they are those of code that a signal interrupted.
    Found(Registers, bool),
    /// This is the outermost frame, or its table cannot be followed.
    End,
    /// The file does not describe this code.
    NotDescribed,
}

/// A function's name and the distance of an address from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// As in the table of symbols.
    pub name: String,
    /// In bytes.
    pub offset: u64,
}

/// Where frames are described.
#[derive(Clone, Copy, Debug)]
enum Frames {
    /// In `.eh_frame`, by the sorted table of `.eh_frame_hdr` at this address.
    Sorted(u64),
    /// In `.eh_frame` at this address, of so many bytes: static programs may have no other table.
    Section(u64, usize),
    /// Nowhere.
    None,
}

/// What an ELF file says of its code. Addresses are the file's own.
#[derive(Clone, Debug)]
pub struct Object {
    segments: Vec<Segment>,
    frames: Frames,
    symbols: Option<Symbols>,
}

impl Object {
    /// Reads its headers; `None` if it is no ELF file for x86-64.
    #[must_use]
    pub fn read(source: &dyn Source) -> Option<Self> {
        const IDENT: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
        const X86_64: u16 = 62;
        let header = bytes(source, 0, HEADER)?;
        let mut r = Reader(header.strip_prefix(&IDENT)?);
        r.bytes(12)?;
        if r.u16()? != X86_64 {
            return None;
        }
        r.bytes(12)?;
        let (programs, sections) = (r.u64()?, r.u64()?);
        r.bytes(8)?;
        let (program_count, section_size, section_count, names) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?);
        let mut object = Self { segments: Vec::new(), frames: Frames::None, symbols: None };
        object.read_segments(source, programs, program_count.min(HEADERS_MAX))?;
        if usize::from(section_size) == SECTION_HEADER && section_count <= HEADERS_MAX {
            // A file without sections has segments still.
            let sections = bytes(source, sections, usize::from(section_count) * SECTION_HEADER);
            let sections = Sections(sections.unwrap_or_default());
            object.symbols = sections.symbols();
            if matches!(object.frames, Frames::None) {
                object.frames = sections.frames(source, usize::from(names)).unwrap_or(Frames::None);
            }
        }
        Some(object)
    }

    fn read_segments(&mut self, source: &dyn Source, at: u64, count: u16) -> Option<()> {
        const LOAD: u32 = 1;
        const EH_FRAME: u32 = 0x6474_e550;
        let headers = bytes(source, at, usize::from(count) * PROGRAM_HEADER)?;
        for header in headers.chunks_exact(PROGRAM_HEADER) {
            let mut r = Reader(header);
            let kind = r.u32()?;
            r.u32()?;
            let (offset, address) = (r.u64()?, r.u64()?);
            r.u64()?;
            let len = r.u64()?;
            match kind {
                LOAD => {
                    let sound = |from: u64| from.checked_add(len).is_some_and(|end| end <= FILE_MAX);
                    (sound(address) && sound(offset)).then_some(())?;
                    self.segments.push(Segment { address, offset, len });
                }
                EH_FRAME => self.frames = Frames::Sorted(address),
                _ => {}
            }
        }
        Some(())
    }

    /// The address of what is at an offset of the file.
    #[must_use]
    pub fn address(&self, offset: u64) -> Option<u64> {
        let inside = |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|o| o < s.len);
        self.segments.iter().find(inside).map(|s| s.address.wrapping_add(offset - s.offset))
    }

    fn offset(&self, address: u64) -> Option<u64> {
        let inside = |s: &&Segment| address.checked_sub(s.address).is_some_and(|o| o < s.len);
        self.segments.iter().find(inside).map(|s| s.offset.wrapping_add(address - s.address))
    }

    /// Leaves the frame of the code at the file's address `at`. `read` reads eight bytes of memory.
    pub fn caller(
        &self,
        source: &dyn Source,
        at: u64,
        registers: &Registers,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Caller {
        let Some((entry, entry_at)) = self.frame_of(source, at) else { return Caller::NotDescribed };
        self.follow(source, at, (&entry, entry_at), registers, read).unwrap_or(Caller::End)
    }

    fn follow(
        &self,
        source: &dyn Source,
        at: u64,
        (entry, entry_at): (&[u8], u64),
        registers: &Registers,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<Caller> {
        let mut r = Reader(entry);
        let back = r.u32()?;
        let (common, _) = self.entry(source, entry_at.checked_sub(u64::from(back))?)?;
        let mut c = Reader(&common);
        if c.u32()? != 0 {
            return None;
        }
        let common = Common::parse(c.0, true)?;
        let frame = common.eh_frame(r.0, entry_at + 4)?;
        let row = common.row(&frame, at)?;
        Some(Caller::Found(registers.caller(&row, read)?, common.is_signal))
    }

    /// An entry of `.eh_frame` without its length, and the address behind that.
    fn entry(&self, source: &dyn Source, address: u64) -> Option<(Vec<u8>, u64)> {
        let offset = self.offset(address)?;
        let len = Reader(&bytes(source, offset, 4)?).u32().filter(|n| *n > 0 && *n <= ENTRY_MAX)?;
        Some((bytes(source, offset + 4, len as usize)?, address + 4))
    }

    /// The entry for an address, and its own address.
    fn frame_of(&self, source: &dyn Source, at: u64) -> Option<(Vec<u8>, u64)> {
        match self.frames {
            Frames::Sorted(base) => self.sorted(source, base, at),
            Frames::Section(address, len) => self.scanned(source, address, len, at),
            Frames::None => None,
        }
    }

    /// By a look at each entry.
    fn scanned(&self, source: &dyn Source, address: u64, len: usize, at: u64) -> Option<(Vec<u8>, u64)> {
        let section = bytes(source, self.offset(address)?, len)?;
        for entry in Entries::new(&section).filter(|e| e.id != 0) {
            let entry_at = address + entry.id_at as u64;
            let common = entry.id_at.checked_sub(entry.id as usize).and_then(|from| section.get(from..));
            let common = common.and_then(|from| Common::parse(Entries::new(from).next()?.body, true));
            let Some(frame) = common.and_then(|c| c.eh_frame(entry.body, entry_at + 4)) else { continue };
            if at.checked_sub(frame.start).is_some_and(|o| o < frame.len) {
                return Some(([&entry.id.to_le_bytes()[..], entry.body].concat(), entry_at));
            }
        }
        None
    }

    /// By binary search of `.eh_frame_hdr`.
    fn sorted(&self, source: &dyn Source, base: u64, at: u64) -> Option<(Vec<u8>, u64)> {
        /// Version 1; a relative address; a count; a table relative to the header: what linkers write.
        const ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let offset = self.offset(base)?;
        let header = bytes(source, offset, 12)?;
        let mut r = Reader(header.strip_prefix(&ENCODINGS)?);
        r.u32()?;
        let count = u64::from(r.u32()?);
        let row = |i: u64| {
            let row = bytes(source, offset + 12 + i * 8, 8)?;
            let mut r = Reader(&row);
            let mut address = || r.u32().map(|n| base.wrapping_add_signed(i64::from(n.cast_signed())));
            Some((address()?, address()?))
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if row(middle)?.0 <= at { low = middle + 1 } else { high = middle }
        }
        self.entry(source, row(low.checked_sub(1)?)?.1)
    }

    /// The function that the file's address `at` belongs to.
    #[must_use]
    pub fn function(&self, source: &dyn Source, at: u64) -> Option<Name> {
        let table = self.symbols?;
        let mut best: Option<(u64, Vec<u8>)> = None;
        let mut first = 0;
        while first < table.count {
            let n = SYMBOLS_AT_A_TIME.min(table.count - first);
            let some = bytes(source, table.offset + first * SYMBOL as u64, n as usize * SYMBOL)?;
            for symbol in some.chunks_exact(SYMBOL) {
                let Some((start, name)) = function(symbol, at) else { continue };
                if best.as_ref().is_some_and(|(s, _)| *s > start) {
                    continue;
                }
                let Some(name) = table.name(source, name) else { continue };
                // Of several names the plainest: read, not __read or __libc_read.
                if best.as_ref().is_none_or(|(s, n)| *s < start || plainness(&name) < plainness(n)) {
                    best = Some((start, name));
                }
            }
            first += n;
        }
        let (start, name) = best?;
        Some(Name { name: String::from_utf8_lossy(&name).into_owned(), offset: at - start })
    }
}

fn plainness(name: &[u8]) -> (usize, usize) {
    (name.iter().take_while(|b| **b == b'_').count(), name.len())
}

/// Start and name of a symbol, if it is a function that `at` lies in.
fn function(symbol: &[u8], at: u64) -> Option<(u64, u32)> {
    const FUNCTION: u8 = 2;
    const INDIRECT: u8 = 10;
    let mut r = Reader(symbol);
    let (name, info, _, section) = (r.u32()?, r.u8()?, r.u8()?, r.u16()?);
    let (start, len) = (r.u64()?, r.u64()?);
    let inside = at.checked_sub(start).is_some_and(|o| o < len);
    (inside && section != 0 && matches!(info & 0xf, FUNCTION | INDIRECT)).then_some((start, name))
}

impl Symbols {
    fn name(&self, source: &dyn Source, at: u32) -> Option<Vec<u8>> {
        let left = self.names_len.checked_sub(u64::from(at)).filter(|n| *n > 0)?;
        let mut name =
            bytes(source, self.names.checked_add(u64::from(at))?, left.min(NAME_MAX as u64) as usize)?;
        let end = name.iter().position(|b| *b == 0)?;
        name.truncate(end);
        Some(name)
    }
}

/// Headers of sections.
struct Sections(Vec<u8>);

/// What is known of a section.
struct Section {
    name: u32,
    kind: u32,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
}

impl Sections {
    fn get(&self, i: usize) -> Option<Section> {
        let mut r = Reader(self.0.chunks_exact(SECTION_HEADER).nth(i)?);
        let (name, kind) = (r.u32()?, r.u32()?);
        r.u64()?;
        let (address, offset, size, link) = (r.u64()?, r.u64()?, r.u64()?, r.u32()?);
        Some(Section { name, kind, address, offset, size, link })
    }

    fn all(&self) -> impl Iterator<Item = Section> {
        (0..self.0.len() / SECTION_HEADER).filter_map(|i| self.get(i))
    }

    /// The full table of symbols, else the one for dynamic linking.
    fn symbols(&self) -> Option<Symbols> {
        const FULL: u32 = 2;
        const DYNAMIC: u32 = 11;
        let find = |wanted| self.all().find(|s| s.kind == wanted);
        let table = find(FULL).or_else(|| find(DYNAMIC))?;
        let names = self.get(table.link as usize)?;
        let count = (table.size / SYMBOL as u64).min(SYMBOLS_MAX);
        table.offset.checked_add(table.size)?;
        Some(Symbols { offset: table.offset, count, names: names.offset, names_len: names.size })
    }

    /// `.eh_frame`, whose name is in the section of this number.
    fn frames(&self, source: &dyn Source, names: usize) -> Option<Frames> {
        const NAME: &[u8] = b".eh_frame\0";
        let names = self.get(names)?;
        let is_it = |s: &Section| {
            let name =
                names.offset.checked_add(u64::from(s.name)).and_then(|at| bytes(source, at, NAME.len()));
            name.is_some_and(|name| name == NAME)
        };
        let section = self.all().find(|s| s.size <= SECTION_MAX && is_it(s))?;
        section.address.checked_add(section.size)?;
        Some(Frames::Section(section.address, section.size as usize))
    }
}
