//! Host calls: the one `syscall` instruction the host filter accepts, and typed wrappers around it.
//!
//! Boundary: everything the guest kernel asks of the host passes through [`gate`]; the host filter matches
//! the gate's address exactly and checks the arguments (docs/machine-interface.md). Safe wrappers below
//! act only on guest user memory or on the calling vCPU, so no kernel reference can be invalidated.

use core::arch::naked_asm;
use core::sync::atomic::AtomicU32;

use doppel_abi_machine::{fd, layout};

/// A host error number (positive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostError(pub i32);

/// Host system call numbers in use.
pub mod nr {
    #![allow(missing_docs)]
    pub const WRITE: u64 = 1;
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const RT_SIGACTION: u64 = 13;
    pub const MREMAP: u64 = 25;
    pub const MADVISE: u64 = 28;
    pub const CLONE: u64 = 56;
    pub const WAIT4: u64 = 61;
    pub const SIGALTSTACK: u64 = 131;
    pub const PRCTL: u64 = 157;
    pub const FUTEX: u64 = 202;
    pub const CLOCK_GETTIME: u64 = 228;
    pub const EXIT_GROUP: u64 = 231;
    pub const TGKILL: u64 = 234;
    pub const FALLOCATE: u64 = 285;
    pub const SECCOMP: u64 = 317;
    pub const MEMBARRIER: u64 = 324;
    pub const FUTEX_WAITV: u64 = 449;
}

/// The host-call gate: `gate(nr, a1..a6)`. The only place from which host calls are allowed.
///
/// # Safety
/// The call must not break memory that Rust references in this process point to.
#[unsafe(naked)]
pub unsafe extern "C" fn gate(_nr: u64, _a: u64, _b: u64, _c: u64, _d: u64, _e: u64, _f: u64) -> i64 {
    naked_asm!(
        // For backtraces through a host call: where the other functions' frames are described.
        ".cfi_sections .debug_frame",
        ".cfi_startproc",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp+8]",
        ".global doppel_gate_syscall",
        "doppel_gate_syscall:",
        "syscall",
        ".global doppel_gate_syscall_end",
        "doppel_gate_syscall_end:",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls the host and turns `-errno` into an error.
///
/// # Safety
/// As for [`gate`].
pub unsafe fn call(nr: u64, a: [u64; 6]) -> Result<u64, HostError> {
    // SAFETY: forwarded contract.
    let r = unsafe { gate(nr, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if (-4095..0).contains(&r) { Err(HostError(-r as i32)) } else { Ok(r as u64) }
}

/// What backs a user mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Private zero pages.
    Anonymous,
    /// Page file at this byte offset, writes shared.
    PageFileShared(u64),
    /// Page file at this byte offset, copy-on-write.
    PageFilePrivate(u64),
    /// Root image at this byte offset, copy-on-write.
    Image(u64),
    /// The frozen image (0) or its nth ancestor at this byte offset, copy-on-write; in clones only.
    Frozen(u32, u64),
    /// Share file at this byte offset, copy-on-write; in clones that share only.
    Share(u64),
    /// Swap region at this byte offset, copy-on-write; in domains that have one only.
    Swap(u64),
}

const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_POPULATE: u64 = 0x8000;

/// Page protection bits as in `mmap(2)`: 1 read, 2 write, 4 execute.
pub type Prot = u32;

fn user_range(addr: u64, len: u64) -> bool {
    addr.is_multiple_of(layout::PAGE)
        && len != 0
        && addr >= layout::USER_START
        && addr.checked_add(len).is_some_and(|end| end <= layout::USER_END)
}

const EINVAL: HostError = HostError(22);

/// Maps user memory at exactly `addr` in the current address space, replacing what is there.
/// `populate` asks the host to make the pages present at once.
pub fn map_user(addr: u64, len: u64, prot: Prot, backing: Backing, populate: bool) -> Result<(), HostError> {
    if !user_range(addr, len) {
        return Err(EINVAL);
    }
    let (flags, fd, off) = match backing {
        Backing::Anonymous => (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, u64::MAX, 0),
        Backing::PageFileShared(off) => (MAP_SHARED, fd::PAGEFILE as u64, off),
        Backing::PageFilePrivate(off) => (MAP_PRIVATE | MAP_NORESERVE, fd::PAGEFILE as u64, off),
        Backing::Image(off) => (MAP_PRIVATE | MAP_NORESERVE, fd::IMAGE as u64, off),
        Backing::Frozen(0, off) => (MAP_PRIVATE | MAP_NORESERVE, fd::FROZEN as u64, off),
        Backing::Frozen(file, off) => {
            (MAP_PRIVATE | MAP_NORESERVE, fd::ANCESTORS as u64 + u64::from(file) - 1, off)
        }
        Backing::Share(off) => (MAP_PRIVATE | MAP_NORESERVE, fd::SHARE as u64, off),
        Backing::Swap(off) => (MAP_PRIVATE | MAP_NORESERVE, fd::SWAP as u64, off),
    };
    let flags = flags | MAP_FIXED | if populate { MAP_POPULATE } else { 0 };
    // SAFETY: the range was checked to be guest user memory, to which the kernel holds no references.
    unsafe { call(nr::MMAP, [addr, len, u64::from(prot & 7), flags, fd, off]) }.map(drop)
}

/// Unmaps user memory in the current address space.
pub fn unmap_user(addr: u64, len: u64) -> Result<(), HostError> {
    if !user_range(addr, len) {
        return Err(EINVAL);
    }
    // SAFETY: user memory only, see map_user.
    unsafe { call(nr::MUNMAP, [addr, len, 0, 0, 0, 0]) }.map(drop)
}

/// Unmaps all user memory of the current address space (exec).
pub fn unmap_all_user() -> Result<(), HostError> {
    unmap_user(layout::USER_START, layout::USER_END - layout::USER_START)
}

/// Changes the protection of user memory.
pub fn protect_user(addr: u64, len: u64, prot: Prot) -> Result<(), HostError> {
    if !user_range(addr, len) {
        return Err(EINVAL);
    }
    // SAFETY: user memory only, see map_user.
    unsafe { call(nr::MPROTECT, [addr, len, u64::from(prot & 7), 0, 0, 0]) }.map(drop)
}

/// Moves user pages to exactly `new_addr` (mremap MAYMOVE|FIXED, with DONTUNMAP if `keep_old`);
/// lengths in bytes. The kernel chooses addresses itself, so in-place growth is `new_addr == addr`.
pub fn remap_user(
    addr: u64,
    old_len: u64,
    new_addr: u64,
    new_len: u64,
    keep_old: bool,
) -> Result<(), HostError> {
    if !user_range(addr, old_len) || !user_range(new_addr, new_len) {
        return Err(EINVAL);
    }
    let flags: u64 = if new_addr == addr {
        0
    } else if keep_old {
        1 | 2 | 4
    } else {
        1 | 2
    };
    // SAFETY: user memory only, see map_user.
    unsafe { call(nr::MREMAP, [addr, old_len, new_len, flags, new_addr, 0]) }.map(drop)
}

/// `madvise` on user memory; the host filter allows a short list of advice.
pub fn advise_user(addr: u64, len: u64, advice: i32) -> Result<(), HostError> {
    if !user_range(addr, len) {
        return Err(EINVAL);
    }
    // SAFETY: user memory only; DONTNEED and FREE discard user pages, which no kernel reference covers.
    unsafe { call(nr::MADVISE, [addr, len, advice as u64, 0, 0, 0]) }.map(drop)
}

/// Asks the host to put this part of the arena into huge pages.
pub(crate) fn collapse_arena(offset: u64, len: u64) -> Result<(), HostError> {
    const MADV_COLLAPSE: u64 = 25;
    // SAFETY: what the memory holds stays as it is.
    unsafe { call(nr::MADVISE, [layout::ARENA_BASE + offset, len, MADV_COLLAPSE, 0, 0, 0]) }.map(drop)
}

/// Frees the host memory of a part of the arena; it reads as zeros afterwards.
pub(crate) fn punch_arena(offset: u64, len: u64) -> Result<(), HostError> {
    // SAFETY: callers own that part of the arena and have nothing in it.
    unsafe { call(nr::FALLOCATE, [fd::ARENA as u64, PUNCH_HOLE_KEEP_SIZE, offset, len, 0, 0]) }.map(drop)
}

/// `membarrier` among the vCPUs of this process.
pub fn membarrier(cmd: i32) -> Result<(), HostError> {
    // SAFETY: touches no memory.
    unsafe { call(nr::MEMBARRIER, [cmd as u64, 0, 0, 0, 0, 0]) }.map(drop)
}

/// `FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`.
pub(crate) const PUNCH_HOLE_KEEP_SIZE: u64 = 3;

/// Frees the host memory of a page file range; it reads as zeros afterwards.
pub fn punch_pagefile(off: u64, len: u64) -> Result<(), HostError> {
    // SAFETY: page file bytes are never referenced, only copied (pagefile.rs).
    unsafe { call(nr::FALLOCATE, [fd::PAGEFILE as u64, PUNCH_HOLE_KEEP_SIZE, off, len, 0, 0]) }.map(drop)
}

/// Result of [`futex_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// Woken, interrupted, or the word had already changed: look again.
    Again,
    /// The deadline passed.
    TimedOut,
}

/// Sleeps while `*word == expected`, at most until `deadline_ns` on the host's CLOCK_MONOTONIC.
/// The word lies in shared memory (arena or control area).
pub fn futex_wait(word: &AtomicU32, expected: u32, deadline_ns: Option<u64>) -> WaitResult {
    const WAIT_BITSET: u64 = 9;
    let ts = deadline_ns.map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000]);
    let ts_ptr = ts.as_ref().map_or(0, |t| t.as_ptr() as u64);
    let word_ptr = core::ptr::from_ref(word) as u64;
    // SAFETY: both pointers are valid for the call; the host only reads them.
    let r = unsafe {
        call(nr::FUTEX, [word_ptr, WAIT_BITSET, u64::from(expected), ts_ptr, 0, u64::from(u32::MAX)])
    };
    match r {
        Err(HostError(110)) => WaitResult::TimedOut,
        _ => WaitResult::Again,
    }
}

/// As [`futex_wait`] on two words, each with what it is expected to be: until one of them changes. False: this host cannot
/// (before Linux 5.16).
pub fn futex_wait_either(words: [(&AtomicU32, u32); 2], deadline_ns: Option<u64>) -> bool {
    /// The host's `struct futex_waitv`.
    #[repr(C)]
    struct Waiter {
        expected: u64,
        word: u64,
        flags: u32,
        _reserved: u32,
    }
    const SIZE_U32: u32 = 2;
    const MONOTONIC: u64 = 1;
    let waiters = words.map(|(word, expected)| Waiter {
        expected: expected.into(),
        word: core::ptr::from_ref(word) as u64,
        flags: SIZE_U32,
        _reserved: 0,
    });
    let ts = deadline_ns.map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000]);
    let ts_ptr = ts.as_ref().map_or(0, |t| t.as_ptr() as u64);
    // SAFETY: the pointers are valid for the call; the host only reads them.
    let r = unsafe { call(nr::FUTEX_WAITV, [waiters.as_ptr() as u64, 2, 0, ts_ptr, MONOTONIC, 0]) };
    !matches!(r, Err(HostError(38 | 1)))
}

/// Wakes up to `count` host threads waiting on `word`; returns how many.
pub fn futex_wake(word: &AtomicU32, count: u32) -> u32 {
    futex_wake_at(core::ptr::from_ref(word) as u64, count)
}

/// As [`futex_wake`], by the word's address. If it means something else by now, nobody or a stranger wakes, who looks
/// and sleeps again.
pub(crate) fn futex_wake_at(word: u64, count: u32) -> u32 {
    const WAKE: u64 = 1;
    // SAFETY: the address is only used as a key.
    unsafe { call(nr::FUTEX, [word, WAKE, u64::from(count), 0, 0, 0]) }.unwrap_or(0) as u32
}

/// Rings the doorbell: the host looks at the virtual registers and rings.
pub fn ring_doorbell() {
    let one = 1u64;
    // SAFETY: writes 8 bytes from a local to the doorbell eventfd. A full counter (EAGAIN) is as good as rung.
    let _ = unsafe { call(nr::WRITE, [fd::DOORBELL as u64, core::ptr::from_ref(&one) as u64, 8, 0, 0, 0]) };
}

/// Kicks the host thread `tid` of host process `tgid` (numbers of the domain's PID namespace).
pub fn kick(tgid: i32, tid: i32) {
    let sig = doppel_abi_machine::KICK_SIGNAL as u64;
    // SAFETY: the signal's handler only notes the kick (trap.rs). ESRCH: that thread is gone, nothing to do.
    let _ = unsafe { call(nr::TGKILL, [tgid as u64, tid as u64, sig, 0, 0, 0]) };
}

fn cpu_clock(id: i64) -> Option<u64> {
    let mut ts = [0u64; 2];
    // SAFETY: a timespec is two words, for which there is room.
    unsafe { call(nr::CLOCK_GETTIME, [id as u64, ts.as_mut_ptr() as u64, 0, 0, 0, 0]) }.ok()?;
    Some(ts[0] * 1_000_000_000 + ts[1])
}

/// CPU time of this host thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    const THREAD_CPUTIME_ID: i64 = 3;
    cpu_clock(THREAD_CPUTIME_ID).unwrap_or(0)
}

/// CPU time of the host process `pid` (number of the domain's PID namespace), while it lives.
pub fn process_cpu_ns(pid: i32) -> Option<u64> {
    cpu_clock(process_clock(pid, 2))
}

/// Of the CPU time of the host process `pid`, the parts of a million that the host's kernel took, by its ticks.
pub fn process_kernel_ppm(pid: i32) -> Option<u64> {
    let all = cpu_clock(process_clock(pid, 0))?;
    if all == 0 {
        // No tick yet, as for most that live shortly.
        return Some(0);
    }
    let user = cpu_clock(process_clock(pid, 1))?;
    Some(all.saturating_sub(user).saturating_mul(1_000_000).checked_div(all).unwrap_or(0))
}

/// The clock of a host process; kind 0: user and system time by ticks, 1: user time, 2: time by the scheduler.
fn process_clock(pid: i32, kind: i64) -> i64 {
    !i64::from(pid) << 3 | kind
}

/// Ends this host process at once.
pub fn exit_process(code: i32) -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe { call(nr::EXIT_GROUP, [code as u64, 0, 0, 0, 0, 0]) };
    }
}

/// Reaps one ended child without waiting: `(pid, status)`.
pub fn reap() -> Option<(i32, i32)> {
    const WNOHANG_ALL: u64 = 1 | 0x4000_0000;
    let mut status = 0i32;
    // SAFETY: status is valid for the write.
    let pid =
        unsafe { call(nr::WAIT4, [u64::MAX, core::ptr::from_mut(&mut status) as u64, WNOHANG_ALL, 0, 0, 0]) };
    pid.ok().filter(|&p| p > 0).map(|p| (p as i32, status))
}
