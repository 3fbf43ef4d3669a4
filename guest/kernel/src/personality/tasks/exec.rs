//! `execve(2)` and `execveat(2)`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;

use crate::objects::lookup::caller::{PATH_MAX, at, read_string};
use crate::objects::vfs::File;
use crate::objects::vfs::flags::AtFlags;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, RawFd, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::process::life::exec::{Request, find, read_strings, run};
use crate::process::task::Resource;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// The family.
pub const CALLS: &[Syscall] = &[
    call!(nr::EXECVE, execve(UserStr, UserPtr, UserPtr), Full, ""),
    call!(nr::EXECVEAT, execveat(RawFd, UserStr, UserPtr, UserPtr, Bits<AtFlags>), Full, ""),
];

/// A path: at most PATH_MAX with its NUL, ENAMETOOLONG beyond. May be empty.
fn read_path(path: UserPtr) -> Result<Vec<u8>> {
    read_string(path, PATH_MAX).map_err(|e| if e == Errno::E2BIG { Errno::ENAMETOOLONG } else { e })
}

fn execve(a: &Args, UserStr(path): UserStr, argv: UserPtr, envp: UserPtr) -> Result<u64> {
    let name = read_path(path)?;
    let file = find(at::FDCWD, &name, AtFlags::empty())?;
    exec_args(a, file, name, argv, envp)
}

fn execveat(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    argv: UserPtr,
    envp: UserPtr,
    flags: Bits<AtFlags>,
) -> Result<u64> {
    let name = read_path(path)?;
    let file = find(dirfd, &name, flags.of(AtFlags::TARGET)?)?;
    let shown = if name.is_empty() {
        alloc::format!("/dev/fd/{dirfd}").into_bytes()
    } else if dirfd != at::FDCWD && !name.starts_with(b"/") {
        let mut shown = alloc::format!("/dev/fd/{dirfd}/").into_bytes();
        shown.extend_from_slice(&name);
        shown
    } else {
        name
    };
    exec_args(a, file, shown, argv, envp)
}

fn exec_args(a: &Args, file: Arc<File>, name: Vec<u8>, argv: UserPtr, envp: UserPtr) -> Result<u64> {
    let mut room = args_limit(a);
    let mut argv = read_strings(argv, &mut room)?;
    let envp = read_strings(envp, &mut room)?;
    if argv.count == 0 {
        argv.push(b"");
    }
    run(&a.thread, Request { file, name, argv, envp })?;
    Ok(0)
}

/// Bytes arguments and environment may take, pointers included.
fn args_limit(a: &Args) -> usize {
    let stack = a.thread.process.rlimit(Resource::Stack);
    (stack / 4).clamp(128 << 10, 6 << 20) as usize
}
