//! Call frame information: `.debug_frame` of DWARF 4 and 5, and `.eh_frame`.
//!
//! Supported is what compilers write for x86-64. Of expressions only "a register plus a number" and what lies there
//! are understood, which signal frames use; a frame that needs more ends the unwinding.

use alloc::vec::Vec;

use crate::reader::Reader;

/// Registers that have a rule.
pub const REGISTERS: usize = 17;
/// The frame pointer's number.
pub const RBP: usize = 6;
/// The stack pointer's number.
pub const RSP: usize = 7;
/// The column of the return address.
pub const RETURN_ADDRESS: usize = 16;

/// Most states that `DW_CFA_remember_state` keeps.
const REMEMBERED: usize = 8;

/// Where a value of the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Unchanged.
    Same,
    /// In memory, at this distance from the frame's address.
    Saved(i64),
    /// A register's value plus a number.
    Value {
        /// Register.
        register: u8,
        /// What is added.
        offset: i64,
    },
    /// In memory where a register's value plus a number points.
    At {
        /// Register.
        register: u8,
        /// What is added.
        offset: i64,
    },
    /// Lost, or not understood.
    Unknown,
}

/// How to leave a frame from some of its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The frame's address: the stack pointer before the call.
    pub cfa: Rule,
    /// Registers of the caller.
    pub registers: [Rule; REGISTERS],
}

/// What frames have in common (a CIE).
#[derive(Clone, Copy, Debug)]
pub struct Common<'a> {
    code_align: u64,
    data_align: i64,
    /// How `.eh_frame` writes addresses.
    encoding: u8,
    augmented: bool,
    /// Its frames are those of signal handlers.
    pub is_signal: bool,
    instructions: &'a [u8],
}

/// The frame of a function (an FDE).
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its first address.
    pub start: u64,
    /// Bytes of code.
    pub len: u64,
    instructions: &'a [u8],
}

impl<'a> Common<'a> {
    /// Reads what follows length and id. `eh`: it is one of `.eh_frame`.
    #[must_use]
    pub fn parse(body: &'a [u8], eh: bool) -> Option<Self> {
        let mut r = Reader(body);
        let version = r.u8()?;
        let augmentation = r.string()?;
        if !eh && version >= 4 {
            let (address, segment) = (r.u8()?, r.u8()?);
            if address != 8 || segment != 0 {
                return None;
            }
        }
        let (code_align, data_align) = (r.uleb()?, r.sleb()?);
        let column = if version == 1 { u64::from(r.u8()?) } else { r.uleb()? };
        if column != RETURN_ADDRESS as u64 {
            return None;
        }
        let (mut encoding, mut is_signal) = (0, false);
        let augmented = augmentation.first() == Some(&b'z');
        if augmented {
            let len = usize::try_from(r.uleb()?).ok()?;
            let mut data = Reader(r.bytes(len)?);
            for letter in &augmentation[1..] {
                match letter {
                    b'R' => encoding = data.u8()?,
                    b'S' => is_signal = true,
                    b'L' => drop(data.u8()?),
                    b'P' => {
                        let kind = data.u8()?;
                        pointer(&mut data, kind, 0)?;
                    }
                    _ => return None,
                }
            }
        } else if !augmentation.is_empty() {
            return None;
        }
        Some(Self { code_align, data_align, encoding, augmented, is_signal, instructions: r.0 })
    }

    /// Reads what follows length and id of a frame of `.debug_frame`.
    #[must_use]
    pub fn debug_frame(&self, body: &'a [u8]) -> Option<Frame<'a>> {
        let mut r = Reader(body);
        let (start, len) = (r.u64()?, r.u64()?);
        Some(Frame { start, len, instructions: r.0 })
    }

    /// Reads what follows length and id of a frame of `.eh_frame`; it lies at the address `at`.
    #[must_use]
    pub fn eh_frame(&self, body: &'a [u8], at: u64) -> Option<Frame<'a>> {
        let mut r = Reader(body);
        let start = pointer(&mut r, self.encoding, at)?;
        // A length is written as an address is, but relative to nothing.
        let len = pointer(&mut r, self.encoding & 0xf, 0)?;
        if self.augmented {
            let len = usize::try_from(r.uleb()?).ok()?;
            r.bytes(len)?;
        }
        Some(Frame { start, len, instructions: r.0 })
    }

    /// The row for an address.
    #[must_use]
    pub fn row(&self, frame: &Frame<'_>, pc: u64) -> Option<Row> {
        let offset = pc.checked_sub(frame.start).filter(|o| *o < frame.len)?;
        let mut found = None;
        self.rows(frame, &mut |at, row| {
            if at <= offset {
                found = Some(*row);
            }
        })?;
        found
    }

    /// All rows, each with the offset in the function from which it counts. `None` if the table is broken.
    pub fn rows(&self, frame: &Frame<'_>, each: &mut dyn FnMut(u64, &Row)) -> Option<()> {
        let blank = Row { cfa: Rule::Unknown, registers: [Rule::Same; REGISTERS] };
        let mut m = Machine { common: self, at: 0, row: blank, initial: blank, kept: Vec::new() };
        m.run(self.instructions, &mut |_, _| {})?;
        m.initial = m.row;
        m.at = 0;
        m.run(frame.instructions, each)?;
        each(m.at, &m.row);
        Some(())
    }
}

/// An address as `kind` writes it: absolute, or relative to the address `at` of the field.
fn pointer(r: &mut Reader<'_>, kind: u8, at: u64) -> Option<u64> {
    if kind == 0xff {
        return Some(0);
    }
    let value = match kind & 0xf {
        0 | 4 | 0xc => r.u64()?,
        2 => u64::from(r.u16()?),
        3 => u64::from(r.u32()?),
        0xa => i64::from(r.u16()?.cast_signed()).cast_unsigned(),
        0xb => i64::from(r.u32()?.cast_signed()).cast_unsigned(),
        _ => return None,
    };
    match kind & 0x70 {
        0 => Some(value),
        0x10 => Some(value.wrapping_add(at)),
        _ => None,
    }
}

/// Executes a table's instructions.
struct Machine<'a> {
    common: &'a Common<'a>,
    /// Offset in the function.
    at: u64,
    row: Row,
    initial: Row,
    kept: Vec<Row>,
}

impl Machine<'_> {
    fn run(&mut self, instructions: &[u8], each: &mut dyn FnMut(u64, &Row)) -> Option<()> {
        let mut r = Reader(instructions);
        while !r.0.is_empty() {
            let op = r.u8()?;
            let low = op & 0x3f;
            match op >> 6 {
                1 => self.advance(u64::from(low), each),
                2 => {
                    let offset = self.scaled(r.uleb()?);
                    self.set(u64::from(low), Rule::Saved(offset));
                }
                3 => self.restore(u64::from(low)),
                _ => self.extended(op, &mut r, each)?,
            }
        }
        Some(())
    }

    fn extended(&mut self, op: u8, r: &mut Reader<'_>, each: &mut dyn FnMut(u64, &Row)) -> Option<()> {
        match op {
            // DW_CFA_nop, DW_CFA_GNU_args_size.
            0 => {}
            0x2e => drop(r.uleb()?),
            0x02 => self.advance(u64::from(r.u8()?), each),
            0x03 => self.advance(u64::from(r.u16()?), each),
            0x04 => self.advance(u64::from(r.u32()?), each),
            0x05 => {
                let (register, offset) = (r.uleb()?, r.uleb()?);
                let offset = self.scaled(offset);
                self.set(register, Rule::Saved(offset));
            }
            0x06 => self.restore(r.uleb()?),
            0x07 => self.set(r.uleb()?, Rule::Unknown),
            0x08 => self.set(r.uleb()?, Rule::Same),
            0x09 => {
                let (to, from) = (r.uleb()?, r.uleb()?);
                self.set(to, Rule::Value { register: u8::try_from(from).ok()?, offset: 0 });
            }
            0x0a if self.kept.len() < REMEMBERED => self.kept.push(self.row),
            0x0b => self.row = self.kept.pop()?,
            0x0c => {
                let (register, offset) = (r.uleb()?, r.uleb()?);
                self.row.cfa =
                    Rule::Value { register: u8::try_from(register).ok()?, offset: offset.cast_signed() };
            }
            0x0d => {
                let register = u8::try_from(r.uleb()?).ok()?;
                let Rule::Value { offset, .. } = self.row.cfa else { return None };
                self.row.cfa = Rule::Value { register, offset };
            }
            0x0e => {
                let new = r.uleb()?.cast_signed();
                let Rule::Value { register, .. } = self.row.cfa else { return None };
                self.row.cfa = Rule::Value { register, offset: new };
            }
            0x0f => self.row.cfa = expression(r, true)?,
            0x10 => {
                let register = r.uleb()?;
                let rule = expression(r, false)?;
                self.set(register, rule);
            }
            0x16 => {
                let register = r.uleb()?;
                let rule = expression(r, true)?;
                self.set(register, rule);
            }
            0x11 => {
                let (register, offset) = (r.uleb()?, r.sleb()?);
                self.set(register, Rule::Saved(offset.wrapping_mul(self.common.data_align)));
            }
            _ => return None,
        }
        Some(())
    }

    fn advance(&mut self, by: u64, each: &mut dyn FnMut(u64, &Row)) {
        each(self.at, &self.row);
        self.at = self.at.saturating_add(by.saturating_mul(self.common.code_align));
    }

    fn scaled(&self, factor: u64) -> i64 {
        factor.cast_signed().wrapping_mul(self.common.data_align)
    }

    /// Registers without a rule here are vector registers, which nobody needs.
    fn set(&mut self, register: u64, rule: Rule) {
        if let Some(r) = usize::try_from(register).ok().and_then(|r| self.row.registers.get_mut(r)) {
            *r = rule;
        }
    }

    fn restore(&mut self, register: u64) {
        let initial = usize::try_from(register).ok().and_then(|r| self.initial.registers.get(r).copied());
        self.set(register, initial.unwrap_or(Rule::Same));
    }
}

/// `DW_OP_breg N`, alone or with `DW_OP_deref`. `value`: the result is the value; otherwise the value lies there.
fn expression(r: &mut Reader<'_>, value: bool) -> Option<Rule> {
    let len = usize::try_from(r.uleb()?).ok()?;
    let mut e = Reader(r.bytes(len)?);
    let Some(register) = e.u8()?.checked_sub(0x70).filter(|n| usize::from(*n) < REGISTERS) else {
        return Some(Rule::Unknown);
    };
    let offset = e.sleb()?;
    Some(match (e.0, value) {
        ([], true) => Rule::Value { register, offset },
        ([], false) | ([0x06], true) => Rule::At { register, offset },
        _ => Rule::Unknown,
    })
}

/// Walks over the entries of a section, each with whether it is a CIE; `None` at the end or where it is broken.
pub struct Entries<'a> {
    section: &'a [u8],
    at: usize,
}

/// One entry of a section.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// Its id field: which CIE it belongs to, or that it is one.
    pub id: u32,
    /// Offset of the id field in the section.
    pub id_at: usize,
    /// What follows the id.
    pub body: &'a [u8],
}

impl<'a> Entries<'a> {
    /// Of a section whose entries have 32-bit lengths.
    #[must_use]
    pub fn new(section: &'a [u8]) -> Self {
        Self { section, at: 0 }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let mut r = Reader(self.section.get(self.at..)?);
        let len = r.u32()?;
        if len == 0 || len == u32::MAX {
            return None;
        }
        let mut entry = Reader(r.bytes(len as usize)?);
        let id_at = self.at + 4;
        self.at = id_at + len as usize;
        Some(Entry { id: entry.u32()?, id_at, body: entry.0 })
    }
}
