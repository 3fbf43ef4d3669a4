//! fcntl, flock and ioctl.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;

use crate::core::numbers::numbers;
use crate::objects::ipc::{memfd, pipe};
use crate::objects::vfs::Whence;
use crate::objects::vfs::attach::locks;
use crate::objects::vfs::attach::locks::{Owner, Range};
use crate::objects::vfs::file::File;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::inode::FileType;
use crate::objects::vfs::sigio;
use crate::personality::Arg::{Fd, Hex, Int};
use crate::personality::Support::Full;
use crate::personality::args::{RawFd, Request};
use crate::personality::{Args, Syscall, call};
use crate::process::task::rlimit;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

doppel_machine::pod_struct! {
    /// `struct flock`.
    pub struct Flock {
        /// F_RDLCK, F_WRLCK or F_UNLCK.
        pub kind: i16,
        /// SEEK_SET, SEEK_CUR or SEEK_END.
        pub whence: i16,
        /// Padding.
        pub pad: u32,
        /// Start relative to `whence`.
        pub start: i64,
        /// Length, 0 for to the end.
        pub len: i64,
        /// Holder (F_GETLK).
        pub pid: i32,
        /// Padding.
        pub pad2: u32,
    }
}

numbers! {
    /// `fcntl(2)` commands.
    enum Command {
        DupFd = 0,
        GetFd = 1,
        SetFd = 2,
        GetFlags = 3,
        SetFlags = 4,
        GetLock = 5,
        SetLock = 6,
        SetLockWait = 7,
        SetOwner = 8,
        GetOwner = 9,
        SetSignal = 10,
        GetSignal = 11,
        SetOwnerEx = 15,
        GetOwnerEx = 16,
        OfdGetLock = 36,
        OfdSetLock = 37,
        OfdSetLockWait = 38,
        GetLease = 1025,
        Notify = 1026,
        DupFdQuery = 1027,
        DupFdCloexec = 1030,
        SetPipeSize = 1031,
        GetPipeSize = 1032,
        AddSeals = 1033,
        GetSeals = 1034,
    }
}

numbers! {
    /// `flock(2)` operations, without LOCK_NB.
    enum Flocking {
        Shared = 1,
        Exclusive = 2,
        Unlock = 8,
    }
}

const F_RDLCK: i16 = 0;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;

fn range(f: &File, l: &Flock, owner: Owner) -> Result<Range> {
    let base = match Whence::try_from(l.whence as u32)? {
        Whence::Set => 0,
        Whence::Cur => i64::try_from(f.pos.get()).map_err(|_| Errno::EOVERFLOW)?,
        Whence::End => {
            i64::try_from(crate::objects::lookup::caller::file_stat(f)?.size).map_err(|_| Errno::EOVERFLOW)?
        }
        Whence::Data | Whence::Hole => return Err(Errno::EINVAL),
    };
    let start = base.checked_add(l.start).ok_or(Errno::EOVERFLOW)?;
    let (start, end) = if l.len > 0 {
        (start, start.checked_add(l.len - 1).ok_or(Errno::EOVERFLOW)?)
    } else if l.len == 0 {
        (start, i64::MAX)
    } else {
        (start.checked_add(l.len).ok_or(Errno::EINVAL)?, start - 1)
    };
    let start = u64::try_from(start).map_err(|_| Errno::EINVAL)?;
    let end = u64::try_from(end).map_err(|_| Errno::EINVAL)?;
    Ok(Range { owner, start, end, exclusive: l.kind == F_WRLCK })
}

fn get_lock(a: &Args, file: &File, owner: Owner) -> Result<u64> {
    let mut l: Flock = a.ptr(2).read()?;
    let ofd = matches!(owner, Owner::File(_));
    if ofd && l.pid != 0 {
        return Err(Errno::EINVAL);
    }
    let own = ofd && l.kind == F_UNLCK;
    if !own && !matches!(l.kind, F_RDLCK | F_WRLCK) {
        return Err(Errno::EINVAL);
    }
    let want = range(file, &l, owner)?;
    let locks = locks::of(file.attachments())?;
    // F_UNLCK asks what the open file itself has locked.
    match if own { locks.own(&want) } else { locks.conflict(&want) } {
        None => l.kind = F_UNLCK,
        Some(r) => {
            l.kind = if r.exclusive { F_WRLCK } else { F_RDLCK };
            l.whence = Whence::Set as i16;
            l.start = r.start.cast_signed();
            l.len = if r.end == i64::MAX as u64 { 0 } else { (r.end - r.start + 1).cast_signed() };
            l.pid = match r.owner {
                Owner::Process(p) => p,
                Owner::File(_) => -1,
            };
        }
    }
    a.ptr(2).write(&l)?;
    Ok(0)
}

fn set_lock(a: &Args, file: &File, owner: Owner, block: bool) -> Result<u64> {
    let l: Flock = a.ptr(2).read()?;
    if owner == Owner::File(file.id) && l.pid != 0 {
        return Err(Errno::EINVAL);
    }
    match l.kind {
        F_RDLCK if !file.readable() => return Err(Errno::EBADF),
        F_WRLCK if !file.writable() => return Err(Errno::EBADF),
        F_RDLCK | F_WRLCK | F_UNLCK => {}
        _ => return Err(Errno::EINVAL),
    }
    let want = range(file, &l, owner)?;
    let locks = locks::of(file.attachments())?;
    locks.set(want, l.kind == F_UNLCK, block)?;
    // Closed while it waited: no later close would give the process' lock up.
    let closed = !a.thread.raw_file(a.i32(0)).is_ok_and(|f| f.id == file.id);
    if closed && l.kind != F_UNLCK && owner != Owner::File(file.id) {
        locks.set(want, true, false)?;
        return Err(Errno::EBADF);
    }
    Ok(0)
}

fn set_owner(file: &File, owner: sigio::Owner) -> Result<u64> {
    file.sigio.set_owner(file, owner);
    Ok(0)
}

fn dup_from(a: &Args, cloexec: bool) -> Result<u64> {
    let min = a.u64(2);
    if min >= a.thread.process.rlimit(rlimit::NOFILE) {
        return Err(Errno::EINVAL);
    }
    let files = a.thread.files();
    Ok(files.insert_from(a.thread.any_file(a.i32(0))?, cloexec, a.i32(2))? as u64)
}

fn fcntl(a: &Args) -> Result<u64> {
    let files = a.thread.files();
    let (fd, cmd) = (a.i32(0), a.number(1));
    let file = a.thread.raw_file(fd)?;
    // What works on O_PATH descriptors too.
    match cmd {
        Ok(Command::DupFd) => return dup_from(a, false),
        Ok(Command::DupFdCloexec) => return dup_from(a, true),
        Ok(Command::GetFd) => return Ok(u64::from(files.cloexec(fd)?)),
        Ok(Command::SetFd) => return files.set_cloexec(fd, a.u64(2) & 1 != 0).map(|()| 0),
        Ok(Command::GetFlags) => {
            return Ok(u64::from((file.flags() | OpenFlags::LARGEFILE.when(file.inode.is_some())).bits()));
        }
        Ok(Command::DupFdQuery) => return Ok(u64::from(Arc::ptr_eq(&file, &a.thread.any_file(a.i32(2))?))),
        _ if file.flags().contains(OpenFlags::PATH) => return Err(Errno::EBADF),
        _ => {}
    }
    let (process, ofd) = (Owner::Process(a.thread.process.pid), Owner::File(file.id));
    match cmd? {
        Command::SetFlags => {
            let new: OpenFlags = a.known_flags(2);
            if (new - file.flags()).contains(OpenFlags::NOATIME)
                && let Some(i) = &file.inode
            {
                crate::objects::lookup::perm::owner(&a.thread.cred(), &**i)?;
            }
            file.change_flags(fd, new);
            Ok(0)
        }
        Command::GetLock => get_lock(a, &file, process),
        Command::SetLock => set_lock(a, &file, process, false),
        Command::SetLockWait => set_lock(a, &file, process, true),
        Command::OfdGetLock => get_lock(a, &file, ofd),
        Command::OfdSetLock => set_lock(a, &file, ofd, false),
        Command::OfdSetLockWait => set_lock(a, &file, ofd, true),
        Command::SetOwner => set_owner(&file, sigio::Owner::from_number(a.i32(2))?),
        Command::GetOwner => Ok(i64::from(file.sigio.owner().number()).cast_unsigned()),
        Command::SetOwnerEx => set_owner(&file, sigio::Owner::from_pair(a.ptr(2).read()?)?),
        Command::GetOwnerEx => {
            a.ptr(2).write(&file.sigio.owner().pair())?;
            Ok(0)
        }
        Command::SetSignal => {
            if a.u64(2) > 64 {
                return Err(Errno::EINVAL);
            }
            file.sigio.set_signal(&**file, a.i32(2));
            Ok(0)
        }
        Command::GetSignal => Ok(u64::from(file.sigio.signal().unsigned_abs())),
        Command::Notify => crate::objects::ipc::dnotify::set(&file, fd, a.u32(2)).map(|()| 0),
        Command::GetLease => Ok(F_UNLCK as u64),
        Command::SetPipeSize => pipe::resize(&file, a.u32(2)),
        Command::GetPipeSize => pipe::size(&file),
        Command::AddSeals => memfd::add_seals(&file, a.u64(2)),
        Command::GetSeals => memfd::seals(&file),
        Command::DupFd
        | Command::DupFdCloexec
        | Command::DupFdQuery
        | Command::GetFd
        | Command::SetFd
        | Command::GetFlags => Err(Errno::EINVAL),
    }
}

fn flock(a: &Args) -> Result<u64> {
    const NB: u32 = 4;
    let file = a.file(0)?;
    // Linux no longer has mandatory locks, and takes requests for them for done.
    const MAND: u32 = 32;
    if a.u32(1) & MAND != 0 {
        return Ok(0);
    }
    let lock = match Flocking::try_from(a.u32(1) & !NB)? {
        Flocking::Shared => Some(false),
        Flocking::Exclusive => Some(true),
        Flocking::Unlock => None,
    };
    locks::of(file.attachments())?.flock(file.id, lock, a.u32(1) & NB == 0)?;
    Ok(0)
}

fn ioctl(a: &Args, RawFd(fd): RawFd, Request(request): Request, argument: u64) -> Result<u64> {
    const FIONBIO: u32 = 0x5421;
    const FIONCLEX: u32 = 0x5450;
    const FIOCLEX: u32 = 0x5451;
    const FIOASYNC: u32 = 0x5452;
    const FIOQSIZE: u32 = 0x5460;
    let file = a.thread.file(fd)?;
    let flag = |bit: OpenFlags| -> Result<u64> {
        let on: i32 = UserPtr(argument).read()?;
        let old = file.flags();
        file.change_flags(fd, if on != 0 { old | bit } else { old - bit });
        Ok(0)
    };
    match request {
        FIOCLEX => a.thread.files().set_cloexec(fd, true).map(|()| 0),
        FIONCLEX => a.thread.files().set_cloexec(fd, false).map(|()| 0),
        FIONBIO => flag(OpenFlags::NONBLOCK),
        FIOASYNC => flag(OpenFlags::ASYNC),
        FIOQSIZE if file.inode.as_ref().is_some_and(|i| i.kind() == FileType::Regular) => {
            File::copy_out(argument, &crate::objects::lookup::caller::file_stat(&file)?.size)
        }
        cmd => file.ops().ioctl(&file, cmd, argument),
    }
}

/// fcntl, flock and ioctl.
pub const CALLS: &[Syscall] = &[
    call(nr::FCNTL, fcntl, Full, &[Fd, Int, Hex], "no leases"),
    call(nr::FLOCK, flock, Full, &[Fd, Int], ""),
    call!(nr::IOCTL, ioctl(RawFd, Request, u64), Full, ""),
];
