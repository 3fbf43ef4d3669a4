//! System calls that read and write files.

use doppel_abi_linux::syscalls::nr;

use crate::objects::ipc::inotify::{event, file_event};
use crate::objects::vfs::Whence;
use crate::objects::vfs::fdtable::{Alone, FileRef};
use crate::objects::vfs::file::{File, poll};
use crate::objects::vfs::io::{Input, Output};
use crate::objects::vfs::rw::{RW_MAX, read_file, read_iovecs, write_file, written};
use crate::personality::Arg::{Buf, Fd, Hex, Int, Ptr};
use crate::personality::Support::Full;
use crate::personality::args::{Number, RawFd};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

#[inline]
fn readable(a: &Args) -> Result<FileRef<'_>> {
    let f = a.file(0)?;
    if f.readable() { Ok(f) } else { Err(Errno::EBADF) }
}

#[inline]
fn writable(a: &Args) -> Result<FileRef<'_>> {
    let f = a.file(0)?;
    if f.writable() { Ok(f) } else { Err(Errno::EBADF) }
}

/// Reads at a place.
fn read_at(f: &File, out: &mut Output<'_>, offset: u64) -> Result<u64> {
    let n = f.ops().read(f, out, offset)?;
    file_event(f, event::IN_ACCESS);
    Ok(n as u64)
}

fn read(a: &Args) -> Result<u64> {
    let f = readable(a)?;
    read_file(&f, &mut Output::user(a.ptr(1), a.len(2).min(RW_MAX))).map(|n| n as u64)
}

fn write(a: &Args) -> Result<u64> {
    let f = writable(a)?;
    write_file(&f, &mut Input::user(a.ptr(1), a.len(2).min(RW_MAX))).map(|n| n as u64)
}

fn readv(a: &Args) -> Result<u64> {
    let f = readable(a)?;
    let v = read_iovecs(a.ptr(1), a.len(2))?;
    read_file(&f, &mut Output::iovecs(v)).map(|n| n as u64)
}

fn writev(a: &Args) -> Result<u64> {
    let f = writable(a)?;
    let v = read_iovecs(a.ptr(1), a.len(2))?;
    write_file(&f, &mut Input::iovecs(v)).map(|n| n as u64)
}

/// The offset argument of the p-calls: ESPIPE for files without a position.
fn offset(f: &File, off: i64) -> Result<u64> {
    let off = u64::try_from(off).map_err(|_| Errno::EINVAL)?;
    if f.seekable() { Ok(off) } else { Err(Errno::ESPIPE) }
}

/// As [`offset`], of a write of `len` bytes, which must not reach beyond the largest offset.
fn write_offset(f: &File, off: i64, len: usize) -> Result<u64> {
    let at = offset(f, off)?;
    let end = at.checked_add(len as u64).and_then(|e| i64::try_from(e).ok());
    if end.is_some() { Ok(at) } else { Err(Errno::EINVAL) }
}

fn pread64(a: &Args) -> Result<u64> {
    let f = readable(a)?;
    let off = offset(&f, a.i64(3))?;
    read_at(&f, &mut Output::user(a.ptr(1), a.len(2).min(RW_MAX)), off)
}

fn pwrite64(a: &Args) -> Result<u64> {
    let f = writable(a)?;
    let off = write_offset(&f, a.i64(3), a.len(2).min(RW_MAX))?;
    let r = f.ops().write(&f, &mut Input::user(a.ptr(1), a.len(2).min(RW_MAX)), off);
    written(&f, r).map(|n| n as u64)
}

fn preadv(a: &Args) -> Result<u64> {
    let f = readable(a)?;
    let off = offset(&f, a.i64(3))?;
    let v = read_iovecs(a.ptr(1), a.len(2))?;
    read_at(&f, &mut Output::iovecs(v), off)
}

fn pwritev(a: &Args) -> Result<u64> {
    let f = writable(a)?;
    let off = offset(&f, a.i64(3))?;
    let v = read_iovecs(a.ptr(1), a.len(2))?;
    let r = f.ops().write(&f, &mut Input::iovecs(v), off);
    written(&f, r).map(|n| n as u64)
}

fn preadv2(a: &Args) -> Result<u64> {
    if a.u32(5) & !(rwf::HIPRI | rwf::NOWAIT) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if a.u32(5) & rwf::NOWAIT != 0 {
        let f = readable(a)?;
        // Files with a position never block.
        if !f.seekable() && f.poll(None) & (poll::POLLIN | poll::POLLHUP | poll::POLLERR) == 0 {
            return Err(Errno::EAGAIN);
        }
    }
    if a.i64(3) == -1 { readv(a) } else { preadv(a) }
}

fn pwritev2(a: &Args) -> Result<u64> {
    let flags = a.u32(5);
    if flags & !(rwf::HIPRI | rwf::DSYNC | rwf::SYNC | rwf::APPEND) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & rwf::APPEND != 0 {
        let f = writable(a)?;
        let v = read_iovecs(a.ptr(1), a.len(2))?;
        let mut input = Input::iovecs(v);
        let at_position = a.i64(3) == -1;
        let mut pos = f.pos.lock(f.alone());
        let r = f.ops().append(&f, &mut input, pos.at);
        if at_position && let Ok((_, end)) = r {
            pos.at = end;
        }
        drop(pos);
        return written(&f, r.map(|r| r.0)).map(|n| n as u64);
    }
    if a.i64(3) == -1 { writev(a) } else { pwritev(a) }
}

fn lseek(a: &Args, RawFd(fd): RawFd, offset: i64, whence: Number<Whence>) -> Result<u64> {
    let f = a.thread.file(fd)?;
    let to = f.ops().seek(&f, offset, whence.get()?)?;
    f.pos.lock(f.alone()).at = to;
    Ok(to)
}

/// read, write and their variants.
pub const CALLS: &[Syscall] = &[
    call(nr::READ, read, Full, &[Fd, Ptr, Int], ""),
    call(nr::WRITE, write, Full, &[Fd, Buf, Int], ""),
    call(nr::READV, readv, Full, &[Fd, Ptr, Int], ""),
    call(nr::WRITEV, writev, Full, &[Fd, Ptr, Int], ""),
    call(nr::PREAD64, pread64, Full, &[Fd, Ptr, Int, Int], ""),
    call(nr::PWRITE64, pwrite64, Full, &[Fd, Buf, Int, Int], ""),
    call(nr::PREADV, preadv, Full, &[Fd, Ptr, Int, Int], ""),
    call(nr::PWRITEV, pwritev, Full, &[Fd, Ptr, Int, Int], ""),
    call(nr::PREADV2, preadv2, Full, &[Fd, Ptr, Int, Int, Int, Hex], ""),
    call(nr::PWRITEV2, pwritev2, Full, &[Fd, Ptr, Int, Int, Int, Hex], ""),
    call!(nr::LSEEK, lseek(RawFd, i64, Number<Whence>), Full, ""),
];

/// `RWF_` flags of preadv2 and pwritev2.
pub(crate) mod rwf {
    pub const HIPRI: u32 = 1;
    pub const DSYNC: u32 = 2;
    pub const SYNC: u32 = 4;
    pub const NOWAIT: u32 = 8;
    pub const APPEND: u32 = 16;
}
