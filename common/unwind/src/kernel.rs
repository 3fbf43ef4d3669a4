//! The guest kernel's functions: names, and how to leave their frames.
//!
//! The host makes the table from the kernel's ELF (symbols and `.debug_frame`) and puts it behind the kernel as a segment
//! that nothing touches until somebody asks ([`doppel_abi_machine`'s `layout::SYMBOLS_BASE`]). All numbers are
//! little-endian, all addresses relative to the kernel's base:
//!
//! | part | content |
//! |---|---|
//! | header, 32 bytes | magic, bytes of the whole table (u64 each), functions, rows, bytes of names, 0 (u32 each) |
//! | functions, 12 bytes each | start, length, offset of the name (u32 each), in order |
//! | rows, 8 bytes each | start (u32), distance of the frame's address in words (u16, [`BY_RBP`]), rbp (u16), in order |
//! | names | each with a NUL |
//!
//! A row's rbp is 0 if the caller's is still in the register, otherwise it lies so many words below the frame's address.

use alloc::vec::Vec;

use crate::Registers;
use crate::cfi::{RBP, RETURN_ADDRESS, RSP, Row, Rule};
use crate::reader::Reader;

/// First word of the table.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dplsyms1");
/// Bytes of the header.
pub const HEADER: usize = 32;
const FUNCTION: usize = 12;
const ROW: usize = 8;

/// The frame's address is relative to rbp, not to rsp.
pub const BY_RBP: u16 = 0x8000;
/// The frame's address is not known.
const UNKNOWN: u16 = u16::MAX;

/// A table that was checked.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    base: u64,
    functions: &'a [u8],
    rows: &'a [u8],
    names: &'a [u8],
}

/// A function with an address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Path of the function.
    pub name: &'a str,
    /// Distance of the address from its start, and its length.
    pub offset: u64,
    /// Bytes of code.
    pub len: u64,
}

/// Where `bytes`, the first ones of a table, say that it ends.
#[must_use]
pub fn size(bytes: &[u8]) -> Option<usize> {
    let mut r = Reader(bytes);
    (r.u64()? == MAGIC).then_some(())?;
    usize::try_from(r.u64()?).ok()
}

impl<'a> Table<'a> {
    /// The table of a kernel that is linked at `base`.
    #[must_use]
    pub fn new(bytes: &'a [u8], base: u64) -> Option<Self> {
        let size = size(bytes)?;
        let mut r = Reader(bytes.get(16..size)?);
        let (functions, rows, names, _) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        Some(Self {
            base,
            functions: r.bytes((functions as usize).checked_mul(FUNCTION)?)?,
            rows: r.bytes((rows as usize).checked_mul(ROW)?)?,
            names: r.bytes(names as usize)?,
        })
    }

    /// The function that an address belongs to.
    #[must_use]
    pub fn function(&self, pc: u64) -> Option<Function<'a>> {
        let at = u32::try_from(pc.checked_sub(self.base)?).ok()?;
        let mut r = Reader(last(self.functions, FUNCTION, at)?);
        let (start, len, name) = (r.u32()?, r.u32()?, r.u32()?);
        let offset = at - start;
        let name = Reader(self.names.get(name as usize..)?).string()?;
        let name = core::str::from_utf8(name).ok()?;
        (offset < len).then_some(Function { name, offset: u64::from(offset), len: u64::from(len) })
    }

    /// The caller's registers; only pc, rsp and rbp are meant. `read` reads eight bytes of the stack.
    pub fn caller(&self, r: &Registers, read: &mut dyn FnMut(u64) -> Option<u64>) -> Option<Registers> {
        // A return address may lie behind the last instruction of its function, so the call before it counts.
        let at = u32::try_from(r.pc().checked_sub(1)?.checked_sub(self.base)?).ok()?;
        let mut row = Reader(last(self.rows, ROW, at)?);
        let (_, cfa, rbp) = (row.u32()?, row.u16()?, row.u16()?);
        if cfa == UNKNOWN {
            return None;
        }
        let register = if cfa & BY_RBP != 0 { RBP } else { RSP } as u8;
        let mut full = Row {
            cfa: Rule::Value { register, offset: i64::from(cfa & !BY_RBP) * 8 },
            registers: [Rule::Same; crate::cfi::REGISTERS],
        };
        full.registers[RETURN_ADDRESS] = Rule::Saved(-8);
        if rbp != 0 {
            full.registers[RBP] = Rule::Saved(-8 * i64::from(rbp));
        }
        r.caller(&full, read)
    }
}

/// The last record that starts at or before `at`.
fn last(records: &[u8], size: usize, at: u32) -> Option<&[u8]> {
    let start = |i: usize| Reader(&records[i * size..]).u32();
    let (mut low, mut high) = (0, records.len() / size);
    while low < high {
        let middle = low.midpoint(high);
        if start(middle)? <= at { low = middle + 1 } else { high = middle }
    }
    let i = low.checked_sub(1)?;
    Some(&records[i * size..][..size])
}

/// Makes a table.
#[derive(Default)]
pub struct Builder {
    functions: Vec<(u32, u32, u32)>,
    rows: Vec<(u32, u16, u16)>,
    names: Vec<u8>,
}

impl Builder {
    /// Adds a function, in the order of their starts.
    pub fn function(&mut self, start: u32, len: u32, name: &str) {
        self.functions.push((start, len, self.names.len() as u32));
        self.names.extend_from_slice(name.as_bytes());
        self.names.push(0);
    }

    /// Adds a row that counts from `start` on, in any order; none where a frame cannot be left.
    pub fn row(&mut self, start: u32, row: Option<&Row>) {
        let (cfa, rbp) = row.and_then(packed).unwrap_or((UNKNOWN, 0));
        self.rows.push((start, cfa, rbp));
    }

    /// The table.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        // Of two at one address the known one counts.
        self.rows.sort_by_key(|(start, cfa, _)| (*start, *cfa));
        self.rows.dedup_by_key(|(start, ..)| *start);
        self.rows.dedup_by_key(|(_, cfa, rbp)| (*cfa, *rbp));
        let mut out = Vec::new();
        let counts = [self.functions.len(), self.rows.len(), self.names.len(), 0];
        let size = HEADER + self.functions.len() * FUNCTION + self.rows.len() * ROW + self.names.len();
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&(size as u64).to_le_bytes());
        counts.iter().for_each(|n| out.extend_from_slice(&(*n as u32).to_le_bytes()));
        for (start, len, name) in &self.functions {
            [start, len, name].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        }
        for (start, cfa, rbp) in &self.rows {
            out.extend_from_slice(&start.to_le_bytes());
            [cfa, rbp].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        }
        out.extend_from_slice(&self.names);
        out
    }
}

/// A row in two numbers, if it fits.
fn packed(row: &Row) -> Option<(u16, u16)> {
    let words = |n: i64| u16::try_from(n / 8).ok().filter(|w| n % 8 == 0 && *w < BY_RBP - 1);
    let Rule::Value { register, offset } = row.cfa else { return None };
    let by_rbp = match usize::from(register) {
        RSP => 0,
        RBP => BY_RBP,
        _ => return None,
    };
    let rbp = match row.registers[RBP] {
        Rule::Same => 0,
        Rule::Saved(at) => words(-at)?,
        _ => return None,
    };
    (row.registers[RETURN_ADDRESS] == Rule::Saved(-8)).then_some((words(offset)? | by_rbp, rbp))
}
