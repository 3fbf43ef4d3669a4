//! Reading programs from files and mapping them.
//!
//! Key type: [`Binary`], a program or interpreter that was read and checked but not yet mapped.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use doppel_abi_machine::layout::{USER_END, USER_START};
use doppel_algo::elf::{HEADER_SIZE, Header, Program, Segment};
use doppel_machine::user::UserPtr;

use crate::memory::{MapAt, Mm, PAGE, Prot, VmFlags, Vma, page_down, page_up};
use crate::objects::vfs::file_map::file_vma;
use crate::objects::vfs::{File, Output};
use crate::{Errno, Result};

/// A checked program file.
pub struct Binary {
    /// The file.
    pub file: Arc<File>,
    /// Its headers.
    pub program: Program,
}

/// Where a program was mapped.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// What was added to its addresses.
    pub bias: u64,
    /// Entry point.
    pub entry: u64,
    /// Program headers in memory, 0 if they are not loaded.
    pub phdr: u64,
    /// End of its last segment, page rounded: where the heap may begin.
    pub end: u64,
    /// Lowest and highest address of code, of data.
    pub code: (u64, u64),
    /// See [`Self::code`].
    pub data: (u64, u64),
}

/// Reads up to `buf.len()` bytes of a file at `offset`; returns how many there were.
pub fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let mut at = 0;
    while at < buf.len() {
        let n = file.ops().read(file, &mut Output::kernel(&mut buf[at..]), offset + at as u64)?;
        if n == 0 {
            break;
        }
        at += n;
    }
    Ok(at)
}

impl Binary {
    /// Reads and checks the headers of `file`, whose first bytes are `head`.
    pub fn read(file: &Arc<File>, head: &[u8]) -> Result<Self> {
        let header = head.get(..HEADER_SIZE).ok_or(Errno::ENOEXEC)?;
        let header = Header::parse(header).map_err(|_| Errno::ENOEXEC)?;
        let mut phdrs = vec![0u8; header.phdrs_len()];
        if header.phoff > i64::MAX as u64 - (1 << 20)
            || read_at(file, header.phoff, &mut phdrs)? < phdrs.len()
        {
            return Err(Errno::ENOEXEC);
        }
        let program = Program::parse(header, &phdrs, USER_END).map_err(|_| Errno::ENOEXEC)?;
        if !header.dynamic && program.span.0 < USER_START {
            return Err(Errno::ENOEXEC);
        }
        Ok(Self { file: file.clone(), program })
    }

    /// The name of its interpreter.
    pub fn interp(&self) -> Result<Option<Vec<u8>>> {
        let Some((offset, len)) = self.program.interp else { return Ok(None) };
        if !(2..=4096).contains(&len) {
            return Err(Errno::ENOEXEC);
        }
        let mut name = vec![0u8; len as usize];
        if read_at(&self.file, offset, &mut name)? < name.len() || name.pop() != Some(0) {
            return Err(Errno::ENOEXEC);
        }
        name.truncate(name.iter().position(|&b| b == 0).unwrap_or(name.len()));
        Ok(Some(name))
    }

    /// Maps it into the (current) space `mm`; position-independent programs at `base` or, if 0, where mmap
    /// would put them.
    pub fn load(&self, mm: &Mm, base: u64) -> Result<Loaded> {
        let p = &self.program;
        let bias = if !p.header.dynamic {
            0
        } else {
            let room = p.size() + p.align - PAGE;
            let at = if base != 0 { base } else { mm.find_gap(room)? };
            at.next_multiple_of(p.align).wrapping_sub(page_down(p.span.0))
        };
        let mut l = Loaded {
            bias,
            entry: p.header.entry.wrapping_add(bias),
            phdr: p.phdr.map_or(0, |a| a.wrapping_add(bias)),
            end: p.span.1.wrapping_add(bias),
            code: (u64::MAX, 0),
            data: (u64::MAX, 0),
        };
        for s in &p.segments {
            self.load_segment(mm, s, bias)?;
            let at = s.vaddr.wrapping_add(bias);
            let area = if protection(s).contains(Prot::EXEC) { &mut l.code } else { &mut l.data };
            *area = (area.0.min(at), area.1.max(at + s.filesz));
        }
        Ok(l)
    }

    fn load_segment(&self, mm: &Mm, s: &Segment, bias: u64) -> Result<()> {
        let at = s.vaddr.wrapping_add(bias);
        let start = page_down(at);
        let file_end = at + s.filesz;
        let end = page_up(at + s.memsz);
        let mut mapped = start;
        if s.filesz > 0 {
            let len = page_up(file_end) - start;
            let v = file_vma(&self.file, protection(s), VmFlags::empty(), page_down(s.offset), len)?;
            mm.map_file(MapAt::Fixed(start), len, v, false)?;
            mapped = start + len;
        }
        if s.memsz > s.filesz {
            if mapped > file_end && protection(s).contains(Prot::WRITE) {
                // The rest of the page would show what follows in the file.
                let n = (mapped - file_end) as usize;
                if UserPtr(file_end).zero_some(n)? < n {
                    return Err(Errno::EFAULT);
                }
            }
            if end > mapped {
                mm.map(
                    MapAt::Fixed(mapped),
                    end - mapped,
                    Vma::anonymous(protection(s), VmFlags::empty()),
                    false,
                )?;
            }
        }
        Ok(())
    }
}

/// What a segment may be used for.
fn protection(s: &Segment) -> Prot {
    Prot::from_bits_truncate(s.prot)
}
