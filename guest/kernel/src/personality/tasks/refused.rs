//! System calls that a domain never offers, each with the error an unprivileged or older Linux gives.

use doppel_abi_linux::syscalls::nr;

use crate::personality::Support::Stub;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

fn eperm(_: &Args) -> Result<u64> {
    Err(Errno::EPERM)
}

fn enosys(_: &Args) -> Result<u64> {
    Err(Errno::ENOSYS)
}

const fn no(nr: u32) -> Syscall {
    call!(nr, eperm(), Stub, "refused: EPERM")
}

const fn none(nr: u32) -> Syscall {
    call!(nr, enosys(), Stub, "not offered: ENOSYS")
}

fn sys_perf_event_open(_: &Args) -> Result<u64> {
    Err(Errno::EACCES)
}

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::PERF_EVENT_OPEN, sys_perf_event_open(), Stub, "refused: EACCES"),
    no(nr::VHANGUP),
    no(nr::SWAPON),
    no(nr::SWAPOFF),
    no(nr::ACCT),
    no(nr::IOPL),
    no(nr::IOPERM),
    no(nr::INIT_MODULE),
    no(nr::FINIT_MODULE),
    no(nr::DELETE_MODULE),
    no(nr::KEXEC_LOAD),
    no(nr::KEXEC_FILE_LOAD),
    no(nr::BPF),
    no(nr::QUOTACTL),
    no(nr::USERFAULTFD),
    none(nr::QUOTACTL_FD),
    none(nr::MODIFY_LDT),
    none(nr::USELIB),
    none(nr::USTAT),
    none(nr::SYSFS),
    none(nr::_SYSCTL),
    none(nr::CREATE_MODULE),
    none(nr::GET_KERNEL_SYMS),
    none(nr::QUERY_MODULE),
    none(nr::NFSSERVCTL),
    none(nr::GETPMSG),
    none(nr::PUTPMSG),
    none(nr::AFS_SYSCALL),
    none(nr::TUXCALL),
    none(nr::SECURITY),
    none(nr::SET_THREAD_AREA),
    none(nr::GET_THREAD_AREA),
    none(nr::LOOKUP_DCOOKIE),
    none(nr::EPOLL_CTL_OLD),
    none(nr::EPOLL_WAIT_OLD),
    none(nr::VSERVER),
    none(nr::RSEQ),
    none(nr::LANDLOCK_CREATE_RULESET),
    none(nr::LANDLOCK_ADD_RULE),
    none(nr::LANDLOCK_RESTRICT_SELF),
    none(nr::MEMFD_SECRET),
    none(nr::LSM_GET_SELF_ATTR),
    none(nr::LSM_SET_SELF_ATTR),
    none(nr::LSM_LIST_MODULES),
    none(nr::MAP_SHADOW_STACK),
];
