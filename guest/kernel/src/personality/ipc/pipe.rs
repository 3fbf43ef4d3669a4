//! `pipe(2)`.

use doppel_abi_linux::syscalls::nr;
use doppel_machine::arena;
use doppel_machine::user::UserPtr;

use crate::objects::ipc::pipe::new_pipe;
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Support::Full;
use crate::personality::args::Bits;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::PIPE, sys_pipe(UserPtr), Full, ""),
    call!(nr::PIPE2, sys_pipe2(UserPtr, Bits<OpenFlags>), Full, ""),
];

fn make(args: &Args, user_fds: UserPtr, open_flags: OpenFlags) -> Result<u64> {
    if arena::low() {
        return Err(Errno::ENFILE);
    }
    let (r, w) = new_pipe(open_flags);
    let cloexec = open_flags.contains(OpenFlags::CLOEXEC);
    let files = args.thread.files();
    let r = files.insert(r, cloexec)?;
    let fds = files.insert(w, cloexec).and_then(|w| {
        user_fds.write(&[r, w]).map_err(|e| {
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

fn sys_pipe(args: &Args, fds: UserPtr) -> Result<u64> {
    make(args, fds, OpenFlags::empty())
}

fn sys_pipe2(args: &Args, fds: UserPtr, flags: Bits<OpenFlags>) -> Result<u64> {
    make(args, fds, flags.of(OpenFlags::DESCRIPTOR | OpenFlags::DIRECT)?)
}
