//! Requests that are done while they are submitted: what stands alone and waits for nothing needs no [`Request`].
//!
//! [`Request`]: crate::process::async_io::uring::request::Request

use doppel_machine::user::UserPtr;

use super::data::{self, op};
use crate::Errno;
use crate::objects::vfs::File;
use crate::objects::vfs::io::{Input, Output};
use crate::objects::vfs::rw::{RW_MAX, read_at, write_at};
use crate::personality::Args;
use crate::process::async_io::result::failed;
use crate::process::async_io::transfer::{self, Operation};
use crate::process::async_io::uring::Uring;
use crate::process::async_io::uring::layout::{SetupFlags, Sqe, SqeFlags};

/// Does what a request asks for, if that is done at once; its result. None if it has to be looked at more closely.
pub(super) fn serve(a: &Args, ring: &Uring, sqe: &Sqe) -> Option<i64> {
    let fixed_file = sqe.flags == SqeFlags::FIXED_FILE.bits();
    if sqe.flags != 0 && !fixed_file || sqe.personality != 0 {
        return None;
    }
    match sqe.opcode {
        op::NOP => return Some(0),
        op::READ | op::WRITE => {}
        op::READ_FIXED | op::WRITE_FIXED if data::is_registered(ring, sqe) => {}
        _ => return None,
    }
    if ring.flags.contains(SetupFlags::IOPOLL) {
        None
    } else if fixed_file {
        let file = ring.file_at(sqe.fd).ok()?;
        transfer(&file, sqe)
    } else {
        let file = a.thread.file(sqe.fd).ok()?;
        transfer(&file, sqe)
    }
}

/// Reads or writes at a place of a file whose readers and writers wait for nobody.
fn transfer(file: &File, sqe: &Sqe) -> Option<i64> {
    let writes = matches!(sqe.opcode, op::WRITE | op::WRITE_FIXED);
    let (operation, may) =
        if writes { (Operation::Write, file.writable()) } else { (Operation::Read, file.readable()) };
    let placed = file.seekable() && i64::try_from(sqe.off).is_ok() && sqe.op_flags == 0 && sqe.ioprio == 0;
    if !may || !placed || transfer::waits(file, operation) {
        return None;
    }
    let (at, len) = (UserPtr(sqe.addr), (sqe.len as usize).min(RW_MAX));
    let n = if writes {
        write_at(file, &mut Input::user(at, len), sqe.off)
    } else {
        read_at(file, &mut Output::user(at, len), sqe.off)
    };
    match n {
        Ok(n) => Some(n as i64),
        // Memory may be brought back.
        Err(Errno::EFAULT | Errno::ERESTARTSYS) => None,
        Err(e) => Some(failed(e)),
    }
}
