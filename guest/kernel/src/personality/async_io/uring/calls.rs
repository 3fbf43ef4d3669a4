//! Operations that are system calls: the fields of a request are the arguments of one.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;

use super::register::{placed, taken_out};
use super::steps::Step;
use crate::core::hook::Hook;
use crate::personality::Args;
use crate::process::async_io::uring::Uring;
use crate::process::async_io::uring::layout::{Sqe, SqeFlags};
use crate::process::async_io::uring::request::Request;
use crate::process::task::current_ref;
use crate::{Errno, Result};

/// Makes a call for the current thread: the table of all calls, of which those of io_uring are.
pub static MAKE: Hook<fn(u32, &Args) -> Result<u64>> = Hook::new();

/// IORING_OP_CLOSE.
const CLOSE: u8 = 19;

/// The call of an operation (`IORING_OP_`), with its arguments.
fn call(s: &Sqe) -> Option<(u32, [u64; 6])> {
    let fd = s.fd as u64;
    let (len, flags) = (u64::from(s.len), u64::from(s.op_flags));
    Some(match s.opcode {
        8 => (nr::SYNC_FILE_RANGE, [fd, s.off, len, flags, 0, 0]),
        17 => (nr::FALLOCATE, [fd, len, s.off, s.addr, 0, 0]),
        18 => (nr::OPENAT, [fd, s.addr, flags, len, 0, 0]),
        19 => (nr::CLOSE, [fd, 0, 0, 0, 0, 0]),
        21 => (nr::STATX, [fd, s.addr, flags, len, s.off, 0]),
        24 => (nr::FADVISE64, [fd, s.off, if s.addr == 0 { len } else { s.addr }, flags, 0, 0]),
        25 => (nr::MADVISE, [s.addr, if s.off == 0 { len } else { s.off }, flags, 0, 0, 0]),
        28 => (nr::OPENAT2, [fd, s.addr, s.off, len, 0, 0]),
        29 => (nr::EPOLL_CTL, [fd, len, s.off, s.addr, 0, 0]),
        34 => (nr::SHUTDOWN, [fd, len, 0, 0, 0, 0]),
        35 => (nr::RENAMEAT2, [fd, s.addr, len, s.off, flags, 0]),
        36 => (nr::UNLINKAT, [fd, s.addr, flags, 0, 0, 0]),
        37 => (nr::MKDIRAT, [fd, s.addr, len, 0, 0, 0]),
        38 => (nr::SYMLINKAT, [s.addr, fd, s.off, 0, 0, 0]),
        39 => (nr::LINKAT, [fd, s.addr, len, s.off, flags, 0]),
        41 => (nr::FSETXATTR, [fd, s.addr, s.off, len, flags, 0]),
        42 => (nr::SETXATTR, [s.addr3, s.addr, s.off, len, flags, 0]),
        43 => (nr::FGETXATTR, [fd, s.addr, s.off, len, 0, 0]),
        44 => (nr::GETXATTR, [s.addr3, s.addr, s.off, len, 0, 0]),
        45 => (nr::SOCKET, [fd, s.off, len, 0, 0, 0]),
        55 => (nr::FTRUNCATE, [fd, s.off, 0, 0, 0, 0]),
        56 => (nr::BIND, [fd, s.addr, s.off, 0, 0, 0]),
        57 => (nr::LISTEN, [fd, len, 0, 0, 0, 0]),
        _ => return None,
    })
}

/// Whether an operation is a call.
pub(super) fn is_one(opcode: u8) -> bool {
    call(&Sqe { opcode, ..Sqe::default() }).is_some()
}

/// Makes the call.
pub(super) fn serve(a: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    if sqe.flags().contains(SqeFlags::FIXED_FILE) {
        return Err(Errno::EBADF);
    }
    if sqe.opcode == CLOSE {
        if sqe.file_index != 0 {
            return taken_out(request).map(|()| Step::Done(0));
        }
        // An instance does not close itself.
        if a.thread.file(sqe.fd)?.downcast::<Uring>().is_some() {
            return Err(Errno::EBADF);
        }
    }
    let (nr, raw) = call(sqe).ok_or(Errno::EINVAL)?;
    let args = Args { thread: current_ref(), raw };
    let result = (MAKE.get())(nr, &args)?;
    // Operations that make a descriptor may give it a place among the registered files.
    let result =
        if matches!(sqe.opcode, 18 | 28 | 45) { placed(a, request, result)? } else { result.cast_signed() };
    Ok(Step::Done(result))
}
