//! The machine code of the domain's vDSO: time without a system call.
//!
//! It calls the host's vDSO at its moved address (boot.rs) and adds the domain's clock offset. The code is
//! position-independent and is copied into an ELF image of its own; only one slot, the address of the host's
//! function, is filled in there. Clocks it does not know are left to a system call.

use alloc::vec::Vec;

use doppel_abi_machine::{control, layout};

const MONOTONIC_OFFSET: u64 = layout::CONTROL_BASE
    + control::VREGS
    + core::mem::offset_of!(doppel_abi_machine::VirtualRegisters, monotonic_offset) as u64;

core::arch::global_asm!(
    ".pushsection .rodata.doppel_vdso,\"a\",@progbits",
    ".balign 64",
    ".global doppel_vdso_begin",
    "doppel_vdso_begin:",
    ".global doppel_vdso_slot",
    "doppel_vdso_slot:",
    "90: .quad 0",
    // clock_gettime(clock, ts)
    ".balign 64",
    ".global doppel_vdso_clock_gettime",
    "doppel_vdso_clock_gettime:",
    // REALTIME MONOTONIC RAW REALTIME_COARSE MONOTONIC_COARSE BOOTTIME TAI
    "mov eax, 0x8f3",
    "cmp edi, 11",
    "ja 9f",
    "bt eax, edi",
    "jnc 9f",
    // MONOTONIC RAW MONOTONIC_COARSE BOOTTIME are one clock here, the one with the offset.
    "mov eax, 0xd2",
    "bt eax, edi",
    "jc 3f",
    "sub rsp, 8",
    "call [rip + 90b]",
    "add rsp, 8",
    "ret",
    "3: push rsi",
    "mov edi, 1",
    "call [rip + 90b]",
    "pop rsi",
    "test eax, eax",
    "jnz 8f",
    "movabs rcx, {offset}",
    "mov rcx, [rcx]",
    "test rcx, rcx",
    "jz 8f",
    "imul rax, [rsi], 1000000000",
    "add rax, [rsi + 8]",
    "add rax, rcx",
    "xor edx, edx",
    "mov ecx, 1000000000",
    "div rcx",
    "mov [rsi], rax",
    "mov [rsi + 8], rdx",
    "xor eax, eax",
    "8: ret",
    "9: mov eax, 228",
    "syscall",
    "ret",
    // gettimeofday(tv, tz)
    ".balign 64",
    ".global doppel_vdso_gettimeofday",
    "doppel_vdso_gettimeofday:",
    "test rsi, rsi",
    "jz 1f",
    "mov qword ptr [rsi], 0",
    "1: test rdi, rdi",
    "jz 2f",
    "push rdi",
    "mov rsi, rdi",
    "xor edi, edi",
    "call [rip + 90b]",
    "pop rdi",
    "mov rax, [rdi + 8]",
    "xor edx, edx",
    "mov ecx, 1000",
    "div rcx",
    "mov [rdi + 8], rax",
    "2: xor eax, eax",
    "ret",
    // time(t)
    ".balign 64",
    ".global doppel_vdso_time",
    "doppel_vdso_time:",
    "push rdi",
    "sub rsp, 16",
    "mov rsi, rsp",
    // REALTIME_COARSE, as Linux' time() reads it
    "mov edi, 5",
    "call [rip + 90b]",
    "mov rax, [rsp]",
    "add rsp, 16",
    "pop rdi",
    "test rdi, rdi",
    "jz 1f",
    "mov [rdi], rax",
    "1: ret",
    // clock_getres(clock, ts)
    ".balign 64",
    ".global doppel_vdso_clock_getres",
    "doppel_vdso_clock_getres:",
    "mov eax, 229",
    "syscall",
    "ret",
    ".global doppel_vdso_end",
    "doppel_vdso_end:",
    ".popsection",
    offset = const MONOTONIC_OFFSET,
);

unsafe extern "C" {
    static doppel_vdso_begin: u8;
    static doppel_vdso_slot: u8;
    static doppel_vdso_clock_gettime: u8;
    static doppel_vdso_gettimeofday: u8;
    static doppel_vdso_time: u8;
    static doppel_vdso_clock_getres: u8;
    static doppel_vdso_end: u8;
}

/// The code with its slot filled in, and where each function begins (name, offset); they lie in this order.
pub fn code() -> (Vec<u8>, [(&'static str, usize); 4]) {
    let at = |p: *const u8| p as usize - (&raw const doppel_vdso_begin) as usize;
    let len = at(&raw const doppel_vdso_end);
    // SAFETY: the bytes between the two labels are constant data of this image.
    let mut code = unsafe { core::slice::from_raw_parts(&raw const doppel_vdso_begin, len) }.to_vec();
    let slot = at(&raw const doppel_vdso_slot);
    code[slot..slot + 8].copy_from_slice(&crate::clock::vdso_address().to_le_bytes());
    let functions = [
        ("__vdso_clock_gettime", at(&raw const doppel_vdso_clock_gettime)),
        ("__vdso_gettimeofday", at(&raw const doppel_vdso_gettimeofday)),
        ("__vdso_time", at(&raw const doppel_vdso_time)),
        ("__vdso_clock_getres", at(&raw const doppel_vdso_clock_getres)),
    ];
    (code, functions)
}
