//! The fast entry: where trampolines of patched system calls jump (`doppel_abi_image::patch`), and the way back.
//!
//! On arrival rcx is the return address, rax the number, and everything else is the program's: no stack may be
//! touched before the switch to the task's kernel stack. The extended state stays in the processor. Kernel code
//! does not touch it: it is compiled for a target without vector registers (host/domain/build.rs), and `xtask
//! vectors` proves by disassembly that none is named anywhere in the kernel but where xmm0-15 are kept below,
//! which is compiled only for targets with SSE.
//!
//! The way back is short when nothing happened that changes more than the result: no work is posted, the
//! extended state is still in the processor ([`LIVE`]), the program goes on after its call ([`PLAIN`]), and the
//! callee-saved registers still hold its values ([`INTACT`]). Otherwise trap.rs leaves the long way, from the
//! frame.

use core::arch::naked_asm;

use super::block::Vcpu;
#[cfg(target_feature = "sse")]
use super::vectors::{load_vectors, save_vectors};
use crate::task::{INTACT, LIVE, PLAIN};
use crate::trap::leave_extern;

pub(crate) fn entry_address() -> u64 {
    fast_entry as *const () as u64
}

/// Flags that must not be set in kernel code: DF, NT and AC (unaligned accesses would fault).
const UNWELCOME: u64 = 0x4_4400;

#[unsafe(naked)]
unsafe extern "C" fn fast_entry() {
    naked_asm!(
        // Until something else than r11 has changed the entry can begin again.
        ".global doppel_fast_entry",
        "doppel_fast_entry:",
        "mov r11, gs:[16]",
        "mov [r11+152], rsp",
        ".global doppel_fast_entry_begun",
        "doppel_fast_entry_begun:",
        // The flags, pushed where they belong.
        "lea rsp, [r11+152]",
        "pushfq",
        "mov rsp, gs:[8]",
        "mov [r11], r15",
        "mov [r11+8], r14",
        "mov [r11+16], r13",
        "mov [r11+24], r12",
        "mov [r11+32], rbp",
        "mov [r11+40], rbx",
        "mov [r11+56], r10",
        "mov [r11+64], r9",
        "mov [r11+72], r8",
        "mov [r11+80], rax",
        "mov [r11+88], rcx",
        "mov [r11+96], rdx",
        "mov [r11+104], rsi",
        "mov [r11+112], rdi",
        "mov [r11+120], rax",
        "mov [r11+128], rcx",
        "mov qword ptr [r11+176], {state}",
        #[cfg(target_feature = "sse")]
        save_vectors!("r11"),
        "xor ebp, ebp",
        "test dword ptr [r11+144], {unwelcome}",
        "jnz 3f",
        "2: call qword ptr gs:[{serve}]",
        ".global doppel_fast_exit_start",
        "doppel_fast_exit_start:",
        "mov rcx, gs:[32]",
        "cmp dword ptr [rcx], 0",
        "jne 4f",
        "cmp dword ptr gs:[{need_resched}], 0",
        "jne 4f",
        "mov rdi, gs:[16]",
        "cmp qword ptr [rdi+176], {state}",
        "jne 4f",
        "mov r11, [rdi+144]",
        // Only arithmetic flags are restored here.
        "mov rdx, r11",
        "and rdx, -2264",
        "cmp rdx, 0x200",
        "jne 4f",
        #[cfg(target_feature = "sse")]
        load_vectors!("rdi"),
        "mov rbp, [rdi+32]",
        "mov r10, [rdi+56]",
        "mov r9, [rdi+64]",
        "mov r8, [rdi+72]",
        "mov rsi, [rdi+104]",
        "mov rcx, [rdi+128]",
        // sahf sets all but OF, which the addition sets: DF, the bit below it, is known to be 0.
        "mov eax, r11d",
        "mov edx, r11d",
        "shl eax, 8",
        "shl edx, 20",
        "add edx, edx",
        "sahf",
        "mov rdx, [rdi+96]",
        "mov rax, [rdi+80]",
        "mov rsp, [rdi+152]",
        "mov rdi, [rdi+112]",
        "jmp rcx",
        ".global doppel_fast_exit_end",
        "doppel_fast_exit_end:",
        "3: push 2",
        "popfq",
        "jmp 2b",
        "4: mov rsp, gs:[8]",
        "call {leave}",
        "ud2",
        state = const LIVE | PLAIN | INTACT,
        unwelcome = const UNWELCOME,
        serve = const core::mem::offset_of!(Vcpu, serve),
        need_resched = const core::mem::offset_of!(Vcpu, need_resched),
        leave = sym leave_extern,
    )
}
