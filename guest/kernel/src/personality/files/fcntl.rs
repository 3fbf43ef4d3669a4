//! fcntl, flock and ioctl.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;

use crate::core::numbers::numbers;
use crate::objects::block::loops;
use crate::objects::ipc::dnotify::{self, DnotifyMask};
use crate::objects::ipc::{memfd, pipe};
use crate::objects::vfs::Whence;
use crate::objects::vfs::attach::locks;
use crate::objects::vfs::attach::locks::{Owner, Range};
use crate::objects::vfs::file::File;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::inode::FileType;
use crate::objects::vfs::sigio;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, Number, RawFd, Request};
use crate::personality::{Args, Syscall, call};
use crate::process::namespaces::numbers;
use crate::process::task::Resource;
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

bitflags::bitflags! {
    /// `LOCK_` operations of `flock(2)`: one of the first three, perhaps with NB.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Flocking: u32 {
        const SHARED = 1;
        const EXCLUSIVE = 2;
        const NB = 4;
        const UNLOCK = 8;
        const MAND = 32;
    }
}

bitflags::bitflags! {
    /// Descriptor flags of F_SETFD.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct FdFlags: u32 {
        const CLOEXEC = 1;
    }
}

numbers! {
    /// `l_type` of `struct flock`.
    enum LockType {
        Read = 0,
        Write = 1,
        Unlock = 2,
    }
}

impl Flock {
    /// What is asked for, of the file's range it names.
    fn lock_type(&self) -> Result<LockType> {
        LockType::try_from(u32::from(self.kind.cast_unsigned()))
    }
}

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
    Ok(Range { owner, start, end, exclusive: l.kind == LockType::Write as i16 })
}

fn get_lock(file: &File, user: UserPtr, owner: Owner) -> Result<u64> {
    let mut l: Flock = user.read()?;
    let ofd = matches!(owner, Owner::File(_));
    if ofd && l.pid != 0 {
        return Err(Errno::EINVAL);
    }
    let own = match l.lock_type()? {
        LockType::Read | LockType::Write => false,
        LockType::Unlock if ofd => true,
        LockType::Unlock => return Err(Errno::EINVAL),
    };
    let want = range(file, &l, owner)?;
    let locks = locks::of(file.attachments())?;
    // F_UNLCK asks what the open file itself has locked.
    let found = match file.outside_locks() {
        _ if own => locks.own(&want),
        Some(outside) => locks.conflict_with(outside, &want)?,
        None => locks.conflict(&want),
    };
    match found {
        None => l.kind = LockType::Unlock as i16,
        Some(r) => {
            l.kind = if r.exclusive { LockType::Write } else { LockType::Read } as i16;
            l.whence = Whence::Set as i16;
            l.start = r.start.cast_signed();
            l.len = if r.end == i64::MAX as u64 { 0 } else { (r.end - r.start + 1).cast_signed() };
            l.pid = match r.owner {
                Owner::Process(p) => numbers::shown(p),
                Owner::File(_) => -1,
            };
        }
    }
    user.write(&l)?;
    Ok(0)
}

fn set_lock(a: &Args, fd: i32, file: &File, user: UserPtr, owner: Owner, block: bool) -> Result<u64> {
    let l: Flock = user.read()?;
    if owner == Owner::File(file.id) && l.pid != 0 {
        return Err(Errno::EINVAL);
    }
    let kind = l.lock_type()?;
    match kind {
        LockType::Read if !file.readable() => return Err(Errno::EBADF),
        LockType::Write if !file.writable() => return Err(Errno::EBADF),
        _ => {}
    }
    let unlock = kind == LockType::Unlock;
    let want = range(file, &l, owner)?;
    let locks = locks::of(file.attachments())?;
    let set = |unlock, block| match file.outside_locks() {
        Some(outside) => locks.set_with(outside, want, unlock, block),
        None => locks.set(want, unlock, block),
    };
    set(unlock, block)?;
    // Closed while it waited: no later close would give the process' lock up.
    let closed = !a.thread.raw_file(fd).is_ok_and(|f| f.id == file.id);
    if closed && !unlock && owner != Owner::File(file.id) {
        set(true, false)?;
        return Err(Errno::EBADF);
    }
    Ok(0)
}

fn set_owner(file: &File, owner: sigio::Owner) -> Result<u64> {
    file.sigio.set_owner(file, owner);
    Ok(0)
}

fn dup_from(a: &Args, fd: i32, min: u64, cloexec: bool) -> Result<u64> {
    if min >= a.thread.process.rlimit(Resource::Nofile) {
        return Err(Errno::EINVAL);
    }
    let files = a.thread.files();
    Ok(files.insert_from(a.thread.any_file(fd)?, cloexec, min as i32)? as u64)
}

fn fcntl(a: &Args, RawFd(fd): RawFd, command: Number<Command>, arg: u64) -> Result<u64> {
    let files = a.thread.files();
    let cmd = command.get();
    let (number, user) = (arg as i32, UserPtr(arg));
    let file = a.thread.raw_file(fd)?;
    // What works on O_PATH descriptors too.
    match cmd {
        Ok(Command::DupFd) => return dup_from(a, fd, arg, false),
        Ok(Command::DupFdCloexec) => return dup_from(a, fd, arg, true),
        Ok(Command::GetFd) => return Ok(u64::from(files.cloexec(fd)?)),
        Ok(Command::SetFd) => {
            let flags = FdFlags::from_bits_truncate(arg as u32);
            return files.set_cloexec(fd, flags.contains(FdFlags::CLOEXEC)).map(|()| 0);
        }
        Ok(Command::GetFlags) => {
            return Ok(u64::from((file.flags() | OpenFlags::LARGEFILE.when(file.inode.is_some())).bits()));
        }
        Ok(Command::DupFdQuery) => return Ok(u64::from(Arc::ptr_eq(&file, &a.thread.any_file(number)?))),
        _ if file.flags().contains(OpenFlags::PATH) => return Err(Errno::EBADF),
        _ => {}
    }
    let (process, ofd) = (Owner::Process(a.thread.process.pid), Owner::File(file.id));
    match cmd? {
        Command::SetFlags => {
            let new = OpenFlags::from_bits_truncate(arg as u32);
            if (new - file.flags()).contains(OpenFlags::NOATIME)
                && let Some(i) = &file.inode
            {
                crate::objects::lookup::perm::owner(&a.thread.cred(), &**i)?;
            }
            file.change_flags(fd, new);
            Ok(0)
        }
        Command::GetLock => get_lock(&file, user, process),
        Command::SetLock => set_lock(a, fd, &file, user, process, false),
        Command::SetLockWait => set_lock(a, fd, &file, user, process, true),
        Command::OfdGetLock => get_lock(&file, user, ofd),
        Command::OfdSetLock => set_lock(a, fd, &file, user, ofd, false),
        Command::OfdSetLockWait => set_lock(a, fd, &file, user, ofd, true),
        Command::SetOwner => set_owner(&file, sigio::Owner::from_number(number)?),
        Command::GetOwner => Ok(i64::from(file.sigio.owner().number()).cast_unsigned()),
        Command::SetOwnerEx => set_owner(&file, sigio::Owner::from_pair(user.read()?)?),
        Command::GetOwnerEx => {
            user.write(&file.sigio.owner().pair())?;
            Ok(0)
        }
        Command::SetSignal => {
            if arg > 64 {
                return Err(Errno::EINVAL);
            }
            file.sigio.set_signal(&**file, number);
            Ok(0)
        }
        Command::GetSignal => Ok(u64::from(file.sigio.signal().unsigned_abs())),
        Command::Notify => dnotify::set(&file, fd, DnotifyMask::from_bits_retain(arg as u32)).map(|()| 0),
        Command::GetLease => Ok(LockType::Unlock as u64),
        Command::SetPipeSize => pipe::resize(&file, arg as u32),
        Command::GetPipeSize => pipe::size(&file),
        Command::AddSeals => memfd::add_seals(&file, arg),
        Command::GetSeals => memfd::seals(&file),
        Command::DupFd
        | Command::DupFdCloexec
        | Command::DupFdQuery
        | Command::GetFd
        | Command::SetFd
        | Command::GetFlags => Err(Errno::EINVAL),
    }
}

fn flock(a: &Args, RawFd(fd): RawFd, operation: Bits<Flocking>) -> Result<u64> {
    let operation = operation.any();
    let file = a.thread.file(fd)?;
    // Linux no longer has mandatory locks, and takes requests for them for done.
    if operation.contains(Flocking::MAND) {
        return Ok(0);
    }
    let lock = match operation - Flocking::NB {
        Flocking::SHARED => Some(false),
        Flocking::EXCLUSIVE => Some(true),
        Flocking::UNLOCK => None,
        _ => return Err(Errno::EINVAL),
    };
    let (locks, block) = (locks::of(file.attachments())?, !operation.contains(Flocking::NB));
    match file.outside_locks() {
        Some(outside) => locks.flock_with(outside, file.id, lock, block)?,
        None => locks.flock(file.id, lock, block)?,
    }
    Ok(0)
}

numbers! {
    /// Requests of `ioctl(2)` that all files know; the others are the file's own.
    enum CommonRequest {
        SetNonblocking = 0x5421,
        NoCloexec = 0x5450,
        Cloexec = 0x5451,
        SetAsync = 0x5452,
        Size = 0x5460,
    }
}

fn ioctl(a: &Args, RawFd(fd): RawFd, Request(request): Request, argument: u64) -> Result<u64> {
    let file = a.thread.file(fd)?;
    let flag = |bit: OpenFlags| -> Result<u64> {
        let on: i32 = UserPtr(argument).read()?;
        let old = file.flags();
        file.change_flags(fd, if on != 0 { old | bit } else { old - bit });
        Ok(0)
    };
    match CommonRequest::try_from(request) {
        Ok(CommonRequest::Cloexec) => a.thread.files().set_cloexec(fd, true).map(|()| 0),
        Ok(CommonRequest::NoCloexec) => a.thread.files().set_cloexec(fd, false).map(|()| 0),
        Ok(CommonRequest::SetNonblocking) => flag(OpenFlags::NONBLOCK),
        Ok(CommonRequest::SetAsync) => flag(OpenFlags::ASYNC),
        Ok(CommonRequest::Size) if file.inode.as_ref().is_some_and(|i| i.kind() == FileType::Regular) => {
            File::copy_out(argument, &crate::objects::lookup::caller::file_stat(&file)?.size)
        }
        _ => match loops::other_file(&file, request, argument)? {
            Some(other) => loops::bind(&file, request, argument, a.thread.any_file(other)?),
            None => file.ops().ioctl(&file, request, argument),
        },
    }
}

/// fcntl, flock and ioctl.
pub const CALLS: &[Syscall] = &[
    call!(nr::FCNTL, fcntl(RawFd, Number<Command>, u64), Full, "no leases"),
    call!(nr::FLOCK, flock(RawFd, Bits<Flocking>), Full, ""),
    call!(nr::IOCTL, ioctl(RawFd, Request, u64), Full, ""),
];
