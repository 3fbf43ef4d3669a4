//! Calls of the 32-bit ABI (`int 0x80`) that a 64-bit program makes, as some in assembly do.
//!
//! Served are those whose arguments are numbers, names and bytes, which both ABIs have alike. All others, and those that replace the
//! caller's registers or copy them, do not exist: there are no 32-bit programs here.

use doppel_abi_linux::syscalls::nr;
use doppel_machine::cpu::current_as;

use super::dispatch;
use crate::Errno;
use crate::process::task::Thread;

/// Number here, by number there (`arch/x86/entry/syscalls/syscall_32.tbl`).
const NUMBERS: &[(u32, u32)] = &[
    (1, nr::EXIT),
    (3, nr::READ),
    (4, nr::WRITE),
    (5, nr::OPEN),
    (6, nr::CLOSE),
    (8, nr::CREAT),
    (9, nr::LINK),
    (10, nr::UNLINK),
    (12, nr::CHDIR),
    (15, nr::CHMOD),
    (20, nr::GETPID),
    (29, nr::PAUSE),
    (33, nr::ACCESS),
    (36, nr::SYNC),
    (37, nr::KILL),
    (38, nr::RENAME),
    (39, nr::MKDIR),
    (40, nr::RMDIR),
    (41, nr::DUP),
    (42, nr::PIPE),
    (57, nr::SETPGID),
    (60, nr::UMASK),
    (61, nr::CHROOT),
    (63, nr::DUP2),
    (64, nr::GETPPID),
    (65, nr::GETPGRP),
    (66, nr::SETSID),
    (83, nr::SYMLINK),
    (85, nr::READLINK),
    (94, nr::FCHMOD),
    (118, nr::FSYNC),
    (132, nr::GETPGID),
    (133, nr::FCHDIR),
    (148, nr::FDATASYNC),
    (158, nr::SCHED_YIELD),
    (183, nr::GETCWD),
    (199, nr::GETUID),
    (200, nr::GETGID),
    (201, nr::GETEUID),
    (202, nr::GETEGID),
    (207, nr::FCHOWN),
    (212, nr::CHOWN),
    (224, nr::GETTID),
    (252, nr::EXIT_GROUP),
    (270, nr::TGKILL),
    (355, nr::GETRANDOM),
];

/// Serves the call in the current thread's registers, of which only the result changes.
pub fn serve() {
    let Some(thread) = current_as::<Thread>() else { unreachable!("idle vCPUs make no system calls") };
    let task = &thread.task;
    let before = task.regs();
    let wanted = before.orig_rax as u32;
    let Ok(at) = NUMBERS.binary_search_by_key(&wanted, |(number, _)| *number) else {
        return task.set_result((-i64::from(Errno::ENOSYS.0)).cast_unsigned());
    };
    let mut call = before;
    call.orig_rax = NUMBERS[at].1.into();
    let there =
        [before.rbx, before.rcx, before.rdx, before.rsi, before.rdi, before.rbp].map(|r| r & 0xffff_ffff);
    [call.rdi, call.rsi, call.rdx, call.r10, call.r8, call.r9] = there;
    task.set_regs(&call);
    dispatch();
    let mut after = before;
    // The signal code makes an interrupted call again by the number that it had.
    after.rax = task.regs().rax;
    task.set_regs(&after);
}
