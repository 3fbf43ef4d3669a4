//! Which bytes of a module are instructions: proven by following the flow of control from known functions.
//!
//! An instruction counts when it is reached from the start of a function by falling through and by direct
//! branches, never because bytes look like one. Two readings of the same bytes make both of them bad. What is
//! not reached (behind jump tables, data in text) is swept as well, but only to collect what it might jump to.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::elf::Module;

/// First byte of a reached instruction.
pub(super) const START: u8 = 1;
/// Another byte of a reached instruction.
pub(super) const BODY: u8 = 2;
/// Somebody may jump here: a direct branch, an address taken, a label.
pub(super) const TARGET: u8 = 4;
/// Start of a function.
pub(super) const ROOT: u8 = 8;
/// Not an instruction, or two different ones.
pub(super) const BAD: u8 = 16;
/// Inside the extent of a known function.
pub(super) const COVERED: u8 = 32;
/// Where code may be.
const CODE: u8 = 64;

/// Flags of every byte of a module's text; offsets count from `Module::base`.
pub(super) struct Flow<'a> {
    /// The module's bytes.
    pub text: &'a [u8],
    /// Flags of each byte.
    pub flags: Vec<u8>,
    /// System calls in code that is not reached.
    pub unreached: Vec<usize>,
    /// Functions that signal handlers return to, described as such by unwind tables.
    pub signal_returns: Vec<Range<usize>>,
    base: u64,
    decoder: Decoder<'a>,
}

impl<'a> Flow<'a> {
    /// Disassembles the module.
    pub fn new(module: &Module<'a>) -> Self {
        let text = module.text;
        let mut flow = Self {
            text,
            flags: vec![0; text.len()],
            unreached: Vec::new(),
            signal_returns: Vec::new(),
            base: module.base,
            decoder: Decoder::with_ip(64, text, module.base, DecoderOptions::NONE),
        };
        for (ranges, flag) in [(&module.code, CODE), (&module.functions, COVERED)] {
            let mut done = 0;
            for r in ranges {
                // Sorted by start: what an earlier one has marked is not marked again.
                let from = r.start.max(done);
                if from < r.end
                    && let (Some(start), Some(last)) = (flow.offset(from), flow.offset(r.end - 1))
                {
                    flow.flags[start..=last].iter_mut().for_each(|f| *f |= flag);
                    done = r.end;
                }
            }
        }
        for r in &module.signal_returns {
            if let (Some(start), Some(last)) = (flow.offset(r.start), flow.offset(r.end - 1)) {
                flow.signal_returns.push(start..last + 1);
            }
        }
        for label in &module.labels {
            flow.mark(*label, TARGET);
        }
        let mut work: Vec<usize> = module.roots.iter().filter_map(|r| flow.mark(*r, ROOT)).collect();
        while let Some(at) = work.pop() {
            flow.follow(at, &mut work);
        }
        flow.sweep();
        for (at, code) in &module.others {
            let other = Decoder::with_ip(64, code, *at, DecoderOptions::NONE);
            for i in other {
                flow.targets(&i);
            }
        }
        flow
    }

    /// The instruction at `at`.
    pub fn decode(&mut self, at: usize) -> Instruction {
        let mut i = Instruction::default();
        if self.decoder.set_position(at).is_ok() {
            self.decoder.set_ip(self.base + at as u64);
            self.decoder.decode_out(&mut i);
        }
        i
    }

    /// The reached instruction that ends just before `at`.
    pub fn before(&mut self, at: usize) -> Option<(usize, Instruction)> {
        let start = (at.saturating_sub(15)..at).rev().find(|p| self.flags[*p] & START != 0)?;
        let i = self.decode(start);
        (start + i.len() == at).then_some((start, i))
    }

    fn offset(&self, address: u64) -> Option<usize> {
        usize::try_from(address.checked_sub(self.base)?).ok().filter(|at| *at < self.text.len())
    }

    /// Sets a flag where code may be; returns the offset.
    fn mark(&mut self, address: u64, flag: u8) -> Option<usize> {
        let at = self.offset(address).filter(|at| self.flags[*at] & CODE != 0)?;
        self.flags[at] |= flag;
        Some(at)
    }

    /// Follows straight-line code from `at`; branch targets go to `work`.
    fn follow(&mut self, mut at: usize, work: &mut Vec<usize>) {
        loop {
            let flags = self.flags[at];
            if flags & (START | BODY) != 0 {
                if flags & BODY != 0 {
                    self.flags[at] |= BAD;
                }
                return;
            }
            let i = self.decode(at);
            let end = at + i.len();
            if i.is_invalid() || self.flags[at..end].iter().any(|f| f & CODE == 0) {
                self.flags[at] |= BAD;
                return;
            }
            self.flags[at] |= START;
            for f in &mut self.flags[at + 1..end] {
                *f |= if *f & (START | BODY) == 0 { BODY } else { BODY | BAD };
            }
            if self.flags[at + 1..end].iter().any(|f| f & BAD != 0) {
                self.flags[at] |= BAD;
            }
            if let Some(target) = self.targets(&i) {
                // A call shows that a function starts there.
                let call = i.mnemonic() == Mnemonic::Call && self.flags[target] & COVERED == 0;
                self.flags[target] |= if call { ROOT } else { 0 };
                work.push(target);
            }
            let Some(next) = self.flags.get(end).copied().filter(|_| falls_through(&i)) else { return };
            // The end of a function that ends in a call which does not return; or the next function, followed
            // by itself.
            let leaves = self.flags[at] & COVERED != 0 && next & COVERED == 0;
            if leaves || next & ROOT != 0 || next & CODE == 0 {
                return;
            }
            at = end;
        }
    }

    /// Marks what the instruction refers to; returns where it may jump.
    fn targets(&mut self, i: &Instruction) -> Option<usize> {
        if i.is_ip_rel_memory_operand() {
            self.mark(i.ip_rel_memory_address(), TARGET);
        }
        let near = matches!(i.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
        if near && i.op_count() > 0 { self.mark(i.near_branch_target(), TARGET) } else { None }
    }

    /// Decodes what was not reached, for its branch targets.
    fn sweep(&mut self) {
        let mut at = 0;
        while at < self.text.len() {
            if self.flags[at] & (START | BODY) != 0 || self.flags[at] & CODE == 0 {
                at += 1;
                continue;
            }
            let i = self.decode(at);
            if i.is_invalid() {
                at += 1;
                continue;
            }
            self.targets(&i);
            if i.mnemonic() == Mnemonic::Syscall {
                self.unreached.push(at);
            }
            at += i.len();
        }
    }
}

/// Whether the next instruction may be executed after this one.
pub(super) fn falls_through(i: &Instruction) -> bool {
    match i.flow_control() {
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Exception => false,
        FlowControl::Interrupt => i.mnemonic() != Mnemonic::Int3,
        _ => i.mnemonic() != Mnemonic::Hlt,
    }
}
