//! System call sites: which may be patched, by which rule, and why the others may not.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::Reason;
use super::flow::{BAD, BODY, COVERED, Flow, ROOT, START, TARGET, falls_through};

/// Calls that need the context of a trap: clone, fork, vfork, clone3.
const NEVER: [u32; 4] = [56, 57, 58, 435];
/// Unwinders know a signal frame by the bytes of this call, unless an unwind table says it is one.
const RT_SIGRETURN: u32 = 15;
/// Bytes of `jmp rel32`, and of `mov eax, imm32`.
pub(super) const JUMP: usize = 5;
/// Bytes of `mov rax, imm32`, which begins with these.
pub(super) const WIDE: usize = 7;
pub(super) const WIDE_MOV: [u8; 3] = [0x48, 0xc7, 0xc0];

/// How a site is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The `mov` of the number before it, so many bytes long, becomes the jump.
    A(u32, usize),
    /// It becomes a short jump to the hole here.
    B(usize),
}

/// What to do with the system call instruction at an offset.
pub(super) type Site = (usize, Result<Rule, Reason>);

/// Decides every site of a module, in order of offsets.
pub(super) fn sites(flow: &mut Flow<'_>) -> Vec<Site> {
    let mut found = Vec::new();
    let mut info = InstructionInfoFactory::new();
    let pairs = flow.text.windows(2).enumerate();
    let starts: Vec<_> = pairs.filter(|(_, w)| *w == [0x0f, 0x05]).map(|(at, _)| at).collect();
    for at in starts {
        // With prefixes the instruction starts earlier.
        let Some(start) = (at.saturating_sub(13)..=at).rev().find(|p| flow.flags[*p] & BODY == 0) else {
            continue;
        };
        if flow.flags[start] & START == 0 {
            continue;
        }
        let i = flow.decode(start);
        if i.mnemonic() == Mnemonic::Syscall && start + i.len() == at + 2 {
            let verdict = if i.len() == 2 { judge(flow, &mut info, at) } else { Err(Reason::Prefixed) };
            found.push((start, verdict));
        }
    }
    found.extend(flow.unreached.iter().map(|at| (*at, Err(Reason::Unreached))));
    found.sort_by_key(|s| s.0);
    let mut holes = holes(flow, &found);
    for (at, verdict) in &mut found {
        if *verdict == Err(Reason::NoHole)
            && let Some(hole) = holes.range(reach(*at)).next().copied()
        {
            holes.remove(&hole);
            *verdict = Ok(Rule::B(hole));
        }
    }
    found
}

/// Rule a for the two-byte instruction at `at`; `NoHole` asks for rule b.
fn judge(flow: &mut Flow<'_>, info: &mut InstructionInfoFactory, at: usize) -> Result<Rule, Reason> {
    if function_is_bad(flow, at) {
        return Err(Reason::Ambiguous);
    }
    let number = number(flow, info, at);
    let described = flow.signal_returns.iter().any(|r| r.contains(&at));
    if number.is_some_and(|n| NEVER.contains(&n) || n == RT_SIGRETURN && !described) {
        return Err(Reason::Excluded);
    }
    if let Some((mov, i)) = flow.before(at)
        && !flow.flags[mov + 1..at].iter().any(|f| f & (START | TARGET | ROOT | BAD) != 0)
    {
        if i.len() == JUMP && flow.text[mov] == 0xb8 {
            return Ok(Rule::A(i.immediate32(), JUMP));
        }
        // Sign-extended: only for numbers where that makes no difference.
        if i.len() == WIDE && flow.text[mov..].starts_with(&WIDE_MOV) && i.immediate(1) < 1 << 31 {
            return Ok(Rule::A(i.immediate(1) as u32, WIDE));
        }
    }
    Err(Reason::NoHole)
}

/// Whether the disassembly of the function around `at` contradicts itself anywhere.
fn function_is_bad(flow: &Flow<'_>, at: usize) -> bool {
    let (start, end) = function(flow, at);
    flow.flags[start..end].iter().any(|f| f & BAD != 0)
}

/// The number in eax at `at`, where the code just before says so.
fn number(flow: &mut Flow<'_>, info: &mut InstructionInfoFactory, mut at: usize) -> Option<u32> {
    for _ in 0..32 {
        let (start, i) = flow.before(at)?;
        if !falls_through(&i) {
            return None;
        }
        let writes = |r: &iced_x86::UsedRegister| {
            r.register().full_register() == Register::RAX
                && matches!(
                    r.access(),
                    OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
                )
        };
        if i.mnemonic() == Mnemonic::Call || i.mnemonic() == Mnemonic::Syscall {
            return None;
        }
        if info.info(&i).used_registers().iter().any(writes) {
            let eax = matches!(i.op0_register(), Register::EAX | Register::RAX);
            return match i.mnemonic() {
                Mnemonic::Mov if eax && is_immediate(i.op1_kind()) => Some(i.immediate(1) as u32),
                Mnemonic::Xor
                    if eax && i.op1_kind() == OpKind::Register && i.op1_register() == i.op0_register() =>
                {
                    Some(0)
                }
                _ => None,
            };
        }
        at = start;
    }
    None
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(kind, OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64)
}

/// Where a `jmp rel8` at `site` can go.
fn reach(site: usize) -> RangeInclusive<usize> {
    (site + 2).saturating_sub(128)..=site + 2 + 127
}

/// Dead padding near the sites that want it, in pieces of five bytes.
fn holes(flow: &mut Flow<'_>, sites: &[Site]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut next = 0;
    for (at, _) in sites.iter().filter(|s| s.1 == Err(Reason::NoHole)) {
        let from = at.saturating_sub(256).max(next);
        let to = (at + 2 + 128).min(flow.text.len());
        let mut p = from;
        while p < to {
            let end = padding(flow, p);
            found.extend((p..end.max(p)).step_by(JUMP).filter(|h| h + JUMP <= end));
            p = end.max(p + 1);
        }
        next = p.max(next);
    }
    found
}

/// The end of dead padding that starts at `at`; `at` itself if there is none. Dead means: nothing but no-ops and
/// int3 behind an instruction that does not fall through, the target of nothing, and either between functions
/// (in no function, before the start of one) or between two blocks of a function that is understood completely.
fn padding(flow: &mut Flow<'_>, at: usize) -> usize {
    let dead = |flow: &Flow<'_>, p: usize| flow.flags.get(p).is_some_and(|f| f & ALIVE == 0);
    if !dead(flow, at)
        || at == 0
        || dead(flow, at - 1)
        || flow.before(at).is_none_or(|(_, i)| falls_through(&i))
    {
        return at;
    }
    let inside = flow.flags[at] & COVERED;
    let mut end = at;
    while dead(flow, end) {
        let i = flow.decode(end);
        let same = (end..end + i.len()).all(|p| dead(flow, p) && flow.flags[p] & COVERED == inside);
        if !same || !is_padding(&i) {
            break;
        }
        end += i.len();
    }
    let next = flow.flags.get(end).copied().unwrap_or(0);
    let good = match inside {
        0 => next & ROOT != 0,
        _ => next & (START | TARGET | COVERED) == START | TARGET | COVERED && understood(flow, at),
    };
    if good { end } else { at }
}

/// What a byte that may be reached has.
const ALIVE: u8 = START | BODY | TARGET | ROOT | BAD;
/// Farthest to look for the ends of a function, so that a hostile file does not take forever.
const FAR: usize = 1 << 16;

fn is_padding(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

/// The function around `at`, as far as it matters: from its start to the next one, or the end of its extent.
fn function(flow: &Flow<'_>, at: usize) -> (usize, usize) {
    let flags = &flow.flags;
    let low = at.saturating_sub(FAR);
    let start = flags[low..=at].iter().rposition(|f| f & ROOT != 0).map_or(low, |n| low + n);
    let high = (at + FAR).min(flags.len());
    let covered = flags[at] & COVERED;
    let ends = |f: &u8| f & ROOT != 0 || f & COVERED != covered;
    let end = flags[at + 1..high].iter().position(ends).map_or(high, |n| at + 1 + n);
    (start, end)
}

/// Whether every byte of the function around `at` is a reached instruction or padding, and none jumps through a
/// register or a table: then its direct branches are all there are.
fn understood(flow: &mut Flow<'_>, at: usize) -> bool {
    let (start, end) = function(flow, at);
    if end - start >= FAR || flow.flags[start] & (ROOT | COVERED) != ROOT | COVERED {
        return false;
    }
    let mut p = start;
    while p < end {
        let i = flow.decode(p);
        let reached = flow.flags[p] & (START | BAD) == START;
        if i.is_invalid() || i.flow_control() == FlowControl::IndirectBranch || !(reached || is_padding(&i)) {
            return false;
        }
        p += i.len();
    }
    p == end
}
