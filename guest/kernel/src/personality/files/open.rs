//! System calls that make and close descriptors.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;

use crate::objects::lookup::caller::{Caller, Name, at};
use crate::objects::lookup::open;
use crate::objects::vfs::file::File;
use crate::objects::vfs::flags::{OpenFlags, Resolve};
use crate::personality::Support::Full;
use crate::personality::args::{Bits, FileMode, RawFd, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::process::task::version::read_sized;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

doppel_machine::pod_struct! {
    /// `struct open_how`.
    pub struct OpenHow {
        /// `O_` flags.
        pub flags: u64,
        /// Mode of a new file.
        pub mode: u64,
        /// `RESOLVE_` flags.
        pub resolve: u64,
    }
}

fn open_at(
    a: &Args,
    dirfd: i32,
    path: UserPtr,
    flags: OpenFlags,
    mode: u32,
    restrict: Resolve,
) -> Result<u64> {
    let name = Name::read(path)?;
    let quick = if restrict.is_empty() { open::quick(&**a.thread, dirfd, name.bytes(), flags) } else { None };
    let file = match quick {
        Some(f) => f?,
        None => open_slow(a, dirfd, name.bytes(), flags, mode, restrict)?,
    };
    let fd = a.thread.files().insert(file, flags.contains(OpenFlags::CLOEXEC))?;
    Ok(fd as u64)
}

#[cold]
fn open_slow(
    a: &Args,
    dirfd: i32,
    name: &[u8],
    flags: OpenFlags,
    mode: u32,
    restrict: Resolve,
) -> Result<Arc<File>> {
    let caller = Caller::new(&**a.thread);
    if restrict.is_empty() && name.first() == Some(&b'/') {
        open::open(&caller, &caller.walker, caller.walker.root(), name, flags, mode)
    } else if restrict.is_empty() {
        let base = caller.base(dirfd, name)?;
        open::open(&caller, &caller.walker, &base, name, flags, mode)
    } else {
        let start = if dirfd == at::FDCWD { caller.fs.cwd() } else { caller.base(dirfd, b".")? };
        let w = crate::objects::lookup::walk::Walker::new(&caller.fs, caller.cred.clone())
            .restricted(restrict, &start);
        open::open(&caller, &w, &start, name, flags, mode)
    }
}

fn open(a: &Args, UserStr(path): UserStr, flags: Bits<OpenFlags>, FileMode(mode): FileMode) -> Result<u64> {
    open_at(a, at::FDCWD, path, flags.known(), mode, Resolve::empty())
}

fn openat(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    flags: Bits<OpenFlags>,
    FileMode(mode): FileMode,
) -> Result<u64> {
    open_at(a, dirfd, path, flags.known(), mode, Resolve::empty())
}

fn creat(a: &Args, UserStr(path): UserStr, FileMode(mode): FileMode) -> Result<u64> {
    let flags = OpenFlags::CREAT | OpenFlags::WRONLY | OpenFlags::TRUNC;
    open_at(a, at::FDCWD, path, flags, mode, Resolve::empty())
}

fn openat2(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    user_how: UserPtr,
    size: usize,
) -> Result<u64> {
    if size < size_of::<OpenHow>() {
        return Err(Errno::EINVAL);
    }
    let how: OpenHow = read_sized(user_how, size)?;
    let flags = u32::try_from(how.flags).ok().and_then(OpenFlags::from_bits).ok_or(Errno::EINVAL)?;
    let restrict = u32::try_from(how.resolve).ok().and_then(Resolve::from_bits).ok_or(Errno::EINVAL)?;
    let with_path = OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW | OpenFlags::CLOEXEC;
    let makes = flags.contains(OpenFlags::CREAT) || flags.contains(OpenFlags::TMPFILE);
    if restrict.contains(Resolve::BENEATH | Resolve::IN_ROOT)
        || (how.mode != 0 && !makes)
        || how.mode & !0o7777 != 0
        || (flags.contains(OpenFlags::PATH) && !with_path.contains(flags))
    {
        return Err(Errno::EINVAL);
    }
    open_at(a, dirfd, path, flags, how.mode as u32, restrict)
}

#[inline]
fn close(a: &Args, RawFd(fd): RawFd) -> Result<u64> {
    a.thread.files().close(fd)?;
    Ok(0)
}

bitflags::bitflags! {
    /// Flags of `close_range(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct CloseRangeFlags: u32 {
        const UNSHARE = 2;
        const CLOEXEC = 4;
    }
}

fn close_range(a: &Args, first: u32, last: u32, flags: Bits<CloseRangeFlags>) -> Result<u64> {
    let flags = flags.checked()?;
    if first > last {
        return Err(Errno::EINVAL);
    }
    if flags.contains(CloseRangeFlags::UNSHARE) {
        a.thread.unshare_files();
    }
    let files = a.thread.files();
    if flags.contains(CloseRangeFlags::CLOEXEC) {
        files.cloexec_range(first, last)
    } else {
        files.close_range(first, last)
    }
    Ok(0)
}

fn dup(a: &Args, RawFd(fd): RawFd) -> Result<u64> {
    let files = a.thread.files();
    Ok(files.insert(a.thread.any_file(fd)?, false)? as u64)
}

fn dup2(a: &Args, RawFd(oldfd): RawFd, RawFd(newfd): RawFd) -> Result<u64> {
    let files = a.thread.files();
    let file = a.thread.any_file(oldfd)?;
    if oldfd != newfd {
        files.insert_at(newfd, file, false)?;
    }
    Ok(newfd as u64)
}

fn dup3(a: &Args, RawFd(oldfd): RawFd, RawFd(newfd): RawFd, flags: Bits<OpenFlags>) -> Result<u64> {
    let flags = flags.of(OpenFlags::CLOEXEC)?;
    if oldfd == newfd {
        return Err(Errno::EINVAL);
    }
    let files = a.thread.files();
    files.insert_at(newfd, a.thread.any_file(oldfd)?, flags.contains(OpenFlags::CLOEXEC))?;
    Ok(newfd as u64)
}

fn umask(a: &Args, FileMode(mask): FileMode) -> Result<u64> {
    Ok(u64::from(a.thread.fs().set_umask(mask)))
}

fn sync(_: &Args) -> Result<u64> {
    crate::objects::rootfs::sync_disks();
    crate::objects::storage::sync();
    crate::objects::block::sync();
    // sync(2) tells of no errors.
    let _ = crate::objects::rootfs::sync_layer();
    Ok(0)
}

/// open, close and the like.
pub const CALLS: &[Syscall] = &[
    call!(nr::OPEN, open(UserStr, Bits<OpenFlags>, FileMode), Full, ""),
    call!(nr::OPENAT, openat(RawFd, UserStr, Bits<OpenFlags>, FileMode), Full, ""),
    call!(
        nr::OPENAT2,
        openat2(RawFd, UserStr, UserPtr, usize),
        Full,
        "RESOLVE_CACHED is accepted and has no effect"
    ),
    call!(nr::CREAT, creat(UserStr, FileMode), Full, ""),
    call!(nr::CLOSE, close(RawFd), Full, ""),
    call!(nr::CLOSE_RANGE, close_range(u32, u32, Bits<CloseRangeFlags>), Full, ""),
    call!(nr::DUP, dup(RawFd), Full, ""),
    call!(nr::DUP2, dup2(RawFd, RawFd), Full, ""),
    call!(nr::DUP3, dup3(RawFd, RawFd, Bits<OpenFlags>), Full, ""),
    call!(nr::UMASK, umask(FileMode), Full, ""),
    call!(nr::SYNC, sync(), Full, "files outside of volumes are in memory"),
];
