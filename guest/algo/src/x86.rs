//! Just enough of x86-64 to follow control flow: the length of an instruction and where it may go next.
//!
//! Used to prove, before program text is changed at run time, that a byte is the start of an instruction
//! ([`reaches`]). Boundary: lengths are right for every valid instruction that is accepted ([`decode`] gives
//! `None` for rare or vendor-specific ones); bytes that are no instruction may be accepted too. `x86/tests.rs`
//! compares with a full disassembler.

use alloc::vec;
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// Where control goes after an instruction. Distances count from the next instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To the next instruction, also after a call.
    On,
    /// There.
    Jump(i64),
    /// To the next instruction or there.
    Branch(i64),
    /// Not to the next instruction, and not to a place that is known.
    Away,
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// Its bytes.
    pub len: usize,
    /// What follows.
    pub next: Next,
}

/// What follows an opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    modrm: bool,
    imm: usize,
}

const fn form(modrm: bool, imm: usize) -> Option<Form> {
    Some(Form { modrm, imm })
}

struct Prefixes {
    word: bool,
    addr32: bool,
    wide: bool,
    repeat: bool,
}

/// Decodes the instruction at the start of `code`.
#[must_use]
pub fn decode(code: &[u8]) -> Option<Insn> {
    let mut p = Prefixes { word: false, addr32: false, wide: false, repeat: false };
    let mut at = 0;
    loop {
        match *code.get(at)? {
            0x66 => p.word = true,
            0x67 => p.addr32 = true,
            0xf2 | 0xf3 => p.repeat = true,
            0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0xf0 => {}
            _ => break,
        }
        at += 1;
    }
    if code[at] & 0xf0 == 0x40 {
        p.wide = code[at] & 8 != 0;
        at += 1;
    }
    let op = *code.get(at)?;
    at += 1;
    let (f, map) = match op {
        0x0f => {
            let op = *code.get(at)?;
            at += 1;
            match op {
                0x38 => {
                    at += 1;
                    (form(true, 0)?, 2)
                }
                0x3a => {
                    at += 1;
                    (form(true, 1)?, 3)
                }
                _ => (two_byte(op)?, 1),
            }
        }
        0xc4 | 0xc5 | 0x62 => {
            let n = match op {
                0xc5 => 1,
                0xc4 => 2,
                _ => 3,
            };
            let map = if op == 0xc5 { 1 } else { *code.get(at)? & if op == 0xc4 { 0x1f } else { 7 } };
            at += n;
            let op2 = *code.get(at)?;
            at += 1;
            (vector(map, op2, op == 0x62)?, 4)
        }
        _ => (one_byte(op, *code.get(at).unwrap_or(&0), &p)?, 0),
    };
    let opcode = *code.get(at - 1)?;
    let modrm = if f.modrm { *code.get(at)? } else { 0 };
    let imm = at + if f.modrm { address_len(code, at)? } else { 0 };
    let len = imm + f.imm;
    if len > 15 || len > code.len() {
        return None;
    }
    let rel = |n: usize| match n {
        1 => i64::from(code[imm].cast_signed()),
        _ => i64::from(i32::from_le_bytes([code[imm], code[imm + 1], code[imm + 2], code[imm + 3]])),
    };
    let next = match (map, opcode) {
        (0, 0x70..=0x7f | 0xe0..=0xe3) | (1, 0x80..=0x8f) => Next::Branch(rel(f.imm)),
        (0, 0xe9 | 0xeb) => Next::Jump(rel(f.imm)),
        (0, 0xc2 | 0xc3 | 0xca | 0xcb | 0xcc | 0xcf | 0xf4)
        | (1, 0x0b | 0x07 | 0x35 | 0xaa | 0xb9 | 0xff) => Next::Away,
        (0, 0xff) if matches!(modrm >> 3 & 7, 4 | 5) => Next::Away,
        _ => Next::On,
    };
    // With an operand size prefix processors disagree about the size of the distance.
    if p.word && (matches!(next, Next::Branch(_) | Next::Jump(_)) || map == 0 && opcode == 0xe8) {
        return None;
    }
    Some(Insn { len, next })
}

/// Bytes of the ModRM byte at `at`, SIB and displacement.
fn address_len(code: &[u8], at: usize) -> Option<usize> {
    let m = *code.get(at)?;
    let (mode, rm) = (m >> 6, m & 7);
    let sib = mode != 3 && rm == 4;
    let disp = match mode {
        0 if rm == 5 => 4,
        0 if sib && code.get(at + 1)? & 7 == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(1 + usize::from(sib) + disp)
}

fn one_byte(op: u8, modrm: u8, p: &Prefixes) -> Option<Form> {
    let z = if p.word && !p.wide { 2 } else { 4 };
    let reg = modrm >> 3 & 7;
    match op {
        0x00..=0x3f => match op & 7 {
            0..=3 => form(true, 0),
            4 => form(false, 1),
            5 => form(false, z),
            _ => None,
        },
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => form(false, 0),
        0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => form(true, 0),
        // Other values of the register field are XOP prefixes.
        0x8f if modrm & 0x1f < 8 => form(true, 0),
        0x68 | 0xa9 => form(false, z),
        0x69 | 0x81 => form(true, z),
        0x6a | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe4..=0xe7 => form(false, 1),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 => form(true, 1),
        0x70..=0x7f | 0xe0..=0xe3 | 0xeb => form(false, 1),
        0xa0..=0xa3 => form(false, if p.addr32 { 4 } else { 8 }),
        0xb8..=0xbf if p.wide => form(false, 8),
        0xb8..=0xbf => form(false, z),
        // Not the instructions of transactions.
        0xc6 if reg == 0 => form(true, 1),
        0xc7 if reg == 0 => form(true, z),
        0xc2 | 0xca => form(false, 2),
        0xc8 => form(false, 3),
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf | 0xd7 | 0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => {
            form(false, 0)
        }
        0xe8 | 0xe9 => form(false, 4),
        0xf6 => form(true, usize::from(reg < 2)),
        0xf7 => form(true, if reg < 2 { z } else { 0 }),
        _ => None,
    }
}

fn two_byte(op: u8) -> Option<Form> {
    match op {
        0x05..=0x09 | 0x0b | 0x30..=0x35 | 0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => {
            form(false, 0)
        }
        0x80..=0x8f => form(false, 4),
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => form(true, 1),
        0x00..=0x03 | 0x0d | 0x10..=0x1f | 0x28..=0x2f | 0x40..=0x6f | 0x74..=0x76 | 0x7c..=0x7f => {
            form(true, 0)
        }
        0x90..=0x9f | 0xa3 | 0xa5 | 0xab | 0xad..=0xb9 | 0xbb..=0xc1 | 0xc3 | 0xc7 | 0xd0..=0xff => {
            form(true, 0)
        }
        _ => None,
    }
}

/// Opcodes behind a VEX prefix, or an EVEX one.
fn vector(map: u8, op: u8, evex: bool) -> Option<Form> {
    match map {
        1 if op == 0x77 && !evex => form(false, 0),
        1 => form(true, usize::from(matches!(op, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6))),
        2 => form(true, 0),
        3 => form(true, 1),
        5 | 6 if evex => form(true, 0),
        _ => None,
    }
}

/// The length of the instruction at the start of `code`, if it does the same at any other address: it is one of the usual
/// moves, comparisons and calculations, names no memory relative to its own address, and control goes on behind it.
#[must_use]
pub fn movable(code: &[u8]) -> Option<usize> {
    let rex = usize::from(code.first()? & 0xf0 == 0x40);
    let form = match *code.get(rex)? {
        // Arithmetic, `movsxd`, `test`, `xchg`, `mov`, `lea`, shifts, `not` and `neg`, `inc` and `dec`.
        op @ (0x00..=0x3b
        | 0x63
        | 0x81
        | 0x83..=0x8b
        | 0x8d
        | 0xc0
        | 0xc1
        | 0xc6
        | 0xc7
        | 0xd1
        | 0xd3
        | 0xf6
        | 0xf7
        | 0xfe)
            if op > 0x3f || op & 7 < 4 =>
        {
            *code.get(rex + 1)?
        }
        // With an immediate operand and no other; their length has no address in it.
        op if matches!(op, 0xa8 | 0xa9 | 0xb0..=0xbf) || op < 0x40 && matches!(op & 7, 4 | 5) => 0xc0,
        _ => return None,
    };
    // Relative to the next instruction.
    if form & 0xc7 == 5 {
        return None;
    }
    decode(code).filter(|i| i.next == Next::On).map(|i| i.len)
}

const START: u8 = 1;
const BODY: u8 = 2;

/// Whether disassembly from the start of `code`, which is the start of a function, proves that at `site` there is an
/// instruction of `len` bytes and right behind it another one, both reached, and that nothing reached goes into
/// the first one's middle. What lies behind the end of `code` is not looked at.
#[must_use]
pub fn reaches(code: &[u8], site: usize, len: usize) -> bool {
    let mut seen = vec![0u8; code.len()];
    let mut todo: Vec<usize> = vec![0];
    while let Some(mut at) = todo.pop() {
        while at < code.len() {
            if seen[at] & BODY != 0 {
                return false;
            }
            if seen[at] & START != 0 {
                break;
            }
            let Some(i) = decode(&code[at..]) else {
                // Cut off by the end, or not understood.
                if code.len() - at < 15 && at > site + len {
                    break;
                }
                return false;
            };
            seen[at] |= START;
            for b in &mut seen[at + 1..at + i.len] {
                if *b & START != 0 {
                    return false;
                }
                *b |= BODY;
            }
            let behind = at + i.len;
            let target = |d: i64| usize::try_from(behind as i64 + d).ok();
            match i.next {
                Next::On => at = behind,
                Next::Jump(d) => match target(d) {
                    Some(t) => at = t,
                    None => break,
                },
                Next::Branch(d) => {
                    todo.extend(target(d));
                    at = behind;
                }
                Next::Away => break,
            }
        }
    }
    let started = |at: usize| seen.get(at).is_some_and(|s| *s == START);
    let whole = seen.get(site + 1..site + len).is_some_and(|s| s.iter().all(|s| *s == BODY));
    started(site) && whole && started(site + len)
}
