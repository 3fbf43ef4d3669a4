//! Classic BPF: checking a program, and running it over the data of a call (seccomp) or over a packet (socket filters).
//!
//! Key types: [`Program`], which passed one of the checks; [`Data`], what it is run over: `struct seccomp_data` in words, or a
//! [`Packet`]. Every program that a check accepts ends: jumps only go forward, and the last instruction returns.

mod packet;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use packet::{Kind, Packet};

/// Most instructions of one program (BPF_MAXINSNS).
pub const MAX_INSNS: usize = 4096;
/// Bytes of `struct seccomp_data`.
pub const DATA_SIZE: usize = 64;
const CELLS: usize = 16;

/// One instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// Operation.
    pub code: u16,
    /// Jump distance if the condition holds.
    pub jt: u8,
    /// Jump distance if it does not.
    pub jf: u8,
    /// Constant.
    pub k: u32,
}

impl Insn {
    /// What it is in user memory.
    pub fn to_bytes(self) -> [u8; 8] {
        let ([c, d], [e, f, g, h]) = (self.code.to_le_bytes(), self.k.to_le_bytes());
        [c, d, self.jt, self.jf, e, f, g, h]
    }

    /// Its form in user memory.
    pub fn from_bytes(b: [u8; 8]) -> Self {
        Self {
            code: u16::from_le_bytes([b[0], b[1]]),
            jt: b[2],
            jf: b[3],
            k: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }
}

/// Operations, with their mode and source in the code.
mod op {
    pub const LD_ABS: u16 = 0x20;
    pub const LDH_ABS: u16 = 0x28;
    pub const LDB_ABS: u16 = 0x30;
    pub const LD_IND: u16 = 0x40;
    pub const LDH_IND: u16 = 0x48;
    pub const LDB_IND: u16 = 0x50;
    /// X = 4 times the lower half of a byte: the length of an IP header.
    pub const LDX_MSH: u16 = 0xb1;
    pub const LD_LEN: u16 = 0x80;
    pub const LD_IMM: u16 = 0x00;
    pub const LD_MEM: u16 = 0x60;
    pub const LDX_LEN: u16 = 0x81;
    pub const LDX_IMM: u16 = 0x01;
    pub const LDX_MEM: u16 = 0x61;
    pub const ST: u16 = 0x02;
    pub const STX: u16 = 0x03;
    pub const JA: u16 = 0x05;
    pub const RET_K: u16 = 0x06;
    pub const RET_A: u16 = 0x16;
    pub const TAX: u16 = 0x07;
    pub const TXA: u16 = 0x87;
    /// Class of arithmetic and of conditional jumps, and the bit that takes X instead of the constant.
    pub const ALU: u16 = 0x04;
    pub const JMP: u16 = 0x05;
    pub const X: u16 = 0x08;
    pub const ADD: u16 = 0x00;
    pub const SUB: u16 = 0x10;
    pub const MUL: u16 = 0x20;
    pub const DIV: u16 = 0x30;
    pub const OR: u16 = 0x40;
    pub const AND: u16 = 0x50;
    pub const LSH: u16 = 0x60;
    pub const RSH: u16 = 0x70;
    pub const NEG: u16 = 0x80;
    pub const MOD: u16 = 0x90;
    pub const XOR: u16 = 0xa0;
    pub const JEQ: u16 = 0x10;
    pub const JGT: u16 = 0x20;
    pub const JGE: u16 = 0x30;
    pub const JSET: u16 = 0x40;
}

/// Bytes that a load takes.
fn size(code: u16) -> u8 {
    match code & 0x18 {
        0x08 => 2,
        0x10 => 1,
        _ => 4,
    }
}

/// What a program is run over.
pub trait Data {
    /// Its length (BPF_LEN).
    fn len(&self) -> u32;

    /// Whether there is nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// So many bytes (1, 2 or 4) at an offset, which may be negative for what lies before; `None` ends the program with 0.
    fn load(&self, at: i32, size: u8) -> Option<u32>;

    /// What Linux knows beside it, by the number of an extension; `None` ends the program with what it has (A).
    fn extension(&self, _number: u32, a: u32, _x: u32) -> Option<u32> {
        Some(a)
    }
}

impl Data for [u32; DATA_SIZE / 4] {
    fn len(&self) -> u32 {
        DATA_SIZE as u32
    }

    #[inline]
    fn load(&self, at: i32, _size: u8) -> Option<u32> {
        self.get(at.cast_unsigned() as usize / 4).copied()
    }
}

/// Offsets from here on are numbers of extensions (SKF_AD_OFF).
const EXTENSIONS: u32 = 0xffff_f000;
/// Numbers of extensions go by fours up to this one.
const LAST_EXTENSION: u32 = 60;

/// Whom a program is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Seccomp,
    Sockets,
}

impl For {
    /// Whether a load or an operation that has nothing to do with jumps and cells is allowed.
    fn allows(self, i: &Insn) -> bool {
        let seccomp = self == Self::Seccomp;
        match i.code {
            op::LD_ABS if seccomp => i.k as usize + 4 <= DATA_SIZE && i.k.is_multiple_of(4),
            op::LD_ABS | op::LDH_ABS | op::LDB_ABS if !seccomp => {
                i.k < EXTENSIONS || i.k - EXTENSIONS <= LAST_EXTENSION && i.k.is_multiple_of(4)
            }
            op::LD_IND | op::LDH_IND | op::LDB_IND | op::LDX_MSH => !seccomp,
            op::LD_LEN | op::LDX_LEN | op::LD_IMM | op::LDX_IMM | op::TAX | op::TXA => true,
            c if c & 7 == op::ALU && c < 0x100 => match (c & !(7 | op::X), c & op::X != 0) {
                (op::MOD, _) if seccomp => false,
                (op::DIV | op::MOD, false) => i.k != 0,
                (op::LSH | op::RSH, false) => i.k < 32,
                (op::NEG, x) => !x,
                (op::ADD | op::SUB | op::MUL | op::OR | op::AND | op::XOR, _) => true,
                (op::DIV | op::MOD | op::LSH | op::RSH, true) => true,
                _ => false,
            },
            _ => false,
        }
    }
}

/// A program that passed the check.
#[derive(Debug)]
pub struct Program(Vec<Insn>);

impl Program {
    /// Accepts what Linux accepts as a seccomp filter.
    pub fn check(insns: Vec<Insn>) -> Option<Self> {
        Self::check_for(For::Seccomp, insns)
    }

    /// Accepts what Linux accepts as a filter of a socket.
    pub fn check_socket(insns: Vec<Insn>) -> Option<Self> {
        Self::check_for(For::Sockets, insns)
    }

    fn check_for(whom: For, insns: Vec<Insn>) -> Option<Self> {
        if insns.is_empty() || insns.len() > MAX_INSNS {
            return None;
        }
        let len = insns.len();
        // Cells written on every way to an instruction; jumps only go forward, so one pass is enough.
        let mut at: Vec<u16> = alloc::vec![u16::MAX; len];
        let mut written = 0u16;
        for (pc, i) in insns.iter().enumerate() {
            written &= at[pc];
            let mut reach = |distance: usize, cells: u16| -> Option<()> {
                *at.get_mut(pc + 1 + distance)? &= cells;
                Some(())
            };
            match i.code {
                op::LD_MEM | op::LDX_MEM if (i.k as usize) < CELLS && written & 1 << i.k != 0 => {}
                op::ST | op::STX if (i.k as usize) < CELLS => written |= 1 << i.k,
                op::RET_K | op::RET_A => written = u16::MAX,
                op::JA => {
                    reach(i.k as usize, written)?;
                    written = u16::MAX;
                }
                c if c & 7 == op::JMP && c & !(7 | op::X) <= op::JSET && c < 0x100 => {
                    reach(i.jt.into(), written)?;
                    reach(i.jf.into(), written)?;
                    written = u16::MAX;
                }
                _ if whom.allows(i) => {}
                _ => return None,
            }
        }
        matches!(insns[len - 1].code, op::RET_K | op::RET_A).then_some(Self(insns))
    }

    /// Its length in instructions.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Its instructions.
    pub fn insns(&self) -> &[Insn] {
        &self.0
    }

    /// Runs it over `data`. A division by zero ends it with 0.
    pub fn run(&self, data: &impl Data) -> u32 {
        let (mut a, mut x, mut pc) = (0u32, 0u32, 0usize);
        let mut mem = [0u32; CELLS];
        loop {
            let i = self.0[pc];
            pc += 1;
            let k = i.k as usize;
            match i.code {
                op::LD_ABS | op::LDH_ABS | op::LDB_ABS if i.k >= EXTENSIONS => {
                    match data.extension(i.k - EXTENSIONS, a, x) {
                        Some(v) => a = v,
                        None => return a,
                    }
                }
                op::LD_ABS | op::LDH_ABS | op::LDB_ABS => match data.load(i.k.cast_signed(), size(i.code)) {
                    Some(v) => a = v,
                    None => return 0,
                },
                op::LD_IND | op::LDH_IND | op::LDB_IND => {
                    match data.load(x.wrapping_add(i.k).cast_signed(), size(i.code)) {
                        Some(v) => a = v,
                        None => return 0,
                    }
                }
                op::LDX_MSH => match data.load(i.k.cast_signed(), 1) {
                    Some(v) => x = (v & 0xf) * 4,
                    None => return 0,
                },
                op::LD_LEN => a = data.len(),
                op::LDX_LEN => x = data.len(),
                op::LD_IMM => a = i.k,
                op::LDX_IMM => x = i.k,
                op::LD_MEM => a = mem[k],
                op::LDX_MEM => x = mem[k],
                op::ST => mem[k] = a,
                op::STX => mem[k] = x,
                op::TAX => x = a,
                op::TXA => a = x,
                op::RET_K => return i.k,
                op::RET_A => return a,
                op::JA => pc += k,
                c => {
                    let v = if c & op::X != 0 { x } else { i.k };
                    let what = c & !(7 | op::X);
                    if c & 7 == op::JMP {
                        let yes = match what {
                            op::JEQ => a == v,
                            op::JGT => a > v,
                            op::JGE => a >= v,
                            _ => a & v != 0,
                        };
                        pc += usize::from(if yes { i.jt } else { i.jf });
                    } else {
                        a = match what {
                            op::ADD => a.wrapping_add(v),
                            op::SUB => a.wrapping_sub(v),
                            op::MUL => a.wrapping_mul(v),
                            op::DIV => match a.checked_div(v) {
                                Some(q) => q,
                                None => return 0,
                            },
                            op::MOD => match a.checked_rem(v) {
                                Some(r) => r,
                                None => return 0,
                            },
                            op::OR => a | v,
                            op::AND => a & v,
                            op::LSH => a.wrapping_shl(v),
                            op::RSH => a.wrapping_shr(v),
                            op::XOR => a ^ v,
                            _ => a.wrapping_neg(),
                        };
                    }
                }
            }
        }
    }
}
