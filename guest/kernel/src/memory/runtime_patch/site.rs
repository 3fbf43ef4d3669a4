//! Which system calls in text that no image was scanned for can become jumps, and what the jumps lead to.
//!
//! Key type: [`Site`].

use alloc::vec;
use alloc::vec::Vec;

use doppel_abi_image::patch::{ENTRY_SLOT, SLOT};
use doppel_abi_linux::syscalls::nr;
use doppel_abi_machine::layout::{PAGE, USER_END, USER_START};
use doppel_algo::x86;
use doppel_machine::task::UserContext;
use doppel_machine::user::UserPtr;

/// Bytes of a slot of rule a.
pub(super) const SLOT_A: u64 = SLOT;
/// Bytes of a slot of rule c.
pub(super) const SLOT_C: u64 = 2 * SLOT;
/// Bytes of the jump.
pub(super) const JUMP: usize = 5;
/// Bytes of the longest patch: a call and the longest instruction behind it.
pub(super) const LONGEST: u64 = 2 + 15;
/// What the third byte of a jump is that replaces a call itself: `int3`, for those who go on behind the call.
const BEHIND_CALL: u8 = 0xcc;
/// The shortest instruction that can make room for it: the jump ends inside it.
const SHORTEST: usize = 3;
/// How far from the start of its function a `mov` may be.
const FAR: u64 = 4096;
/// How much is looked at behind it.
const BEHIND: u64 = 256;
/// Words on the stack that are looked at.
const WORDS: usize = 64;
/// How far slots may be from a site.
pub(super) const REACH: u64 = (1 << 31) - (1 << 20);

/// What a jump replaces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Rule a: the `mov` of so many bytes before the call, which loads this number.
    Load { len: usize, number: u32 },
    /// Rule c: the call itself, and of the instruction behind it, which has so many bytes, the first.
    Call { behind: [u8; 15], len: usize },
}

/// One site.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Site {
    /// Where the jump is.
    pub at: u64,
    /// What the jump replaces.
    pub original: [u8; JUMP],
    /// How it does so.
    pub rule: Rule,
}

/// Where in the slot of rule c the program goes on behind the call.
const BACK: u64 = 32;

impl Site {
    /// The address of the system call instruction.
    pub fn call(&self) -> u64 {
        match self.rule {
            Rule::Load { len, .. } => self.at + len as u64,
            Rule::Call { .. } => self.at,
        }
    }

    /// All bytes that count, as they were.
    pub fn end(&self) -> u64 {
        match self.rule {
            Rule::Load { .. } => self.call() + 2,
            Rule::Call { len, .. } => self.call() + 2 + len as u64,
        }
    }

    /// Whether all of it lies in one page, so that it has one protection whatever happens.
    fn is_in_one_page(&self) -> bool {
        self.at / PAGE == (self.end() - 1) / PAGE
    }

    /// The jump to a slot.
    pub fn jump(&self, slot: u64) -> [u8; JUMP] {
        let d = (slot.wrapping_sub(self.at + JUMP as u64) as u32).to_le_bytes();
        [0xe9, d[0], d[1], d[2], d[3]]
    }

    /// Whether the jump to a slot there is right: it is near, and has what it must have behind the call.
    pub fn fits(&self, slot: u64) -> bool {
        let right = match self.rule {
            Rule::Load { .. } => true,
            Rule::Call { .. } => self.jump(slot)[2] == BEHIND_CALL,
        };
        right && self.at.abs_diff(slot) <= REACH
    }

    /// The first address from `low` on whose lower 16 bits make [`Self::fits`] true for a slot of rule c.
    pub fn window(&self, low: u64) -> u64 {
        let first = self.at + JUMP as u64 + (u64::from(BEHIND_CALL) << 8);
        low + (first.wrapping_sub(low) & 0xffff)
    }

    /// The slot's code: `doppel_abi_image::patch` describes that of rule a.
    pub fn slot_code(&self, slot: u64) -> Vec<u8> {
        let mut code = Vec::new();
        let back = match self.rule {
            Rule::Load { number, .. } => {
                code.push(0xb8);
                code.extend(number.to_le_bytes());
                self.call() + 2
            }
            Rule::Call { .. } => slot + BACK,
        };
        // lea rcx, [back]; jmp gs:[ENTRY_SLOT].
        code.extend([0x48, 0x8d, 0x0d]);
        let behind = slot + code.len() as u64 + 4;
        code.extend((back.wrapping_sub(behind) as u32).to_le_bytes());
        code.extend([0x65, 0xff, 0x24, 0x25]);
        code.extend(ENTRY_SLOT.to_le_bytes());
        if let Rule::Call { behind, len } = self.rule {
            // Before the place where the program goes on is a call, as there is behind every other: a call that is
            // begun again traps there.
            code.resize(BACK as usize - 2, 0xcc);
            code.extend([0x0f, 0x05]);
            code.extend(&behind[..len]);
            code.push(0xe9);
            let end = slot + code.len() as u64 + 4;
            code.extend((self.end().wrapping_sub(end) as u32).to_le_bytes());
        }
        code.resize(self.slot_size() as usize, 0xcc);
        code
    }

    /// Whether its bytes are as they were.
    pub fn is_there(&self) -> bool {
        let mut code = [0u8; LONGEST as usize];
        let code = &mut code[..(self.end() - self.at) as usize];
        let call = (self.call() - self.at) as usize;
        let read = UserPtr(self.at).peek_bytes(code).is_ok();
        let behind = match self.rule {
            Rule::Load { .. } => &[][..],
            Rule::Call { ref behind, len } => &behind[..len],
        };
        read && code.starts_with(&self.original) && code[call..].strip_prefix(&[0x0f, 0x05]) == Some(behind)
    }

    /// Bytes of its slot.
    pub fn slot_size(&self) -> u64 {
        match self.rule {
            Rule::Load { .. } => SLOT_A,
            Rule::Call { .. } => SLOT_C,
        }
    }

    /// Where in its slot the program goes on behind its call, if that is there.
    pub fn back(&self, slot: u64) -> Option<u64> {
        matches!(self.rule, Rule::Call { .. }).then_some(slot + BACK)
    }

    /// What a place in its slot stands for.
    pub fn original_pc(&self, offset: u64) -> u64 {
        match self.rule {
            Rule::Load { .. } if offset == 0 => self.at,
            Rule::Call { .. } if offset == BACK => self.call() + 2,
            Rule::Call { .. } if offset > BACK => self.end(),
            _ => self.call(),
        }
    }
}

/// Calls that need a complete context, or that are known by their bytes.
const NEVER: [u32; 5] = [nr::RT_SIGRETURN, nr::CLONE, nr::FORK, nr::VFORK, nr::CLONE3];

/// The number of the system call that has just trapped, if its site may be patched.
fn number(regs: &UserContext) -> Option<u32> {
    u32::try_from(regs.orig_rax).ok().filter(|n| n >> 31 == 0 && !NEVER.contains(n))
}

/// The `mov` before the system call that has just trapped, if its bytes look so and loaded the number in use.
pub(super) fn load_before(regs: &UserContext) -> Option<Site> {
    let number = number(regs)?;
    let code: [u8; 9] = UserPtr(regs.rip.checked_sub(9)?).peek().ok()?;
    let loads = code[3..7] == number.to_le_bytes() && code[7..] == [0x0f, 0x05];
    let len = match code[..3] {
        _ if !loads => return None,
        [.., 0xb8] => 5,
        [0x48, 0xc7, 0xc0] => 7,
        _ => return None,
    };
    let original = code[7 - len..7 - len + JUMP].try_into().ok()?;
    let site = Site { at: regs.rip - 2 - len as u64, original, rule: Rule::Load { len, number } };
    site.is_in_one_page().then_some(site)
}

/// The system call that has just trapped, if what is behind it can be moved. That it is an instruction needs no proof, nor that the
/// next one begins behind it: it was executed.
pub(super) fn call_at(regs: &UserContext) -> Option<Site> {
    number(regs)?;
    let at = regs.rip.checked_sub(2)?;
    let mut code = [0u8; 17];
    let n = UserPtr(at).read_some(&mut code).ok()?;
    let (call, behind) = code[..n].split_at_checked(2)?;
    let len = x86::movable(behind).filter(|len| *len >= SHORTEST)?;
    let original: [u8; JUMP] = code[..JUMP].try_into().ok()?;
    let mut moved = [0; 15];
    moved[..len].copy_from_slice(&behind[..len]);
    let site = Site { at, original, rule: Rule::Call { behind: moved, len } };
    (call == [0x0f, 0x05] && site.is_in_one_page()).then_some(site)
}

/// Starts of functions that may have been called, innermost first: what the calls before the return addresses on
/// the stack lead to.
pub(super) fn called_at(regs: &UserContext) -> Vec<u64> {
    let mut stack = vec![0u8; WORDS * 8];
    let n = UserPtr(regs.rsp).read_some(&mut stack).unwrap_or(0);
    let words = stack[..n].chunks_exact(8).filter_map(|w| Some(u64::from_le_bytes(w.try_into().ok()?)));
    let mut found = Vec::new();
    for back in words.filter(|w| (USER_START + 7..USER_END).contains(w)) {
        if let Some(start) = callee(regs, back) {
            found.push(start);
            found.extend(jumps_on(start));
        }
    }
    found
}

/// Where the call before the return address `back` leads.
fn callee(regs: &UserContext, back: u64) -> Option<u64> {
    let code: [u8; 7] = UserPtr(back - 7).peek().ok()?;
    let rel = i64::from(i32::from_le_bytes([code[3], code[4], code[5], code[6]]));
    let low = [regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi];
    let high = [regs.r8, regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15];
    match code {
        [_, _, 0xe8, ..] => Some(back.wrapping_add_signed(rel)),
        [_, 0xff, 0x15, ..] => UserPtr(back.wrapping_add_signed(rel)).peek().ok(),
        // By a register, if it still holds the address.
        [.., 0x41, 0xff, r @ 0xd0..=0xd7] => Some(high[usize::from(r - 0xd0)]),
        [.., 0xff, r @ 0xd0..=0xd7] => Some(low[usize::from(r - 0xd0)]),
        _ => None,
    }
}

/// Where code that is only a jump leads: a call through a procedure linkage table.
fn jumps_on(at: u64) -> Option<u64> {
    let mut code: [u8; 11] = UserPtr(at).peek().ok()?;
    let mut end = at;
    if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        code.rotate_left(4);
        end += 4;
    }
    if code[0] == 0xf2 {
        code.rotate_left(1);
        end += 1;
    }
    let rel = |b: &[u8]| Some(i64::from(i32::from_le_bytes(b.try_into().ok()?)));
    match code {
        [0xff, 0x25, ..] => UserPtr((end + 6).wrapping_add_signed(rel(&code[2..6])?)).peek().ok(),
        [0xe9, ..] => Some((end + 5).wrapping_add_signed(rel(&code[1..5])?)),
        _ => None,
    }
}

/// Whether disassembly from `start`, in a mapping that ends at `high`, proves the site.
pub(super) fn proven(site: &Site, start: u64, high: u64) -> bool {
    let Rule::Load { len, .. } = site.rule else { return true };
    let end = (site.call() + 2 + BEHIND).min(high);
    if start > site.at || site.at - start > FAR {
        return false;
    }
    let mut code = vec![0u8; (end - start) as usize];
    UserPtr(start).peek_bytes(&mut code).is_ok() && x86::reaches(&code, (site.at - start) as usize, len)
}
