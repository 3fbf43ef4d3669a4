//! System calls that read and write files.

use doppel_abi_linux::syscalls::nr;

use crate::core::sched::PollEvents;
use crate::objects::ipc::inotify::{InotifyMask, ask_access, file_event};
use crate::objects::vfs::Whence;
use crate::objects::vfs::fdtable::{Alone, FileRef};
use crate::objects::vfs::file::File;
use crate::objects::vfs::io::{Input, Output};
use crate::objects::vfs::rw::{RW_MAX, read_file, read_iovecs, write_file, written};
use crate::personality::Support::Full;
use crate::personality::args::{Bits, Number, RawFd, UserBuf};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

#[inline]
fn readable(a: &Args, fd: i32) -> Result<FileRef<'_>> {
    let f = a.thread.file(fd)?;
    if f.readable() { Ok(f) } else { Err(Errno::EBADF) }
}

#[inline]
fn writable(a: &Args, fd: i32) -> Result<FileRef<'_>> {
    let f = a.thread.file(fd)?;
    if f.writable() { Ok(f) } else { Err(Errno::EBADF) }
}

/// Reads at a place.
fn read_at(f: &File, out: &mut Output<'_>, offset: u64) -> Result<u64> {
    ask_access(f)?;
    let n = f.ops().read(f, out, offset)?;
    file_event(f, InotifyMask::ACCESS);
    Ok(n as u64)
}

#[inline]
fn read(a: &Args, RawFd(fd): RawFd, buffer: UserPtr, len: usize) -> Result<u64> {
    let f = readable(a, fd)?;
    read_file(&f, &mut Output::user(buffer, len.min(RW_MAX))).map(|n| n as u64)
}

#[inline]
fn write(a: &Args, RawFd(fd): RawFd, UserBuf(buffer): UserBuf, len: usize) -> Result<u64> {
    let f = writable(a, fd)?;
    write_file(&f, &mut Input::user(buffer, len.min(RW_MAX))).map(|n| n as u64)
}

#[inline]
fn readv(a: &Args, RawFd(fd): RawFd, iovecs: UserPtr, count: usize) -> Result<u64> {
    let f = readable(a, fd)?;
    let v = read_iovecs(iovecs, count)?;
    read_file(&f, &mut Output::iovecs(v)).map(|n| n as u64)
}

#[inline]
fn writev(a: &Args, RawFd(fd): RawFd, iovecs: UserPtr, count: usize) -> Result<u64> {
    let f = writable(a, fd)?;
    let v = read_iovecs(iovecs, count)?;
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

#[inline]
fn pread64(a: &Args, RawFd(fd): RawFd, buffer: UserPtr, len: usize, pos: i64) -> Result<u64> {
    let f = readable(a, fd)?;
    let off = offset(&f, pos)?;
    read_at(&f, &mut Output::user(buffer, len.min(RW_MAX)), off)
}

#[inline]
fn pwrite64(a: &Args, RawFd(fd): RawFd, UserBuf(buffer): UserBuf, len: usize, pos: i64) -> Result<u64> {
    let f = writable(a, fd)?;
    let len = len.min(RW_MAX);
    let off = write_offset(&f, pos, len)?;
    let r = f.ops().write(&f, &mut Input::user(buffer, len), off);
    written(&f, r).map(|n| n as u64)
}

fn preadv(a: &Args, RawFd(fd): RawFd, iovecs: UserPtr, count: usize, pos: i64) -> Result<u64> {
    let f = readable(a, fd)?;
    let off = offset(&f, pos)?;
    let v = read_iovecs(iovecs, count)?;
    read_at(&f, &mut Output::iovecs(v), off)
}

fn pwritev(a: &Args, RawFd(fd): RawFd, iovecs: UserPtr, count: usize, pos: i64) -> Result<u64> {
    let f = writable(a, fd)?;
    let off = offset(&f, pos)?;
    let v = read_iovecs(iovecs, count)?;
    let r = f.ops().write(&f, &mut Input::iovecs(v), off);
    written(&f, r).map(|n| n as u64)
}

bitflags::bitflags! {
    /// `RWF_` flags of preadv2 and pwritev2.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct RwFlags: u32 {
        const HIPRI = 1;
        const DSYNC = 2;
        const SYNC = 4;
        const NOWAIT = 8;
        const APPEND = 16;
    }
}

/// The flags, which must be among `allowed`; EOPNOTSUPP tells programs to try without.
fn supported(flags: Bits<RwFlags>, allowed: RwFlags) -> Result<RwFlags> {
    flags.of(allowed).map_err(|_| Errno::EOPNOTSUPP)
}

fn preadv2(
    a: &Args,
    fd: RawFd,
    iovecs: UserPtr,
    count: usize,
    pos: i64,
    _pos_high: i64,
    flags: Bits<RwFlags>,
) -> Result<u64> {
    let flags = supported(flags, RwFlags::HIPRI | RwFlags::NOWAIT)?;
    if flags.contains(RwFlags::NOWAIT) {
        let f = readable(a, fd.0)?;
        // Files with a position never block.
        if !f.seekable() && !f.poll(None).intersects(PollEvents::IN | PollEvents::ALWAYS) {
            return Err(Errno::EAGAIN);
        }
    }
    if pos == -1 { readv(a, fd, iovecs, count) } else { preadv(a, fd, iovecs, count, pos) }
}

fn pwritev2(
    a: &Args,
    fd: RawFd,
    iovecs: UserPtr,
    count: usize,
    pos: i64,
    _pos_high: i64,
    flags: Bits<RwFlags>,
) -> Result<u64> {
    let allowed = RwFlags::HIPRI | RwFlags::DSYNC | RwFlags::SYNC | RwFlags::APPEND;
    let flags = supported(flags, allowed)?;
    let at_position = pos == -1;
    if flags.contains(RwFlags::APPEND) {
        let f = writable(a, fd.0)?;
        let v = read_iovecs(iovecs, count)?;
        let mut input = Input::iovecs(v);
        let mut own = f.pos.lock(f.alone());
        let r = f.ops().append(&f, &mut input, own.at);
        if at_position && let Ok((_, end)) = r {
            own.at = end;
        }
        drop(own);
        return written(&f, r.map(|r| r.0)).map(|n| n as u64);
    }
    if at_position { writev(a, fd, iovecs, count) } else { pwritev(a, fd, iovecs, count, pos) }
}

fn lseek(a: &Args, RawFd(fd): RawFd, offset: i64, whence: Number<Whence>) -> Result<u64> {
    let f = a.thread.file(fd)?;
    let to = f.ops().seek(&f, offset, whence.get()?)?;
    f.pos.lock(f.alone()).at = to;
    Ok(to)
}

/// read, write and their variants.
pub const CALLS: &[Syscall] = &[
    call!(nr::READ, read(RawFd, UserPtr, usize), Full, ""),
    call!(nr::WRITE, write(RawFd, UserBuf, usize), Full, ""),
    call!(nr::READV, readv(RawFd, UserPtr, usize), Full, ""),
    call!(nr::WRITEV, writev(RawFd, UserPtr, usize), Full, ""),
    call!(nr::PREAD64, pread64(RawFd, UserPtr, usize, i64), Full, ""),
    call!(nr::PWRITE64, pwrite64(RawFd, UserBuf, usize, i64), Full, ""),
    call!(nr::PREADV, preadv(RawFd, UserPtr, usize, i64), Full, ""),
    call!(nr::PWRITEV, pwritev(RawFd, UserPtr, usize, i64), Full, ""),
    call!(nr::PREADV2, preadv2(RawFd, UserPtr, usize, i64, i64, Bits<RwFlags>), Full, ""),
    call!(nr::PWRITEV2, pwritev2(RawFd, UserPtr, usize, i64, i64, Bits<RwFlags>), Full, ""),
    call!(nr::LSEEK, lseek(RawFd, i64, Number<Whence>), Full, ""),
];
