//! Calls that move data between files: splice, tee, vmsplice, sendfile, copy_file_range.
//!
//! Everything goes through a kernel buffer. What was read from a pipe but could not be delivered goes back; of a
//! file only the delivered bytes count.

use alloc::sync::Arc;
use alloc::vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use super::inotify::{event, file_event};
use super::pipe::{Pipe, PipeEnd};
use crate::fs::fdtable::FileRef;
use crate::fs::file::flags;
use crate::fs::sys_rw::{RW_MAX, read_file, read_iovecs, write_file};
use crate::fs::{File, FileType, Input, Output};
use crate::syscall::Arg::{Fd, Hex, Int, Ptr};
use crate::syscall::Support::Full;
use crate::syscall::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call(nr::SPLICE, sys_splice, Full, &[Fd, Ptr, Fd, Ptr, Int, Hex], ""),
    call(nr::TEE, sys_tee, Full, &[Fd, Fd, Int, Hex], ""),
    call(nr::VMSPLICE, sys_vmsplice, Full, &[Fd, Ptr, Int, Hex], "copies"),
    call(nr::SENDFILE, sys_sendfile, Full, &[Fd, Fd, Ptr, Int], ""),
    call(nr::COPY_FILE_RANGE, sys_copy_file_range, Full, &[Fd, Ptr, Fd, Ptr, Int, Hex], ""),
];

/// Bytes moved at a time.
const CHUNK: usize = 64 << 10;
const SPLICE_F_NONBLOCK: u32 = 2;
const SPLICE_FLAGS: u32 = 0xf;

/// Where bytes come from or go to in a file: at an explicit offset, which moves, or at the file's position.
struct Place<'a> {
    file: FileRef<'a>,
    offset: Option<u64>,
}

impl<'a> Place<'a> {
    /// `p` points to the offset; null means the file's position.
    fn new(file: FileRef<'a>, p: UserPtr) -> Result<Self> {
        let offset = if p.is_null() {
            None
        } else {
            if !file.ops().seekable() {
                return Err(Errno::ESPIPE);
            }
            Some(u64::try_from(p.read::<i64>()?).map_err(|_| Errno::EINVAL)?)
        };
        Ok(Self { file, offset })
    }

    /// Reads without moving on a seekable file; [`Self::advance`] does that.
    fn read(&self, buf: &mut [u8]) -> Result<usize> {
        let f = &self.file;
        if !f.seekable() {
            return read_file(f, &mut Output::kernel(buf));
        }
        let at = self.offset.unwrap_or_else(|| f.pos.get());
        let n = f.ops().read(f, &mut Output::kernel(buf), at)?;
        file_event(f, event::IN_ACCESS);
        Ok(n)
    }

    /// Moves over `n` bytes that were read.
    fn advance(&mut self, n: usize) {
        match &mut self.offset {
            Some(o) => *o += n as u64,
            None if self.file.seekable() => self.file.pos.lock(false).at += n as u64,
            None => {}
        }
    }

    /// Writes and moves.
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        let Some(at) = self.offset else { return write_file(&self.file, &mut Input::kernel(buf)) };
        let n = self.file.ops().write(&self.file, &mut Input::kernel(buf), at)?;
        self.offset = Some(at + n as u64);
        file_event(&self.file, event::IN_MODIFY);
        Ok(n)
    }

    /// Gives the moved offset back to the program.
    fn store(&self, p: UserPtr) -> Result<()> {
        match self.offset {
            Some(o) => Ok(p.write(&o)?),
            None => Ok(()),
        }
    }
}

fn readable(a: &Args, i: usize) -> Result<FileRef<'_>> {
    a.file(i).and_then(|f| if f.readable() { Ok(f) } else { Err(Errno::EBADF) })
}

fn writable(a: &Args, i: usize) -> Result<FileRef<'_>> {
    a.file(i).and_then(|f| if f.writable() { Ok(f) } else { Err(Errno::EBADF) })
}

fn pipe_of(f: &File) -> Option<Arc<Pipe>> {
    f.downcast::<PipeEnd>().map(|e| e.pipe().clone())
}

/// An error counts only if nothing was moved before.
fn outcome(done: usize, r: Result<()>) -> Result<usize> {
    match r {
        Err(e) if done == 0 => Err(e),
        _ => Ok(done),
    }
}

/// Moves bytes out of a pipe.
fn from_pipe(
    pipe: &Pipe,
    len: usize,
    block: bool,
    mut sink: impl FnMut(&[u8]) -> Result<usize>,
) -> Result<usize> {
    let mut buf = vec![0; len.min(CHUNK)];
    let mut done = 0;
    let r = loop {
        let want = (len - done).min(CHUNK);
        if want == 0 {
            break Ok(());
        }
        let n = match pipe.read(&mut Output::kernel(&mut buf[..want]), block && done == 0) {
            Ok(0) => break Ok(()),
            Ok(n) => n,
            Err(e) => break Err(e),
        };
        let (moved, r) = match sink(&buf[..n]) {
            Ok(w) => (w, Ok(())),
            Err(e) => (0, Err(e)),
        };
        done += moved;
        if moved < n {
            pipe.unread(&buf[moved..n])?;
            break r;
        }
    };
    outcome(done, r)
}

/// Moves bytes into a pipe: what fits, after waiting for room once.
fn to_pipe(from: &mut Place, pipe: &Pipe, len: usize, block: bool) -> Result<usize> {
    let mut buf = vec![0; len.min(CHUNK)];
    let mut done = 0;
    let r = loop {
        let room = match pipe.wait_room(block && done == 0) {
            Ok(n) => n,
            Err(e) => break Err(e),
        };
        let want = (len - done).min(room).min(CHUNK);
        let n = match from.read(&mut buf[..want]) {
            Ok(0) => break Ok(()),
            Ok(n) => n,
            Err(e) => break Err(e),
        };
        // Other writers may have taken the room: of a file the rest is read again later, the rest of a stream
        // must not be lost.
        let again = from.file.ops().seekable();
        let w = match pipe.write(&mut Input::kernel(&buf[..n]), !again, false) {
            Ok(w) => w,
            Err(e) => break Err(e),
        };
        from.advance(w);
        done += w;
        if done == len || w < n || !again {
            break Ok(());
        }
    };
    outcome(done, r)
}

/// Directories have a position, but no bytes.
fn not_directory(f: &File) -> Result<()> {
    let directory = f.inode.as_ref().is_some_and(|i| i.kind() == FileType::Directory);
    if directory { Err(Errno::EINVAL) } else { Ok(()) }
}

fn sys_splice(a: &Args) -> Result<u64> {
    let len = a.len(4).min(RW_MAX);
    let f = a.u32(5);
    if f & !SPLICE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    let (input, output) = (readable(a, 0)?, writable(a, 2)?);
    let nonblock = |file: &File| f & SPLICE_F_NONBLOCK != 0 || file.nonblocking();
    let n = match (pipe_of(&input), pipe_of(&output)) {
        (Some(from), Some(to)) => {
            if !a.ptr(1).is_null() || !a.ptr(3).is_null() {
                return Err(Errno::ESPIPE);
            }
            if Arc::ptr_eq(&from, &to) {
                return Err(Errno::EINVAL);
            }
            to.wait_room(!nonblock(&output))?;
            from_pipe(&from, len, !nonblock(&input), |b| to.write(&mut Input::kernel(b), false, false))?
        }
        (Some(from), None) => {
            if !a.ptr(1).is_null() {
                return Err(Errno::ESPIPE);
            }
            if output.flags() & flags::O_APPEND != 0 {
                return Err(Errno::EINVAL);
            }
            let mut to = Place::new(output, a.ptr(3))?;
            let n = from_pipe(&from, len, !nonblock(&input), |b| to.write(b))?;
            to.store(a.ptr(3))?;
            n
        }
        (None, Some(to)) => {
            not_directory(&input)?;
            if !a.ptr(3).is_null() {
                return Err(Errno::ESPIPE);
            }
            let mut from = Place::new(input, a.ptr(1))?;
            let n = to_pipe(&mut from, &to, len, !nonblock(&output))?;
            from.store(a.ptr(1))?;
            n
        }
        (None, None) => return Err(Errno::EINVAL),
    };
    Ok(n as u64)
}

fn sys_tee(a: &Args) -> Result<u64> {
    let len = a.len(2).min(RW_MAX);
    let f = a.u32(3);
    if f & !SPLICE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    let (input, output) = (readable(a, 0)?, writable(a, 1)?);
    let (Some(from), Some(to)) = (pipe_of(&input), pipe_of(&output)) else { return Err(Errno::EINVAL) };
    if Arc::ptr_eq(&from, &to) {
        return Err(Errno::EINVAL);
    }
    let nonblock = |file: &File| f & SPLICE_F_NONBLOCK != 0 || file.nonblocking();
    from.wait_data(!nonblock(&input))?;
    let room = to.wait_room(!nonblock(&output))?;
    let mut buf = vec![0; len.min(room).min(CHUNK)];
    let n = match from.peek(&mut Output::kernel(&mut buf))? {
        0 => return Ok(0),
        n => n,
    };
    to.write(&mut Input::kernel(&buf[..n]), false, false).map(|n| n as u64)
}

fn sys_vmsplice(a: &Args) -> Result<u64> {
    let f = a.u32(3);
    if f & !SPLICE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let file = a.file(0)?;
    let pipe = pipe_of(&file).ok_or(Errno::EBADF)?;
    let v = read_iovecs(a.ptr(1), a.len(2))?;
    let block = f & SPLICE_F_NONBLOCK == 0 && !file.nonblocking();
    let n = if file.writable() {
        pipe.write(&mut Input::iovecs(v), block, false)?
    } else {
        pipe.read(&mut Output::iovecs(v), block)?
    };
    Ok(n as u64)
}

/// Copies from a seekable file until `len`, the end, or a short write.
fn copy(from: &mut Place, to: &mut Place, len: usize) -> Result<usize> {
    let mut buf = vec![0; len.min(CHUNK)];
    let mut done = 0;
    let r = loop {
        let want = (len - done).min(CHUNK);
        if want == 0 {
            break Ok(());
        }
        let n = match from.read(&mut buf[..want]) {
            Ok(0) => break Ok(()),
            Ok(n) => n,
            Err(e) => break Err(e),
        };
        let w = match to.write(&buf[..n]) {
            Ok(w) => w,
            Err(e) => break Err(e),
        };
        from.advance(w);
        done += w;
        if w < n {
            break Ok(());
        }
    };
    outcome(done, r)
}

fn sys_sendfile(a: &Args) -> Result<u64> {
    let input = readable(a, 1)?;
    let output = writable(a, 0)?;
    if !input.ops().seekable() || output.flags() & flags::O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    not_directory(&input)?;
    let mut from = Place::new(input, a.ptr(2))?;
    let mut to = Place { file: output, offset: None };
    let n = copy(&mut from, &mut to, a.len(3).min(RW_MAX))?;
    from.store(a.ptr(2))?;
    Ok(n as u64)
}

/// Whether a file is a regular one; EISDIR for directories.
fn check_regular(f: &File) -> Result<()> {
    match f.inode.as_ref().map(|i| i.kind()) {
        Some(FileType::Regular) => Ok(()),
        Some(FileType::Directory) => Err(Errno::EISDIR),
        _ => Err(Errno::EINVAL),
    }
}

fn sys_copy_file_range(a: &Args) -> Result<u64> {
    if a.u32(5) != 0 {
        return Err(Errno::EINVAL);
    }
    let (input, output) = (a.file(0)?, a.file(2)?);
    check_regular(&input)?;
    check_regular(&output)?;
    if !input.readable() || !output.writable() || output.flags() & flags::O_APPEND != 0 {
        return Err(Errno::EBADF);
    }
    let mut from = Place::new(input, a.ptr(1))?;
    let mut to = Place::new(output, a.ptr(3))?;
    let mut len = a.len(4).min(RW_MAX);
    let same = match (&from.file.inode, &to.file.inode) {
        (Some(i), Some(o)) => Arc::ptr_eq(i, o),
        _ => false,
    };
    if same {
        let start = |p: &Place| p.offset.unwrap_or_else(|| p.file.pos.get());
        // Only what is there to copy can overlap.
        let left = crate::fs::caller::file_stat(&from.file)?.size.saturating_sub(start(&from));
        len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
        if start(&from).abs_diff(start(&to)) < len as u64 {
            return Err(Errno::EINVAL);
        }
    }
    let n = copy(&mut from, &mut to, len)?;
    from.store(a.ptr(1))?;
    to.store(a.ptr(3))?;
    Ok(n as u64)
}
