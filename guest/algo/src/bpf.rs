//! Classic BPF as seccomp filters use it: checking a program, and running it over `struct seccomp_data`.
//!
//! Every program that [`Program::check`] accepts ends: jumps only go forward, and the last instruction returns.

use alloc::vec::Vec;

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
    pub const XOR: u16 = 0xa0;
    pub const JEQ: u16 = 0x10;
    pub const JGT: u16 = 0x20;
    pub const JGE: u16 = 0x30;
    pub const JSET: u16 = 0x40;
}

/// A program that passed the check.
#[derive(Debug)]
pub struct Program(Vec<Insn>);

impl Program {
    /// Accepts what Linux accepts as a seccomp filter.
    pub fn check(insns: Vec<Insn>) -> Option<Self> {
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
                op::LD_ABS if i.k as usize + 4 <= DATA_SIZE && i.k % 4 == 0 => {}
                op::LD_LEN | op::LDX_LEN | op::LD_IMM | op::LDX_IMM | op::TAX | op::TXA => {}
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
                c if c & 7 == op::ALU => match (c & !(7 | op::X), c & op::X != 0) {
                    (op::DIV, false) if i.k == 0 => return None,
                    (op::LSH | op::RSH, false) if i.k >= 32 => return None,
                    (op::NEG, true) => return None,
                    (
                        op::ADD
                        | op::SUB
                        | op::MUL
                        | op::DIV
                        | op::OR
                        | op::AND
                        | op::LSH
                        | op::RSH
                        | op::NEG
                        | op::XOR,
                        _,
                    ) => {}
                    _ => return None,
                },
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

    /// Runs it over `data`, the words of `struct seccomp_data`. A division by zero ends it with 0.
    pub fn run(&self, data: &[u32; DATA_SIZE / 4]) -> u32 {
        let (mut a, mut x, mut pc) = (0u32, 0u32, 0usize);
        let mut mem = [0u32; CELLS];
        loop {
            let i = self.0[pc];
            pc += 1;
            let k = i.k as usize;
            match i.code {
                op::LD_ABS => a = data[k / 4],
                op::LD_LEN => a = DATA_SIZE as u32,
                op::LDX_LEN => x = DATA_SIZE as u32,
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn i(code: u16, jt: u8, jf: u8, k: u32) -> Insn {
        Insn { code, jt, jf, k }
    }

    #[test]
    fn errno_for_one_number() {
        let p = Program::check(vec![i(0x20, 0, 0, 0), i(0x15, 0, 1, 39), i(6, 0, 0, 7), i(6, 0, 0, 1)]);
        let p = p.expect("a good program");
        let mut data = [0; 16];
        assert_eq!(p.run(&data), 1);
        data[0] = 39;
        assert_eq!(p.run(&data), 7);
    }

    #[test]
    fn refuses_what_could_run_away() {
        for bad in [
            vec![],
            vec![i(0x20, 0, 0, 0)],
            vec![i(0x05, 0, 0, 1), i(6, 0, 0, 0)],
            vec![i(0x05, 0, 0, u32::MAX), i(6, 0, 0, 0)],
            vec![i(0x15, 9, 0, 0), i(6, 0, 0, 0)],
            vec![i(0x20, 0, 0, 64), i(6, 0, 0, 0)],
            vec![i(0x20, 0, 0, u32::MAX), i(6, 0, 0, 0)],
            vec![i(0x02, 0, 0, 16), i(6, 0, 0, 0)],
            vec![i(0x28, 0, 0, 0), i(6, 0, 0, 0)],
            vec![i(0x94, 0, 0, 2), i(6, 0, 0, 0)], // modulo: not for seccomp
            vec![i(0x55, 0, 0, 0), i(6, 0, 0, 0)],
        ] {
            assert!(Program::check(bad.clone()).is_none(), "{bad:?}");
        }
        assert!(Program::check(vec![i(6, 0, 0, 0); MAX_INSNS + 1]).is_none());
    }

    #[test]
    fn a_cell_must_be_written_on_every_way() {
        // One branch stores, the other does not.
        let p = vec![i(0x15, 0, 1, 0), i(0x02, 0, 0, 0), i(0x60, 0, 0, 0), i(0x16, 0, 0, 0)];
        assert!(Program::check(p).is_none());
        let p = vec![i(0x02, 0, 0, 0), i(0x15, 0, 0, 0), i(0x60, 0, 0, 0), i(0x16, 0, 0, 0)];
        assert!(Program::check(p).is_some());
    }

    #[test]
    fn arithmetic_wraps_and_division_by_zero_ends() {
        let run = |code: u16, a: u32, x: u32| {
            let p = vec![i(0, 0, 0, a), i(1, 0, 0, x), i(code, 0, 0, 0), i(0x16, 0, 0, 0)];
            Program::check(p).expect("a good program").run(&[0; 16])
        };
        assert_eq!(run(0x0c, u32::MAX, 2), 1);
        assert_eq!(run(0x1c, 1, 2), u32::MAX);
        assert_eq!(run(0x3c, 9, 0), 0);
        assert_eq!(run(0x3c, 9, 2), 4);
        assert_eq!(run(0x6c, 1, 33), 2);
        assert_eq!(run(0xac, 6, 3), 5);
    }
}
