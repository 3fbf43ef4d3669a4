//! The fast entry: where trampolines of patched system calls jump (`doppel_abi_image::patch`).
//!
//! On arrival rcx is the return address, rax the number, and everything else is the program's: no stack may be
//! touched before the switch to the task's kernel stack. The extended state stays in the processor; only
//! xmm0-15 are kept, because kernel code is compiled with SSE. trap.rs restores them on the way out.

use core::arch::naked_asm;

use crate::trap::{Entry, enter_kernel};

pub(crate) fn entry_address() -> u64 {
    fast_entry as *const () as u64
}

#[unsafe(naked)]
unsafe extern "C" fn fast_entry() {
    naked_asm!(
        "mov gs:[56], rsp",
        "mov rsp, gs:[8]",
        "mov r11, gs:[16]",
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
        "pushfq",
        "pop rdx",
        "mov [r11+144], rdx",
        "mov [r11+48], rdx",
        "mov rdx, gs:[56]",
        "mov [r11+152], rdx",
        "mov qword ptr [r11+176], 1",
        "movups [r11+192], xmm0",
        "movups [r11+208], xmm1",
        "movups [r11+224], xmm2",
        "movups [r11+240], xmm3",
        "movups [r11+256], xmm4",
        "movups [r11+272], xmm5",
        "movups [r11+288], xmm6",
        "movups [r11+304], xmm7",
        "movups [r11+320], xmm8",
        "movups [r11+336], xmm9",
        "movups [r11+352], xmm10",
        "movups [r11+368], xmm11",
        "movups [r11+384], xmm12",
        "movups [r11+400], xmm13",
        "movups [r11+416], xmm14",
        "movups [r11+432], xmm15",
        "cld",
        "xor ebp, ebp",
        "mov edi, {syscall}",
        "call {enter}",
        "ud2",
        syscall = const Entry::Syscall as u64,
        enter = sym enter_kernel,
    )
}
