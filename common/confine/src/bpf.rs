//! A small compiler from the allow-list to a classic BPF seccomp program.
//!
//! Classic BPF has forward jumps of at most 255 instructions, so every rule is compiled to a block
//! that ends in its own `return`s: `Block` resolves the jumps inside it and fails loudly (at build
//! time of the table: a test compiles it) when one is too far.

use crate::rules::{Check, Rule, Site, Test};

/// One classic BPF instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a condition holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

impl Instruction {
    /// The bytes as the host kernel expects them.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        let [c0, c1] = self.code.to_le_bytes();
        let [k0, k1, k2, k3] = self.k.to_le_bytes();
        [c0, c1, self.jt, self.jf, k0, k1, k2, k3]
    }
}

/// Where calls may come from: addresses right *after* the instruction, as seccomp reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sites {
    /// End of the gate's `syscall`.
    pub gate_end: u64,
    /// End of the signal return's `syscall`.
    pub sigreturn_end: u64,
}

pub(crate) const LOAD: u16 = 0x20;
pub(crate) const AND: u16 = 0x54;
pub(crate) const JUMP: u16 = 0x05;
pub(crate) const JUMP_EQ: u16 = 0x15;
pub(crate) const JUMP_SET: u16 = 0x45;
pub(crate) const RETURN: u16 = 0x06;

pub(crate) const ARCH_X86_64: u32 = 0xc000_003e;
/// Calls by `int 0x80` and `sysenter`.
pub(crate) const ARCH_I386: u32 = 0x4000_0003;
pub(crate) const ALLOW: u32 = 0x7fff_0000;
pub(crate) const KILL_PROCESS: u32 = 0x8000_0000;
pub(crate) const TRAP: u32 = 0x0003_0000;
/// `SECCOMP_RET_ERRNO` with EPERM.
pub(crate) const REFUSE: u32 = 0x0005_0000 | 1;
/// The same with ENOSYS.
pub(crate) const NO_SUCH_CALL: u32 = 0x0005_0000 | 38;

const OFF_NR: u32 = 0;
const OFF_ARCH: u32 = 4;
const OFF_IP: u32 = 8;
const OFF_ARGS: u32 = 16;
const X32_BIT: u32 = 0x4000_0000;

/// Compiles `rules` for a guest kernel whose gates are at `sites`.
///
/// # Panics
/// If a rule is too long for classic BPF's jumps: a mistake in the table.
#[must_use]
pub fn compile(rules: &[Rule], sites: Sites) -> Vec<Instruction> {
    let mut out = Vec::new();
    let mut head = Block::default();
    let native = head.label();
    let kill = head.label();
    head.load(OFF_ARCH);
    head.jump_eq(ARCH_X86_64, Some(native), None);
    // The guest kernel serves the program what it has of that ABI.
    head.jump_eq(ARCH_I386, None, Some(kill));
    head.ret(TRAP);
    head.bind(kill);
    head.ret(KILL_PROCESS);
    head.bind(native);
    head.load(OFF_NR);
    let not_x32 = head.label();
    head.jump_set_else(X32_BIT, not_x32);
    head.ret(TRAP);
    head.bind(not_x32);
    head.finish(&mut out);

    // Not at the gate: fall through to the sigreturn site, which ends in TRAP. The gate's block
    // follows it, so the common case takes one jump over it.
    let sigreturn = site_block(rules, Site::Sigreturn, sites.sigreturn_end, TRAP);
    let skip = u8::try_from(sigreturn.len()).expect("sigreturn block too long");
    let (low, high) = split(sites.gate_end);
    out.push(Instruction { code: LOAD, jt: 0, jf: 0, k: OFF_IP });
    out.push(Instruction { code: JUMP_EQ, jt: 0, jf: 2, k: low });
    out.push(Instruction { code: LOAD, jt: 0, jf: 0, k: OFF_IP + 4 });
    out.push(Instruction { code: JUMP_EQ, jt: skip, jf: 0, k: high });
    out.extend(sigreturn);
    out.extend(rules_block(rules, Site::Gate, REFUSE));
    out
}

/// Compiles a list of calls that may come from anywhere: `conditional` ones and `allowed` ones. Those of `absent` and x32
/// calls fail with ENOSYS, all others with EPERM, and another ABI's end the process.
pub(crate) fn program(conditional: &[Rule], allowed: &[u32], absent: &[u32]) -> Vec<Instruction> {
    let mut out = Vec::new();
    let mut head = Block::default();
    let (native, not_x32) = (head.label(), head.label());
    head.load(OFF_ARCH);
    head.jump_eq(ARCH_X86_64, Some(native), None);
    head.ret(KILL_PROCESS);
    head.bind(native);
    head.load(OFF_NR);
    head.jump_set_else(X32_BIT, not_x32);
    head.ret(NO_SUCH_CALL);
    head.bind(not_x32);
    head.finish(&mut out);
    let plain = allowed.iter().map(|number| (*number, ALLOW));
    for (number, verdict) in plain.chain(absent.iter().map(|number| (*number, NO_SUCH_CALL))) {
        let mut block = Block::default();
        let next = block.label();
        block.jump_eq(number, None, Some(next));
        block.ret(verdict);
        block.bind(next);
        block.finish(&mut out);
    }
    out.extend(rules_block(conditional, Site::Gate, REFUSE));
    out
}

/// Checks the instruction pointer for `end`, then the rules of `site`; all else returns `otherwise`.
fn site_block(rules: &[Rule], site: Site, end: u64, otherwise: u32) -> Vec<Instruction> {
    let inner = rules_block(rules, site, otherwise);
    let mut out = Vec::new();
    let mut block = Block::default();
    let (here, elsewhere) = (block.label(), block.label());
    let (low, high) = split(end);
    block.load(OFF_IP);
    block.jump_eq(low, None, Some(elsewhere));
    block.load(OFF_IP + 4);
    block.jump_eq(high, Some(here), Some(elsewhere));
    block.bind(elsewhere);
    block.ret(otherwise);
    block.bind(here);
    block.finish(&mut out);
    out.extend(inner);
    out
}

fn rules_block(rules: &[Rule], site: Site, otherwise: u32) -> Vec<Instruction> {
    let mut out = vec![Instruction { code: LOAD, jt: 0, jf: 0, k: OFF_NR }];
    for rule in rules.iter().filter(|r| r.site == site) {
        let mut block = Block::default();
        let next = block.label();
        block.jump_eq(rule.number, None, Some(next));
        for alternative in rule.any_of {
            let failed = block.label();
            for check in *alternative {
                compile_check(&mut block, check, failed);
            }
            block.ret(ALLOW);
            block.bind(failed);
        }
        // The accumulator no longer holds the number here, but this path always returns.
        block.ret(if rule.any_of.is_empty() { ALLOW } else { REFUSE });
        block.bind(next);
        block.finish(&mut out);
    }
    out.push(Instruction { code: RETURN, jt: 0, jf: 0, k: otherwise });
    out
}

fn compile_check(block: &mut Block, check: &Check, failed: Label) {
    assert!(check.arg < 6, "a system call has six arguments");
    let low = OFF_ARGS + 8 * u32::from(check.arg);
    let high = low + 4;
    match check.test {
        Test::Is(value) => {
            let (l, h) = split(value);
            block.load(high);
            block.jump_eq(h, None, Some(failed));
            block.load(low);
            block.jump_eq(l, None, Some(failed));
        }
        Test::LowIs(value) => {
            block.load(low);
            block.jump_eq(value, None, Some(failed));
        }
        Test::OneOf(values) => {
            block.load(high);
            block.jump_eq(0, None, Some(failed));
            block.load(low);
            let good = block.label();
            for value in values {
                block.jump_eq(*value, Some(good), None);
            }
            block.jump(failed);
            block.bind(good);
        }
        Test::Masked { mask, value } => {
            for (offset, m, v) in
                [(high, split(mask).1, split(value).1), (low, split(mask).0, split(value).0)]
            {
                block.load(offset);
                block.and(m);
                block.jump_eq(v, None, Some(failed));
            }
        }
    }
}

/// Low and high words.
fn split(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

/// A jump target inside one [`Block`]; where a label is optional, none means the next instruction.
#[derive(Clone, Copy)]
struct Label(usize);

/// Instructions with unresolved forward jumps.
#[derive(Default)]
struct Block {
    code: Vec<(Instruction, Option<Label>, Option<Label>)>,
    labels: Vec<Option<usize>>,
}

impl Block {
    fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    fn push(&mut self, code: u16, k: u32, yes: Option<Label>, no: Option<Label>) {
        self.code.push((Instruction { code, jt: 0, jf: 0, k }, yes, no));
    }

    fn load(&mut self, offset: u32) {
        self.push(LOAD, offset, None, None);
    }

    fn and(&mut self, mask: u32) {
        self.push(AND, mask, None, None);
    }

    fn ret(&mut self, value: u32) {
        self.push(RETURN, value, None, None);
    }

    fn jump(&mut self, label: Label) {
        self.push(JUMP, 0, Some(label), None);
    }

    fn jump_eq(&mut self, value: u32, yes: Option<Label>, no: Option<Label>) {
        self.push(JUMP_EQ, value, yes, no);
    }

    /// Goes on with the next instruction if any bit of `mask` is set, else to `no`.
    fn jump_set_else(&mut self, mask: u32, no: Label) {
        self.push(JUMP_SET, mask, None, Some(no));
    }

    /// Resolves the jumps and appends the instructions to `out`.
    fn finish(self, out: &mut Vec<Instruction>) {
        let distance = |from: usize, target: Option<Label>| -> usize {
            let Some(Label(index)) = target else { return 0 };
            let at = self.labels[index].expect("label never bound");
            at.checked_sub(from + 1).expect("backward jump")
        };
        for (index, (mut instruction, yes, no)) in self.code.iter().copied().enumerate() {
            let (yes, no) = (distance(index, yes), distance(index, no));
            if instruction.code == JUMP {
                instruction.k = u32::try_from(yes).expect("jump too far");
            } else {
                instruction.jt = u8::try_from(yes).expect("rule too long");
                instruction.jf = u8::try_from(no).expect("rule too long");
            }
            out.push(instruction);
        }
    }
}
