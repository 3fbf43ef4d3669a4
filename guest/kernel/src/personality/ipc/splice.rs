//! System calls that move data between files: splice, tee, vmsplice, sendfile, copy_file_range.

use alloc::sync::Arc;
use alloc::vec;

use doppel_abi_linux::syscalls::nr;

use crate::objects::ipc::pipe::Pipe;
use crate::objects::ipc::splice::{CHUNK, SpliceEnd, copy, from_pipe, pipe_of, to_pipe};
use crate::objects::lookup::caller::file_stat;
use crate::objects::vfs::fdtable::FileRef;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::rw::{RW_MAX, read_iovecs};
use crate::objects::vfs::{File, FileType, Input, Output};
use crate::personality::Support::Full;
use crate::personality::args::{Bits, NoFlags, RawFd};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::SPLICE, sys_splice(RawFd, UserPtr, RawFd, UserPtr, usize, Bits<SpliceFlags>), Full, ""),
    call!(nr::TEE, sys_tee(RawFd, RawFd, usize, Bits<SpliceFlags>), Full, ""),
    call!(nr::VMSPLICE, sys_vmsplice(RawFd, UserPtr, usize, Bits<SpliceFlags>), Full, "copies"),
    call!(nr::SENDFILE, sys_sendfile(RawFd, RawFd, UserPtr, usize), Full, ""),
    call!(
        nr::COPY_FILE_RANGE,
        sys_copy_file_range(RawFd, UserPtr, RawFd, UserPtr, usize, Bits<NoFlags>),
        Full,
        ""
    ),
];

bitflags::bitflags! {
    /// `SPLICE_F_` flags of splice, tee and vmsplice.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct SpliceFlags: u32 {
        const MOVE = 1;
        const NONBLOCK = 2;
        const MORE = 4;
        const GIFT = 8;
    }
}

fn readable(a: &Args, fd: i32) -> Result<FileRef<'_>> {
    a.thread.file(fd).and_then(|f| if f.readable() { Ok(f) } else { Err(Errno::EBADF) })
}

fn writable(a: &Args, fd: i32) -> Result<FileRef<'_>> {
    a.thread.file(fd).and_then(|f| if f.writable() { Ok(f) } else { Err(Errno::EBADF) })
}

/// Moves bytes from a pipe to another: waits until there are some and there is room.
fn between(from: &Pipe, to: &Pipe, len: usize, block: bool) -> Result<usize> {
    loop {
        from.wait_data(block)?;
        to.wait_room(block)?;
        // Who else uses the pipes may have been faster.
        match from_pipe(from, len, false, |b| to.write(&mut Input::kernel(b), false, false)) {
            Err(Errno::EAGAIN) if block => {}
            r => return r,
        }
    }
}

fn sys_splice(
    a: &Args,
    RawFd(in_fd): RawFd,
    in_offset: UserPtr,
    RawFd(out_fd): RawFd,
    out_offset: UserPtr,
    length: usize,
    flags: Bits<SpliceFlags>,
) -> Result<u64> {
    let len = length.min(RW_MAX);
    if len == 0 {
        return Ok(0);
    }
    let flags = flags.checked()?;
    let (input, output) = (a.thread.file(in_fd)?, a.thread.file(out_fd)?);
    let pipes = (pipe_of(&input), pipe_of(&output));
    if pipes.0.is_some() && !in_offset.is_null() || pipes.1.is_some() && !out_offset.is_null() {
        return Err(Errno::ESPIPE);
    }
    if !input.readable() || !output.writable() {
        return Err(Errno::EBADF);
    }
    let block = |file: &File| !flags.contains(SpliceFlags::NONBLOCK) && !file.nonblocking();
    let n = match pipes {
        (Some(from), Some(to)) => {
            if Arc::ptr_eq(&from, &to) {
                return Err(Errno::EINVAL);
            }
            between(&from, &to, len, block(&input) && block(&output))?
        }
        (Some(from), None) => {
            let append = output.flags().contains(OpenFlags::APPEND);
            let mut to = SpliceEnd::new(output, out_offset, Errno::EINVAL)?;
            to.takes_bytes()?;
            if append {
                return Err(Errno::EINVAL);
            }
            let n = from_pipe(&from, len, block(&input), |b| to.write(b))?;
            to.store(out_offset)?;
            n
        }
        (None, Some(to)) => {
            let mut from = SpliceEnd::new(input, in_offset, Errno::EINVAL)?;
            let n = to_pipe(&mut from, &to, len, block(&output))?;
            from.store(in_offset)?;
            n
        }
        (None, None) => return Err(Errno::EINVAL),
    };
    Ok(n as u64)
}

fn sys_tee(
    a: &Args,
    RawFd(in_fd): RawFd,
    RawFd(out_fd): RawFd,
    length: usize,
    flags: Bits<SpliceFlags>,
) -> Result<u64> {
    let len = length.min(RW_MAX);
    let flags = flags.checked()?;
    if len == 0 {
        return Ok(0);
    }
    let (input, output) = (readable(a, in_fd)?, writable(a, out_fd)?);
    let (Some(from), Some(to)) = (pipe_of(&input), pipe_of(&output)) else { return Err(Errno::EINVAL) };
    if Arc::ptr_eq(&from, &to) {
        return Err(Errno::EINVAL);
    }
    let nonblock = |file: &File| flags.contains(SpliceFlags::NONBLOCK) || file.nonblocking();
    let block = !nonblock(&input) && !nonblock(&output);
    loop {
        from.wait_data(block)?;
        let room = to.wait_room(block)?;
        let mut buf = vec![0; len.min(room).min(CHUNK)];
        let r = match from.peek(&mut Output::kernel(&mut buf)) {
            Ok(0) => return Ok(0),
            Ok(n) => to.write(&mut Input::kernel(&buf[..n]), false, false),
            Err(e) => Err(e),
        };
        // Who else uses the pipes may have been faster.
        match r {
            Err(Errno::EAGAIN) if block => {}
            r => return r.map(|n| n as u64),
        }
    }
}

fn sys_vmsplice(
    a: &Args,
    RawFd(fd): RawFd,
    iovecs: UserPtr,
    count: usize,
    flags: Bits<SpliceFlags>,
) -> Result<u64> {
    let flags = flags.checked()?;
    let file = a.thread.file(fd)?;
    let pipe = pipe_of(&file).ok_or(Errno::EBADF)?;
    let v = read_iovecs(iovecs, count)?;
    let block = !flags.contains(SpliceFlags::NONBLOCK);
    let n = if file.writable() {
        // What fits, after waiting for room once.
        let mut input = Input::iovecs(v);
        if input.remaining() == 0 {
            return Ok(0);
        }
        loop {
            pipe.wait_room(block)?;
            match pipe.write(&mut input, false, false) {
                Err(Errno::EAGAIN) if block => {}
                r => break r?,
            }
        }
    } else {
        pipe.read(&mut Output::iovecs(v), block)?
    };
    Ok(n as u64)
}

fn sys_sendfile(
    a: &Args,
    RawFd(out_fd): RawFd,
    RawFd(in_fd): RawFd,
    offset: UserPtr,
    count: usize,
) -> Result<u64> {
    let mut from = SpliceEnd::new(readable(a, in_fd)?, offset, Errno::ESPIPE)?;
    let output = writable(a, out_fd)?;
    let len = count.min(RW_MAX);
    let n = if let Some(pipe) = pipe_of(&output) {
        if len == 0 { 0 } else { to_pipe(&mut from, &pipe, len, !output.nonblocking())? }
    } else {
        if !from.file.ops().seekable() || output.flags().contains(OpenFlags::APPEND) {
            return Err(Errno::EINVAL);
        }
        from.has_bytes()?;
        copy(&mut from, &mut SpliceEnd { file: output, offset: None }, len)?
    };
    from.store(offset)?;
    Ok(n as u64)
}

/// Both must be regular files; EISDIR for directories.
fn check_regular(files: [&File; 2]) -> Result<()> {
    let kind = |f: &File| f.inode.as_ref().map(|i| i.kind());
    if files.iter().any(|f| kind(f) == Some(FileType::Directory)) {
        return Err(Errno::EISDIR);
    }
    let regular = files.iter().all(|f| kind(f) == Some(FileType::Regular));
    if regular { Ok(()) } else { Err(Errno::EINVAL) }
}

fn sys_copy_file_range(
    a: &Args,
    RawFd(in_fd): RawFd,
    in_offset: UserPtr,
    RawFd(out_fd): RawFd,
    out_offset: UserPtr,
    length: usize,
    flags: Bits<NoFlags>,
) -> Result<u64> {
    flags.checked()?;
    let (input, output) = (a.thread.file(in_fd)?, a.thread.file(out_fd)?);
    check_regular([&input, &output])?;
    if !input.readable() || !output.writable() || output.flags().contains(OpenFlags::APPEND) {
        return Err(Errno::EBADF);
    }
    let mut from = SpliceEnd::new(input, in_offset, Errno::ESPIPE)?;
    let mut to = SpliceEnd::new(output, out_offset, Errno::ESPIPE)?;
    let (source, target) = (file_stat(&from.file)?, file_stat(&to.file)?);
    if source.dev != target.dev {
        return Err(Errno::EXDEV);
    }
    let start = |p: &SpliceEnd| p.offset.unwrap_or_else(|| p.file.pos.get());
    let left = source.size.saturating_sub(start(&from));
    let len = length.min(RW_MAX).min(usize::try_from(left).unwrap_or(usize::MAX));
    let same = match (&from.file.inode, &to.file.inode) {
        (Some(i), Some(o)) => Arc::ptr_eq(i, o),
        _ => false,
    };
    if same && start(&from).abs_diff(start(&to)) < len as u64 {
        return Err(Errno::EINVAL);
    }
    let n = copy(&mut from, &mut to, len)?;
    from.store(in_offset)?;
    to.store(out_offset)?;
    Ok(n as u64)
}
