//! Reading and writing open files at their position, and telling those who watch them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use doppel_machine::user::UserPtr;

use crate::core::subject::subject;
use crate::objects::ipc::inotify::{InotifyMask, ask_access, file_event};
use crate::objects::vfs::fdtable::{Alone, FileRef};
use crate::objects::vfs::file::{File, Flight};
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::io::{Input, IoVec, Output};
use crate::{Errno, Result};
use doppel_abi_linux::signal::sig;

/// Most bytes one call transfers (`MAX_RW_COUNT`).
pub const RW_MAX: usize = 0x7fff_f000;
/// Most buffers of one call.
const IOV_MAX: usize = 1024;

doppel_machine::pod_struct! {
    /// `struct iovec`.
    pub struct UserIoVec {
        /// Address.
        pub base: u64,
        /// Length.
        pub len: u64,
    }
}

/// Copies an iovec array (also for sendmsg and process_vm_readv).
pub fn read_iovecs(p: UserPtr, count: usize) -> Result<Vec<IoVec>> {
    if count > IOV_MAX {
        return Err(Errno::EINVAL);
    }
    let mut out = Vec::with_capacity(count);
    let mut left = RW_MAX;
    for i in 0..count {
        let v: UserIoVec = p.add((i * size_of::<UserIoVec>()) as u64).read()?;
        if v.len > isize::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let len = (v.len as usize).min(left);
        left -= len;
        out.push(IoVec { base: UserPtr(v.base), len });
    }
    Ok(out)
}

/// Reads at the file's position and moves it.
#[inline]
pub fn read_file(f: &FileRef<'_>, out: &mut Output<'_>) -> Result<usize> {
    if !f.seekable() {
        return f.ops().read(f, out, 0);
    }
    ask_access(f)?;
    let n = if f.positioned() {
        let mut pos = f.pos.lock(f.alone());
        let n = f.ops().read(f, out, pos.at)?;
        pos.at += n as u64;
        n
    } else {
        f.ops().read(f, out, 0)?
    };
    file_event(f, InotifyMask::ACCESS);
    Ok(n)
}

/// Writes at the file's position (or its end, with O_APPEND) and moves it.
#[inline]
pub fn write_file(f: &FileRef<'_>, input: &mut Input<'_>) -> Result<usize> {
    let r = if !f.positioned() {
        f.ops().write(f, input, 0)
    } else {
        let mut pos = f.pos.lock(f.alone());
        if f.flags().contains(OpenFlags::APPEND) {
            f.ops().append(f, input, pos.at).map(|(n, end)| {
                pos.at = end;
                n
            })
        } else {
            let n = f.ops().write(f, input, pos.at);
            pos.at += n.unwrap_or(0) as u64;
            n
        }
    };
    written(f, r)
}

/// Reads at a place; of a file without places, the next bytes.
#[inline]
pub fn read_at(f: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
    if f.seekable() {
        ask_access(f)?;
    }
    let n = f.ops().read(f, out, offset)?;
    if f.seekable() {
        file_event(f, InotifyMask::ACCESS);
    }
    Ok(n)
}

/// Begins a read at a place of a file that has them, to be ended by [`end_read`]. None if it has to be done as a whole.
pub fn begin_read_at(f: &File, to: IoVec, offset: u64) -> Option<Box<dyn Flight>> {
    ask_access(f).ok()?;
    f.ops().begin_read(f, to.base, to.len, offset)
}

/// Ends such a read; gives how much came.
pub fn end_read(f: &File, flight: Box<dyn Flight>) -> Result<usize> {
    let n = flight.finish()?;
    file_event(f, InotifyMask::ACCESS);
    Ok(n)
}

/// Writes at a place; to a file without places, the next bytes.
#[inline]
pub fn write_at(f: &File, input: &mut Input<'_>, offset: u64) -> Result<usize> {
    let r = f.ops().write(f, input, offset);
    written(f, r)
}

/// Finishes a write: tells watchers of the file.
#[inline]
pub(crate) fn written(f: &File, r: Result<usize>) -> Result<usize> {
    match r {
        Ok(n) => {
            if n > 0 {
                file_event(f, InotifyMask::MODIFY);
            }
            Ok(n)
        }
        Err(e) => too_big(e),
    }
}

/// A write stopped by RLIMIT_FSIZE sends SIGXFSZ.
#[cold]
fn too_big(e: Errno) -> Result<usize> {
    if e == Errno::EFBIG {
        subject().raise(sig::SIGXFSZ);
    }
    Err(e)
}
