//! `execve(2)` and `execveat(2)`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;

use crate::Result;
use crate::objects::lookup::caller::at;
use crate::objects::vfs::File;
use crate::objects::vfs::flags::AtFlags;
use crate::personality::Support::Full;
use crate::personality::{Arg, Args, Syscall, call};
use crate::process::life::exec::{Request, find, read_strings, run};
use crate::process::task::rlimit;

/// The family.
pub const CALLS: &[Syscall] = &[
    call(nr::EXECVE, execve, Full, &[Arg::Str, Arg::Ptr, Arg::Ptr], ""),
    call(nr::EXECVEAT, execveat, Full, &[Arg::Fd, Arg::Str, Arg::Ptr, Arg::Ptr, Arg::Hex], ""),
];

fn execve(a: &Args) -> Result<u64> {
    let name = a.path(0)?;
    let file = find(at::FDCWD, &name, AtFlags::empty())?;
    exec_args(a, file, name, 1)
}

fn execveat(a: &Args) -> Result<u64> {
    let (dirfd, name) = (a.i32(0), a.path(1)?);
    let file = find(dirfd, &name, a.flags_of(4, AtFlags::TARGET)?)?;
    let shown = if name.is_empty() {
        alloc::format!("/dev/fd/{dirfd}").into_bytes()
    } else if dirfd != at::FDCWD && !name.starts_with(b"/") {
        let mut shown = alloc::format!("/dev/fd/{dirfd}/").into_bytes();
        shown.extend_from_slice(&name);
        shown
    } else {
        name
    };
    exec_args(a, file, shown, 2)
}

fn exec_args(a: &Args, file: Arc<File>, name: Vec<u8>, first: usize) -> Result<u64> {
    let mut room = args_limit(a);
    let mut argv = read_strings(a.ptr(first), &mut room)?;
    let envp = read_strings(a.ptr(first + 1), &mut room)?;
    if argv.count == 0 {
        argv.push(b"");
    }
    run(&a.thread, Request { file, name, argv, envp })?;
    Ok(0)
}

/// Bytes arguments and environment may take, pointers included.
fn args_limit(a: &Args) -> usize {
    let stack = a.thread.process.rlimit(rlimit::STACK);
    (stack / 4).clamp(128 << 10, 6 << 20) as usize
}
