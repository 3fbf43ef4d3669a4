//! `pipe(2)`.

use doppel_abi_linux::syscalls::nr;
use doppel_machine::arena;

use crate::objects::ipc::pipe::new_pipe;
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Arg::{Hex, Ptr};
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] =
    &[call(nr::PIPE, sys_pipe, Full, &[Ptr], ""), call(nr::PIPE2, sys_pipe2, Full, &[Ptr, Hex], "")];

fn make(args: &Args, open_flags: OpenFlags) -> Result<u64> {
    if arena::low() {
        return Err(Errno::ENFILE);
    }
    let (r, w) = new_pipe(open_flags);
    let cloexec = open_flags.contains(OpenFlags::CLOEXEC);
    let files = args.thread.files();
    let r = files.insert(r, cloexec)?;
    let fds = files.insert(w, cloexec).and_then(|w| {
        args.ptr(0).write(&[r, w]).map_err(|e| {
            // Another thread may have closed it already; then there is nothing to undo.
            let _ = files.close(w);
            e.into()
        })
    });
    if let Err(e) = fds {
        let _ = files.close(r);
        return Err(e);
    }
    Ok(0)
}

fn sys_pipe(args: &Args) -> Result<u64> {
    make(args, OpenFlags::empty())
}

fn sys_pipe2(args: &Args) -> Result<u64> {
    make(args, args.flags_of(1, OpenFlags::DESCRIPTOR | OpenFlags::DIRECT)?)
}
