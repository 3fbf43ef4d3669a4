//! The memory of a core file: which mappings go into it, and the file's layout.

use crate::process::coredump::File;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_machine::user::UserPtr;

use super::Writer;
use crate::memory::{DumpVma, PAGE, Prot, copy_mended};
use crate::process::task::Thread;
use crate::{Errno, Result};

/// Bits of /proc/PID/coredump_filter.
mod filter {
    pub const PRIVATE: u32 = 1;
    pub const SHARED: u32 = 2;
    pub const MAPPED_PRIVATE: u32 = 4;
    pub const MAPPED_SHARED: u32 = 8;
    pub const ELF_HEADERS: u32 = 16;
}

/// Bytes of an ELF header and of a program header.
const EHDR: u64 = 64;
const PHDR: u64 = 56;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
/// Bytes copied at a time.
const CHUNK: u64 = 64 << 10;

/// One mapping.
pub(super) struct Segment {
    pub start: u64,
    pub end: u64,
    prot: Prot,
    /// Bytes that go into the file.
    dumped: u64,
    /// The mapped file.
    pub name: Option<Vec<u8>>,
    pub file_offset: u64,
}

/// The mappings of the current thread's process.
pub(super) fn segments(t: &Thread) -> Vec<Segment> {
    let kinds = t.process.attrs.core_filter.load(Ordering::Relaxed);
    let one = |v: DumpVma| Segment {
        start: v.start,
        end: v.end,
        prot: v.prot,
        dumped: dumped(&v, kinds),
        name: file_of(&v).and_then(|f| f.path.as_ref()).map(crate::objects::lookup::path::Path::name),
        file_offset: v.offset,
    };
    t.space().mm.to_dump().into_iter().map(one).collect()
}

/// How many bytes of a mapping go into the file.
fn dumped(v: &DumpVma, kinds: u32) -> u64 {
    let (whole, is) = (v.end - v.start, |kind: u32| kinds & kind != 0);
    let mode = || file_of(v).and_then(|f| f.inode.as_ref()).map(|i| i.stat());
    if v.vdso {
        return whole;
    }
    if v.left_out {
        return 0;
    }
    if v.shared {
        let named = mode().is_some_and(|s| s.nlink != 0);
        return if is(if named { filter::MAPPED_SHARED } else { filter::SHARED }) { whole } else { 0 };
    }
    if v.own_pages && is(filter::PRIVATE) || v.file.is_some() && is(filter::MAPPED_PRIVATE) {
        return whole;
    }
    let has_header = v.file.is_some() && v.offset == 0 && v.prot.contains(Prot::READ);
    if has_header && is(filter::ELF_HEADERS) {
        let program = mode().is_some_and(|s| s.mode & 0o111 != 0);
        if program || UserPtr(v.start).read::<[u8; 4]>() == Ok(*b"\x7fELF") {
            return PAGE;
        }
    }
    0
}

/// Writes the whole file.
pub(super) fn write(out: &mut Writer<'_>, segments: &[Segment], notes: &[u8]) -> Result<()> {
    let count = segments.len() as u64 + 1;
    let notes_at = EHDR + count * PHDR;
    let data_at = (notes_at + notes.len() as u64).next_multiple_of(PAGE);
    out.put(&header(u16::try_from(count).map_err(|_| Errno::EFBIG)?))?;
    let mut headers = Vec::new();
    program_header(&mut headers, [PT_NOTE, 0], [notes_at, 0, notes.len() as u64, 0, 4]);
    let mut at = data_at;
    for s in segments {
        // ELF's bits are the other way round: 4 read, 2 write, 1 execute.
        let prot = s.prot.bits();
        let flags = prot & 2 | (prot & 1) << 2 | prot >> 2;
        program_header(&mut headers, [PT_LOAD, flags], [at, s.start, s.dumped, s.end - s.start, PAGE]);
        at += s.dumped;
    }
    out.put(&headers)?;
    out.put(notes)?;
    out.skip(data_at - out.at)?;
    let mm = &out.t.space().mm;
    let mut buf = alloc::vec![0u8; CHUNK as usize];
    for s in segments.iter().filter(|s| s.dumped != 0) {
        let hidden = s.prot.is_empty();
        if hidden {
            mm.uncover(s.start, s.end, true)?;
        }
        let copied = copy(out, s, &mut buf);
        if hidden {
            mm.uncover(s.start, s.end, false)?;
        }
        copied?;
    }
    out.finish()
}

/// Copies what a segment shows; pages of zeros become holes, as do those that cannot be read.
fn copy(out: &mut Writer<'_>, s: &Segment, buf: &mut [u8]) -> Result<()> {
    let mm = &out.t.space().mm;
    let (mut at, end) = (s.start, s.start + s.dumped);
    while at < end {
        let want = (end - at).min(CHUNK) as usize;
        let chunk = &mut buf[..want];
        let rest = |done: usize| UserPtr(at).add(done as u64).read_some(&mut chunk[done..]);
        let got = copy_mended(mm, want, rest).unwrap_or(0);
        mm.show_original(at, &mut chunk[..got]);
        // Whole pages: the rest of one that faulted in the middle is zeros.
        let got = got.next_multiple_of(PAGE as usize);
        for page in chunk[..got].chunks(PAGE as usize) {
            if page.iter().all(|b| *b == 0) {
                out.skip(PAGE)?;
            } else {
                out.put(page)?;
            }
        }
        at += got as u64;
        if got < want {
            out.skip(PAGE)?;
            at += PAGE;
        }
        chunk.fill(0);
    }
    Ok(())
}

/// The ELF header of a core file.
fn header(segments: u16) -> [u8; EHDR as usize] {
    const CORE: u16 = 4;
    const X86_64: u16 = 62;
    let mut h = [0; EHDR as usize];
    h[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    for (at, v) in [(16, CORE), (18, X86_64), (20, 1), (32, 64), (52, 64), (54, PHDR as u16), (56, segments)]
    {
        h[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }
    h
}

/// Appends a program header: type and flags; offset, address, bytes in the file, bytes in memory, alignment.
fn program_header(
    out: &mut Vec<u8>,
    [kind, flags]: [u32; 2],
    [offset, vaddr, file, memory, align]: [u64; 5],
) {
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    for word in [offset, vaddr, 0, file, memory, align] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// The file that is mapped.
fn file_of(v: &DumpVma) -> Option<&File> {
    let f: &dyn core::any::Any = &**v.file.as_ref()?;
    f.downcast_ref()
}
