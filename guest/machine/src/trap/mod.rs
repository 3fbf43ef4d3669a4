//! Entry and exit: how a program's system calls and faults reach the guest kernel, and how it goes back.
//!
//! Slow path (every `syscall` instruction that is not patched): the host filter answers with SIGSYS, the
//! handler below copies the frame into the current [`Task`] and *leaves* the signal stack for the task's
//! kernel stack; no host `rt_sigreturn` is made. The way back restores the extended state with XRSTOR and
//! the registers with `iretq`, or, after a system call, with `popfq` and `jmp` (rcx and r11 are free then).
//!
//! A host signal that arrives in the kernel changes nothing but flags, except in the exit window (between
//! the last check for work and the program's first instruction): there it restarts the exit.
//! The signals of a program's own instructions use an empty mask with SA_NODEFER, so leaving their handler leaves
//! nothing blocked. SIGCHLD and the kick come from elsewhere, at any rate: their handler blocks both, lest many of
//! them fill the signal stack, and always ends with the host's sigreturn, which unblocks them.

mod legacy;
mod personality;

use core::arch::{asm, naked_asm};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::cpu::block::{BLOCK_SIZE, VCPU_SIZE};
#[cfg(target_feature = "sse")]
use crate::cpu::vectors::load_vectors;
use crate::cpu::{Vcpu, vcpu};
use crate::host::{self, nr};
use crate::memory::user::{self, Fixup};
use crate::task::{Frame, LIVE, PLAIN, Task, UserContext};
use crate::xstate::{XSAVE_SIZE, used_size};
pub use personality::{FaultInfo, Guard, Personality};
pub(crate) use personality::{has_personality, personality, set_personality};

/// Set when a child of PID 1 changed state (SIGCHLD); its event loop looks at it.
pub static CHILD_EVENT: AtomicU32 = AtomicU32::new(0);

/// Bit of a page fault's error code.
const WRITE: u64 = 2;
const FLAG_TF: u64 = 0x100;
/// Flags with which the guest kernel begins: interrupts on, all else clear (with DF copies would run backwards).
const FLAGS_CLEAR: u64 = 0x202;
/// The host's 64-bit code segment.
const USER_CS: u64 = 0x33;
const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;
const SIGCHLD: i32 = 17;
const SIGSYS: i32 = 31;

/// The host's `struct ucontext` up to the registers, x86-64.
#[repr(C)]
struct HostUcontext {
    flags: u64,
    link: u64,
    stack: [u64; 3],
    regs: HostRegs,
}

/// `struct sigcontext_64`.
#[repr(C)]
struct HostRegs {
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    rflags: u64,
    cs_gs_fs_ss: u64,
    err: u64,
    trapno: u64,
    oldmask: u64,
    cr2: u64,
    fpstate: u64,
}

/// `siginfo_t`, the parts used here.
#[repr(C)]
struct HostSiginfo {
    signo: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    addr: u64,
    /// Of SIGSYS: the call's number, and the ABI that it is one of.
    _syscall: i32,
    arch: u32,
}

/// `AUDIT_ARCH_I386`.
const ARCH_I386: u32 = 0x4000_0003;

const _: () = assert!(core::mem::offset_of!(HostUcontext, regs) == 40);

/// Whether a host signal comes from outside, not from what the interrupted instruction did.
fn is_outside(signo: i32) -> bool {
    signo == SIGCHLD || signo == doppel_abi_machine::KICK_SIGNAL
}

/// Installs the handlers of this process; before the filter, inherited by every later process.
pub(crate) fn install_handlers() {
    const SA_SIGINFO: u64 = 4;
    const SA_ONSTACK: u64 = 0x0800_0000;
    const SA_NODEFER: u64 = 0x4000_0000;
    const SA_RESTORER: u64 = 0x0400_0000;
    let flags = SA_SIGINFO | SA_ONSTACK | SA_RESTORER;
    let outside = 1u64 << (SIGCHLD - 1) | 1u64 << (doppel_abi_machine::KICK_SIGNAL - 1);
    for sig in [SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGCHLD, SIGSYS, doppel_abi_machine::KICK_SIGNAL] {
        let (flags, mask) = if is_outside(sig) { (flags, outside) } else { (flags | SA_NODEFER, 0) };
        let act = [host_signal_entry as *const () as u64, flags, host_sigreturn as *const () as u64, mask];
        // SAFETY: a valid sigaction with a handler that lives for ever.
        let r = unsafe { host::call(nr::RT_SIGACTION, [sig as u64, act.as_ptr() as u64, 0, 8, 0, 0]) };
        assert!(r.is_ok(), "rt_sigaction failed at boot");
    }
}

/// Gives this host thread its signal stack.
pub(crate) fn set_altstack() {
    let (start, len) = vcpu().altstack();
    let ss = [start, 0, len];
    // SAFETY: the block's own memory, used by nothing else.
    let r = unsafe { host::call(nr::SIGALTSTACK, [ss.as_ptr() as u64, 0, 0, 0, 0, 0]) };
    assert!(r.is_ok(), "sigaltstack failed");
}

/// The one host sigreturn site.
#[unsafe(naked)]
unsafe extern "C" fn host_sigreturn() {
    naked_asm!(
        "mov eax, 15",
        ".global doppel_sigreturn",
        "doppel_sigreturn:",
        "syscall",
        ".global doppel_sigreturn_end",
        "doppel_sigreturn_end:",
        "ud2",
    )
}

/// Host signal handler: the frame is at the top of the signal stack, `rsp` points to the return address.
///
/// The program may have loaded GS, so that it no longer points to the vCPU's block. That is found from the signal stack, which
/// it comes with; a signal on another stack, before there is that one, finds no block there and GS right.
#[unsafe(naked)]
unsafe extern "C" fn host_signal_entry() {
    naked_asm!(
        // The host leaves AC as the program has it, with which accesses that are not aligned fault.
        "push 2",
        "popfq",
        "xor ecx, ecx",
        "mov rax, rsp",
        "and rax, -{block}",
        "add rax, {vcpu}",
        "rdgsbase r8",
        "cmp r8, rax",
        "je 3f",
        "cmp [rax], rax",
        "jne 3f",
        "wrgsbase rax",
        "mov ecx, 1",
        "3: sub rsp, 8",
        "call {on_signal}",
        "add rsp, 8",
        // 0: back to what was interrupted; otherwise leave the signal stack for the kernel stack.
        "test rax, rax",
        "jz 2f",
        "mov rsp, gs:[8]",
        "mov rdi, rax",
        "sub rsp, 8",
        "jmp {enter}",
        "2: ret",
        block = const BLOCK_SIZE,
        vcpu = const BLOCK_SIZE - VCPU_SIZE,
        on_signal = sym on_signal,
        enter = sym enter_kernel,
    )
}

unsafe extern "C" {
    static __executable_start: u8;
    static etext: u8;
    static doppel_fast_entry: u8;
    static doppel_fast_entry_begun: u8;
    static doppel_exit_window_start: u8;
    static doppel_exit_window_end: u8;
    static doppel_fast_exit_start: u8;
    static doppel_fast_exit_end: u8;
}

/// Whether `rip` lies between the last check for work and a program's first instruction, on either way out.
fn in_exit_window(rip: u64) -> bool {
    ((&raw const doppel_exit_window_start) as u64..(&raw const doppel_exit_window_end) as u64).contains(&rip)
        || ((&raw const doppel_fast_exit_start) as u64..(&raw const doppel_fast_exit_end) as u64)
            .contains(&rip)
}

fn in_kernel(regs: &HostRegs) -> bool {
    let start = (&raw const __executable_start) as u64;
    let end = (&raw const etext) as u64;
    (start..end).contains(&regs.rip)
        || crate::clock::in_host_vdso(regs.rip)
            && (doppel_abi_machine::layout::ARENA_BASE..doppel_abi_machine::layout::PAGEFILE_BASE)
                .contains(&regs.rsp)
}

/// What to do after leaving the signal stack.
#[repr(u64)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Go back to the interrupted code.
    Resume = 0,
    Syscall = 1,
    Fault = 2,
    /// A system call by way of the vsyscall page.
    Legacy = 3,
    /// A system call of the 32-bit ABI.
    Compat = 4,
}

/// `gs_lost`: the program had loaded GS, which is right again.
extern "C" fn on_signal(signo: i32, info: &HostSiginfo, uc: &mut HostUcontext, gs_lost: bool) -> Entry {
    let regs = &mut uc.regs;
    if gs_lost && (signo == SIGSEGV || signo == SIGBUS) {
        // A patched call perhaps: it is made again. What faults for another reason does so again, too.
        let entry = (&raw const doppel_fast_entry) as u64;
        if (entry..(&raw const doppel_fast_entry_begun) as u64).contains(&regs.rip) {
            regs.rip = entry;
        }
        return Entry::Resume;
    }
    if signo == SIGCHLD {
        CHILD_EVENT.store(1, Ordering::SeqCst);
        // A wait that is about to begin must not miss this.
        crate::rings::control::vregs().event_seq.fetch_add(1, Ordering::SeqCst);
    }
    if in_kernel(regs) {
        kernel_signal(signo, info, regs);
        return Entry::Resume;
    }
    let v = vcpu();
    save_frame(v, regs, signo == SIGSYS);
    if signo == SIGSYS && info.arch == ARCH_I386 {
        return Entry::Compat;
    }
    if signo == SIGSYS && !legacy::is_call(info.addr) {
        return Entry::Syscall;
    }
    if is_outside(signo) {
        // By way of sigreturn, which unblocks it. What the frame has of the program does not matter any more.
        regs.rip = restart_exit as *const () as u64;
        regs.rflags = FLAGS_CLEAR;
        regs.cs_gs_fs_ss = regs.cs_gs_fs_ss & !0xffff | USER_CS;
        return Entry::Resume;
    }
    // SAFETY: the slot belongs to this vCPU.
    unsafe { *v.fault.get() = fault_info(signo, info, regs) };
    if signo == SIGSYS { Entry::Legacy } else { Entry::Fault }
}

fn fault_info(signo: i32, info: &HostSiginfo, regs: &HostRegs) -> FaultInfo {
    FaultInfo { signo, code: info.code, addr: info.addr, trapno: regs.trapno, err: regs.err }
}

/// A host signal inside the guest kernel.
fn kernel_signal(signo: i32, info: &HostSiginfo, regs: &mut HostRegs) {
    if is_outside(signo) {
        if in_exit_window(regs.rip) {
            // The task's saved context is still whole: do the exit again, seeing the new work.
            regs.rip = restart_exit as *const () as u64;
            regs.rflags = FLAGS_CLEAR;
        }
        return;
    }
    if signo == SIGTRAP {
        // A program that runs by single steps came in through a patched call.
        regs.rflags &= !FLAG_TF;
        return;
    }
    if in_exit_window(regs.rip) {
        // The program's own context cannot be loaded (non-canonical address): its fault.
        // SAFETY: the slot belongs to this vCPU.
        unsafe {
            *vcpu().fault.get() = FaultInfo { signo: SIGSEGV, code: 0x80, addr: 0, trapno: 13, err: 0 }
        };
        regs.rip = exit_fault as *const () as u64;
        regs.rflags = FLAGS_CLEAR;
        return;
    }
    let fixup = user::fixup(regs.rip);
    if fixup.is_some() && signo == SIGSEGV && regs.err & WRITE != 0 && lifted(info.addr) {
        // The copy goes on.
        return;
    }
    if fixup.is_some() {
        vcpu().missed.store(user::missed(info.addr, signo == SIGBUS), Ordering::Relaxed);
    }
    match fixup {
        Some(Fixup::Resume(pc)) => regs.rip = pc,
        Some(f) => {
            regs.rax = if f == Fixup::ReturnRcx { regs.rcx } else { 1 };
            // SAFETY: the copy routines do not touch the stack, so its top is the return address.
            regs.rip = unsafe { *(regs.rsp as *const u64) };
            regs.rsp += 8;
        }
        None => {
            crate::position::faulted(regs.rip, regs.rsp, regs.rbp);
            panic!(
                "signal {signo} in the guest kernel: rip {:#x} addr {:#x} rsp {:#x} err {:#x}",
                regs.rip, info.addr, regs.rsp, regs.err,
            )
        }
    }
}

/// Whether a copy that could not write at this address can now.
fn lifted(addr: u64) -> bool {
    if addr >= doppel_abi_machine::layout::USER_END {
        return false;
    }
    match personality().lift_guard(addr) {
        Guard::Lifted => true,
        // Another vCPU may have been faster: once more. It faults at the same address again if not.
        Guard::Elsewhere => {
            let (retried, mark) = (&vcpu().retried, addr | 1 << 63);
            let first = retried.load(Ordering::Relaxed) != mark;
            retried.store(if first { mark } else { 0 }, Ordering::Relaxed);
            first
        }
        Guard::None => false,
    }
}

/// Copies the program's state from the host's signal frame into the current task.
fn save_frame(v: &Vcpu, r: &HostRegs, syscall: bool) {
    // SAFETY: v is this vCPU's block; ctx points to the frame of the current task, which runs here.
    let f = unsafe { &mut *(v.ctx.load(Ordering::Relaxed) as *mut Frame) };
    let c = &mut f.regs;
    c.r15 = r.r15;
    c.r14 = r.r14;
    c.r13 = r.r13;
    c.r12 = r.r12;
    c.rbp = r.rbp;
    c.rbx = r.rbx;
    c.r11 = r.r11;
    c.r10 = r.r10;
    c.r9 = r.r9;
    c.r8 = r.r8;
    c.rax = r.rax;
    c.rcx = r.rcx;
    c.rdx = r.rdx;
    c.rsi = r.rsi;
    c.rdi = r.rdi;
    c.orig_rax = if syscall { r.rax } else { u64::MAX };
    c.rip = r.rip;
    c.rflags = r.rflags;
    c.rsp = r.rsp;
    let plain = syscall && r.rcx == r.rip && r.r11 == r.rflags;
    f.state = if plain { PLAIN } else { 0 };
    if r.fpstate == 0 {
        return;
    }
    if cfg!(target_feature = "sse") {
        let n = used_size().min(XSAVE_SIZE);
        // SAFETY: the host's frame holds a complete XSAVE image of at least the enabled components.
        unsafe {
            core::ptr::copy_nonoverlapping(
                r.fpstate as *const u8,
                v.xsave.load(Ordering::Relaxed) as *mut u8,
                n,
            );
            // The software-reserved bytes describe the frame, not the state.
            core::ptr::write_bytes((v.xsave.load(Ordering::Relaxed) as *mut u8).add(464), 0, 48);
        }
    } else {
        // Straight back into the processor, where kernel code leaves it alone, as after a fast entry. The host
        // had put the processor's state to its initial one for this handler.
        // SAFETY: the host's frame holds a complete XSAVE image, which it checked or wrote itself.
        unsafe {
            let features = v.xfeatures;
            asm!("xrstor64 [{}]", in(reg) r.fpstate, in("eax") features as u32, in("edx") (features >> 32) as u32,
                options(nostack, readonly));
        }
        f.state |= LIVE;
    }
}

/// On the task's kernel stack, with its program's state saved.
pub(crate) extern "C" fn enter_kernel(entry: Entry) -> ! {
    match entry {
        Entry::Syscall => {
            personality().trapped();
            personality().syscall()();
        }
        // SAFETY: the slot belongs to this vCPU.
        Entry::Fault => personality().fault(unsafe { *vcpu().fault.get() }),
        // SAFETY: as above.
        Entry::Legacy => legacy::serve(unsafe { *vcpu().fault.get() }.addr),
        Entry::Compat => personality().compat_syscall(),
        Entry::Resume => {}
    }
    leave_to_user()
}

extern "C" fn exit_fault_rust() -> ! {
    enter_kernel(Entry::Fault)
}

/// Restarts the exit on a clean kernel stack.
#[unsafe(naked)]
unsafe extern "C" fn restart_exit() {
    naked_asm!("mov rsp, gs:[8]", "sub rsp, 8", "jmp {f}", f = sym leave_extern)
}

#[unsafe(naked)]
unsafe extern "C" fn exit_fault() {
    naked_asm!("mov rsp, gs:[8]", "sub rsp, 8", "jmp {f}", f = sym exit_fault_rust)
}

/// [`leave_to_user`], for assembly.
pub(crate) extern "C" fn leave_extern() -> ! {
    leave_to_user()
}

/// Does posted work, then continues the program of the current task from its saved registers.
pub(crate) fn leave_to_user() -> ! {
    loop {
        let v = vcpu();
        // SAFETY: work points to the current task's word.
        let work = unsafe { &*(v.work.load(Ordering::Relaxed) as *const AtomicU32) };
        if work.load(Ordering::SeqCst) == 0 && v.need_resched.load(Ordering::SeqCst) == 0 {
            break;
        }
        work.store(0, Ordering::SeqCst);
        personality().exit_work();
    }
    // SAFETY: the context and extended state are complete; this leaves the kernel.
    unsafe { exit_to_user() }
}

/// Loads everything of the current task and jumps to its program.
#[unsafe(naked)]
unsafe extern "C" fn exit_to_user() -> ! {
    naked_asm!(
        ".global doppel_exit_window_start",
        "doppel_exit_window_start:",
        "mov rcx, gs:[32]",
        "cmp dword ptr [rcx], 0",
        "jne 3f",
        "cmp dword ptr gs:[{need_resched}], 0",
        "jne 3f",
        // Extended state: still in the processor (but for registers kernel code may use), else in memory.
        "mov rdi, gs:[16]",
        "test byte ptr [rdi+176], {live}",
        "jnz 4f",
        "mov rsi, gs:[24]",
        "mov eax, gs:[40]",
        "xor edx, edx",
        "xrstor64 [rsi]",
        "5:",
        "mov r15, [rdi]",
        "mov r14, [rdi+8]",
        "mov r13, [rdi+16]",
        "mov r12, [rdi+24]",
        "mov rbp, [rdi+32]",
        "mov rbx, [rdi+40]",
        "mov r10, [rdi+56]",
        "mov r9, [rdi+64]",
        "mov r8, [rdi+72]",
        "mov rax, [rdi+80]",
        "mov rdx, [rdi+96]",
        "mov rsi, [rdi+104]",
        // After a plain system call rcx is rip and r11 rflags, and there is no need for iretq.
        "mov rcx, [rdi+88]",
        "mov r11, [rdi+48]",
        "test byte ptr [rdi+176], {plain}",
        "jz 2f",
        "mov r11, [rdi+144]",
        // Arithmetic flags by sahf, which is several times faster than popfq; anything special by popfq.
        "mov rdx, r11",
        "and rdx, -2264",
        "cmp rdx, 0x200",
        "jne 6f",
        "mov eax, r11d",
        "mov edx, r11d",
        "mov ah, al",
        "shr edx, 11",
        "mov al, dl",
        "and al, 1",
        "add al, 0x7f",
        "sahf",
        "7:",
        "mov rdx, [rdi+96]",
        "mov rax, [rdi+80]",
        "mov rsp, [rdi+152]",
        "mov rdi, [rdi+112]",
        "jmp rcx",
        "2:",
        "push qword ptr [rdi+160]",
        "push qword ptr [rdi+152]",
        "push qword ptr [rdi+144]",
        "push qword ptr [rdi+136]",
        "push qword ptr [rdi+128]",
        "mov rdi, [rdi+112]",
        "iretq",
        "6:",
        // A set trap flag must meet the program's code first.
        "test r11d, 0x100",
        "jz 8f",
        "mov rdx, [rdi+96]",
        "jmp 2b",
        "8:",
        "push r11",
        "popfq",
        "jmp 7b",
        "4:",
        #[cfg(target_feature = "sse")]
        load_vectors!("rdi"),
        "jmp 5b",
        "3: jmp {restart}",
        ".global doppel_exit_window_end",
        "doppel_exit_window_end:",
        restart = sym restart_exit,
        live = const LIVE,
        plain = const PLAIN,
        need_resched = const core::mem::offset_of!(Vcpu, need_resched),
    )
}

impl Task {
    /// Sets the thread pointer of the current task (arch_prctl, clone) at once.
    pub fn set_fs_base(&self, fs: u64) {
        let mut r = self.regs();
        r.fs_base = fs;
        self.set_regs(&r);
        if core::ptr::eq(self.ctx_ptr(), vcpu().ctx.load(Ordering::Relaxed) as *const UserContext) {
            // SAFETY: FS belongs to the program; a non-canonical value was rejected by the caller.
            unsafe { asm!("wrfsbase {}", in(reg) fs, options(nostack, nomem)) };
        }
    }

    /// The thread pointer of the current task as it is now.
    pub fn fs_base(&self) -> u64 {
        if core::ptr::eq(self.ctx_ptr(), vcpu().ctx.load(Ordering::Relaxed) as *const UserContext) {
            let fs: u64;
            // SAFETY: reads a register.
            unsafe { asm!("rdfsbase {}", out(reg) fs, options(nostack, nomem)) };
            fs
        } else {
            self.regs().fs_base
        }
    }
}
