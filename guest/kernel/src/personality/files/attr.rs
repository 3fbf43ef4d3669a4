//! System calls that change attributes and sizes: chmod, chown, utimens, truncate, fallocate; and fsync.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::core::numbers::numbers;
use crate::memory::PAGE;
use crate::objects::ipc::inotify::{InotifyMask, file_event, path_event, size_event};
use crate::objects::lookup::caller::{Caller, Name, Target, at};
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm;
use crate::objects::lookup::perm::{MAY_WRITE, cap};
use crate::objects::vfs::file::File;
use crate::objects::vfs::flags::{AtFlags, FallocateFlags};
use crate::objects::vfs::inode::{FileType, SetAttr, Time};
use crate::personality::Support::{Full, Partial};
use crate::personality::args::{Bits, FileMode, Id, NoFlags, Number, RawFd, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::process::signal::{SigInfo, send_thread, sig};
use crate::{Errno, Result};

/// Tells watchers of changed attributes.
pub(super) fn tell(t: &Target) {
    match t {
        Target::Path(p) => path_event(p, InotifyMask::ATTRIB),
        Target::File(f) => file_event(f, InotifyMask::ATTRIB),
    }
}

/// Whether the caller has a capability for this file.
fn capable_over(c: &Caller, inode: &dyn crate::objects::vfs::Inode, cap: u32) -> bool {
    let p = inode.perm();
    c.cred.capable_over(p.uid, p.gid, cap)
}

fn set_mode(c: &Caller, t: &Target, mode: u32) -> Result<u64> {
    let inode = t.inode(Errno::EINVAL)?;
    t.writable()?;
    if inode.kind() == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    perm::owner(&c.cred, &**inode)?;
    let mut mode = mode & 0o7777;
    if mode & 0o2000 != 0 && !c.cred.in_group(inode.perm().gid) && !capable_over(c, &**inode, cap::FSETID) {
        mode &= !0o2000;
    }
    inode.set_attr(&SetAttr { mode: Some(mode), ..SetAttr::default() })?;
    tell(t);
    Ok(0)
}

/// The file of a descriptor as a target; O_PATH descriptors are EBADF.
fn fd_target(a: &Args, fd: i32) -> Result<Target> {
    let f = a.thread.file(fd)?;
    Ok(f.path.clone().map_or(Target::File(f.clone()), Target::Path))
}

fn chmod(a: &Args, UserStr(path): UserStr, FileMode(mode): FileMode) -> Result<u64> {
    let name = Name::read(path)?;
    let c = Caller::new(&**a.thread);
    set_mode(&c, &c.target(at::FDCWD, name.bytes(), AtFlags::empty())?, mode)
}

fn fchmod(a: &Args, RawFd(fd): RawFd, FileMode(mode): FileMode) -> Result<u64> {
    set_mode(&Caller::new(&**a.thread), &fd_target(a, fd)?, mode)
}

fn fchmodat(a: &Args, RawFd(dirfd): RawFd, UserStr(path): UserStr, FileMode(mode): FileMode) -> Result<u64> {
    let name = Name::read(path)?;
    let c = Caller::new(&**a.thread);
    set_mode(&c, &c.target(dirfd, name.bytes(), AtFlags::empty())?, mode)
}

fn fchmodat2(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    FileMode(mode): FileMode,
    flags: Bits<AtFlags>,
) -> Result<u64> {
    let flags = flags.of(AtFlags::TARGET)?;
    let name = Name::read(path)?;
    let c = Caller::new(&**a.thread);
    set_mode(&c, &c.target(dirfd, name.bytes(), flags)?, mode)
}

fn set_owner(c: &Caller, t: &Target, uid: Id, gid: Id) -> Result<u64> {
    let inode = t.inode(Errno::EINVAL)?;
    t.writable()?;
    let user = &c.cred.user;
    let uid = uid.given().map(|n| user.kernel_uid(n).ok_or(Errno::EINVAL)).transpose()?;
    let gid = gid.given().map(|n| user.kernel_gid(n).ok_or(Errno::EINVAL)).transpose()?;
    let p = inode.perm();
    if !c.cred.capable_over(p.uid, p.gid, cap::CHOWN) {
        let own = c.cred.fsuid == p.uid;
        let uid_ok = uid.is_none_or(|u| own && u == p.uid);
        let gid_ok = gid.is_none_or(|g| own && (g == p.gid || c.cred.in_group(g)));
        if !uid_ok || !gid_ok {
            return Err(Errno::EPERM);
        }
    }
    let mut attr = SetAttr { uid, gid, ..SetAttr::default() };
    // A change of owner takes the privileges of the old one away, even one that changes nothing.
    if inode.kind() != FileType::Directory && p.mode & 0o6000 != 0 {
        attr.mode = Some(p.mode & 0o7777 & !perm::lost_setid(&c.cred, p));
    }
    inode.set_attr(&attr)?;
    tell(t);
    Ok(0)
}

fn chown_at(a: &Args, dirfd: i32, path: UserPtr, uid: Id, gid: Id, flags: AtFlags) -> Result<u64> {
    let name = Name::read(path)?;
    let c = Caller::new(&**a.thread);
    set_owner(&c, &c.target(dirfd, name.bytes(), flags)?, uid, gid)
}

fn chown(a: &Args, UserStr(path): UserStr, uid: Id, gid: Id) -> Result<u64> {
    chown_at(a, at::FDCWD, path, uid, gid, AtFlags::empty())
}

fn lchown(a: &Args, UserStr(path): UserStr, uid: Id, gid: Id) -> Result<u64> {
    chown_at(a, at::FDCWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
}

fn fchownat(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    uid: Id,
    gid: Id,
    flags: Bits<AtFlags>,
) -> Result<u64> {
    chown_at(a, dirfd, path, uid, gid, flags.of(AtFlags::TARGET)?)
}

fn fchown(a: &Args, RawFd(fd): RawFd, uid: Id, gid: Id) -> Result<u64> {
    set_owner(&Caller::new(&**a.thread), &fd_target(a, fd)?, uid, gid)
}

const SECOND: i64 = 1_000_000_000;
const UTIME_NOW: i64 = (1 << 30) - 1;
const UTIME_OMIT: i64 = (1 << 30) - 2;

/// What to do to one time stamp.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stamp {
    Now,
    Omit,
    At(Time),
}

fn timespec(p: UserPtr) -> Result<Stamp> {
    let [sec, nsec]: [i64; 2] = p.read()?;
    match nsec {
        UTIME_NOW => Ok(Stamp::Now),
        UTIME_OMIT => Ok(Stamp::Omit),
        0..SECOND => Ok(Stamp::At(sec.saturating_mul(SECOND).saturating_add(nsec))),
        _ => Err(Errno::EINVAL),
    }
}

fn timeval(p: UserPtr) -> Result<Stamp> {
    let [sec, usec]: [i64; 2] = p.read()?;
    if !(0..1_000_000).contains(&usec) {
        return Err(Errno::EINVAL);
    }
    Ok(Stamp::At(sec.saturating_mul(SECOND).saturating_add(usec * 1000)))
}

fn set_times(c: &Caller, t: &Target, times: [Stamp; 2]) -> Result<u64> {
    if times == [Stamp::Omit; 2] {
        return Ok(0);
    }
    let inode = t.inode(Errno::EINVAL)?;
    t.writable()?;
    if times == [Stamp::Now; 2] {
        if perm::owner(&c.cred, &**inode).is_err() {
            perm::check(&c.cred, &**inode, MAY_WRITE)?;
        }
    } else {
        perm::owner(&c.cred, &**inode)?;
    }
    let now = crate::objects::rootfs::now();
    let value = |s| match s {
        Stamp::Now => Some(now),
        Stamp::Omit => None,
        Stamp::At(t) => Some(t),
    };
    inode.set_attr(&SetAttr { atime: value(times[0]), mtime: value(times[1]), ..SetAttr::default() })?;
    tell(t);
    Ok(0)
}

fn two(p: UserPtr, one: fn(UserPtr) -> Result<Stamp>) -> Result<[Stamp; 2]> {
    if p.is_null() { Ok([Stamp::Now; 2]) } else { Ok([one(p)?, one(p.add(16))?]) }
}

fn utime(a: &Args, UserStr(path): UserStr, user_times: UserPtr) -> Result<u64> {
    let name = Name::read(path)?;
    let times = if user_times.is_null() {
        [Stamp::Now; 2]
    } else {
        let t: [i64; 2] = user_times.read()?;
        t.map(|s| Stamp::At(s.saturating_mul(SECOND)))
    };
    let c = Caller::new(&**a.thread);
    set_times(&c, &c.target(at::FDCWD, name.bytes(), AtFlags::empty())?, times)
}

fn utimes(a: &Args, UserStr(path): UserStr, user_times: UserPtr) -> Result<u64> {
    let name = Name::read(path)?;
    let times = two(user_times, timeval)?;
    let c = Caller::new(&**a.thread);
    set_times(&c, &c.target(at::FDCWD, name.bytes(), AtFlags::empty())?, times)
}

fn futimesat(a: &Args, RawFd(dirfd): RawFd, UserStr(path): UserStr, user_times: UserPtr) -> Result<u64> {
    let times = two(user_times, timeval)?;
    let c = Caller::new(&**a.thread);
    if path.is_null() {
        return set_times(&c, &fd_target(a, dirfd)?, times);
    }
    let name = Name::read(path)?;
    set_times(&c, &c.target(dirfd, name.bytes(), AtFlags::empty())?, times)
}

fn utimensat(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    user_times: UserPtr,
    flags: Bits<AtFlags>,
) -> Result<u64> {
    let flags = flags.of(AtFlags::TARGET)?;
    let times = two(user_times, timespec)?;
    let c = Caller::new(&**a.thread);
    if path.is_null() {
        if !flags.is_empty() {
            return Err(Errno::EINVAL);
        }
        return set_times(&c, &fd_target(a, dirfd)?, times);
    }
    let name = Name::read(path)?;
    set_times(&c, &c.target(dirfd, name.bytes(), flags)?, times)
}

/// Checks a new size against RLIMIT_FSIZE: SIGXFSZ and EFBIG.
fn size_limit(a: &Args, size: u64) -> Result<()> {
    if size > a.thread.process.rlimit(crate::process::task::Resource::Fsize) {
        send_thread(&a.thread, SigInfo::kernel(sig::SIGXFSZ))?;
        return Err(Errno::EFBIG);
    }
    Ok(())
}

fn truncate_path(c: &Caller, p: &Path, size: u64) -> Result<u64> {
    match p.dentry().kind() {
        FileType::Regular => {}
        FileType::Directory => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    p.mount().writable()?;
    perm::check(&c.cred, &**p.inode(), MAY_WRITE)?;
    p.inode().set_attr(&SetAttr { size: Some(size), ..SetAttr::default() })?;
    size_event(p);
    Ok(0)
}

fn truncate(a: &Args, UserStr(path): UserStr, length: i64) -> Result<u64> {
    let size = u64::try_from(length).map_err(|_| Errno::EINVAL)?;
    let name = Name::read(path)?;
    let c = Caller::new(&**a.thread);
    let p = c.find(at::FDCWD, name.bytes(), true)?;
    if p.dentry().kind() == FileType::Regular {
        size_limit(a, size)?;
    }
    truncate_path(&c, &p, size)
}

fn ftruncate(a: &Args, RawFd(fd): RawFd, length: i64) -> Result<u64> {
    let size = u64::try_from(length).map_err(|_| Errno::EINVAL)?;
    let f = a.thread.file(fd)?;
    if !f.writable() {
        return Err(Errno::EINVAL);
    }
    size_limit(a, size)?;
    f.ops().truncate(&f, size)?;
    match &f.path {
        Some(p) => size_event(p),
        None => file_event(&f, InotifyMask::MODIFY),
    }
    Ok(0)
}

fn fallocate(a: &Args, RawFd(fd): RawFd, mode: Bits<FallocateFlags>, offset: i64, len: i64) -> Result<u64> {
    let f = a.thread.file(fd)?;
    if offset < 0 || len <= 0 {
        return Err(Errno::EINVAL);
    }
    if !f.writable() {
        return Err(Errno::EBADF);
    }
    if offset.checked_add(len).is_none() {
        return Err(Errno::EFBIG);
    }
    match f.inode.as_ref().map(|i| i.kind()) {
        Some(FileType::Regular) => {}
        Some(FileType::Directory) => return Err(Errno::EISDIR),
        Some(FileType::Fifo) => return Err(Errno::ESPIPE),
        None if !f.seekable() => return Err(Errno::ESPIPE),
        None => {}
        Some(_) => return Err(Errno::ENODEV),
    }
    let r = f.ops().fallocate(&f, mode.any(), offset as u64, len as u64);
    if r == Err(Errno::EFBIG) {
        send_thread(&a.thread, SigInfo::kernel(sig::SIGXFSZ))?;
    }
    r.map(|()| 0)
}

fn fsync(a: &Args, RawFd(fd): RawFd) -> Result<u64> {
    let f = a.thread.file(fd)?;
    f.ops().fsync(&f)?;
    Ok(0)
}

fn syncfs(a: &Args, RawFd(fd): RawFd) -> Result<u64> {
    let f = a.thread.file(fd)?;
    if let Some(node) = f.downcast::<crate::objects::storage::Node>() {
        node.sync_all()?;
    } else if f.downcast::<crate::objects::rootfs::Node>().is_some() {
        f.ops().fsync(&f)?;
    }
    Ok(0)
}

bitflags::bitflags! {
    /// Flags of `sync_file_range(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct SyncRangeFlags: u32 {
        const WAIT_BEFORE = 1;
        const WRITE = 2;
        const WAIT_AFTER = 4;
    }
}

fn sync_file_range(
    a: &Args,
    RawFd(fd): RawFd,
    offset: i64,
    count: i64,
    flags: Bits<SyncRangeFlags>,
) -> Result<u64> {
    let f = a.thread.file(fd)?;
    if offset < 0 || count < 0 {
        return Err(Errno::EINVAL);
    }
    flags.checked()?;
    seekable(&f)?;
    // More than is asked for.
    let kept = f.downcast::<crate::objects::storage::Node>().is_some()
        || f.downcast::<crate::objects::rootfs::Node>().is_some();
    if kept {
        f.ops().fsync(&f)?;
    }
    Ok(0)
}

fn seekable(f: &Arc<File>) -> Result<()> {
    if f.seekable() { Ok(()) } else { Err(Errno::ESPIPE) }
}

numbers! {
    /// What `posix_fadvise(2)` tells of the reads to come.
    enum FileAdvice {
        Normal = 0,
        Random = 1,
        Sequential = 2,
        WillNeed = 3,
        DontNeed = 4,
        NoReuse = 5,
    }
}

fn fadvise64(
    a: &Args,
    RawFd(fd): RawFd,
    _offset: i64,
    length: i64,
    advice: Number<FileAdvice>,
) -> Result<u64> {
    let f = a.thread.file(fd)?;
    seekable(&f)?;
    if length < 0 {
        return Err(Errno::EINVAL);
    }
    advice.get().map(|_| 0)
}

fn readahead(a: &Args, RawFd(fd): RawFd, _offset: i64, _count: i64) -> Result<u64> {
    let f = a.thread.file(fd)?;
    if !f.readable() {
        return Err(Errno::EBADF);
    }
    match f.inode.as_ref().map(|i| i.kind()) {
        Some(FileType::Regular) => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

doppel_machine::pod_struct! {
    /// `struct cachestat_range`.
    pub struct CacheRange {
        /// First byte.
        pub offset: u64,
        /// Bytes; 0: up to the end.
        pub len: u64,
    }
}

doppel_machine::pod_struct! {
    /// `struct cachestat`.
    pub struct CacheStat {
        /// Pages in memory.
        pub cache: u64,
        /// Of these, to be written.
        pub dirty: u64,
        /// Being written.
        pub writeback: u64,
        /// No longer in memory.
        pub evicted: u64,
        /// Those of them that went a short while ago.
        pub recently_evicted: u64,
    }
}

fn cachestat(a: &Args, RawFd(fd): RawFd, range: UserPtr, out: UserPtr, flags: Bits<NoFlags>) -> Result<u64> {
    let f = a.thread.file(fd)?;
    let range: CacheRange = range.read()?;
    // Others learn nothing of what is read.
    let c = Caller::new(&**a.thread);
    if let Some(inode) = &f.inode
        && !f.writable()
        && perm::owner(&c.cred, &**inode).is_err()
        && perm::check(&c.cred, &**inode, MAY_WRITE).is_err()
    {
        return Err(Errno::EPERM);
    }
    flags.checked()?;
    let regular = f.inode.as_ref().filter(|i| i.kind() == FileType::Regular);
    let pages = regular.map_or(0, |inode| inode.stat().size.div_ceil(PAGE));
    let end = match range.len {
        0 => u64::MAX,
        len => range.offset.saturating_add(len).div_ceil(PAGE),
    };
    let cache = pages.min(end).saturating_sub(range.offset / PAGE);
    out.write(&CacheStat { cache, dirty: 0, writeback: 0, evicted: 0, recently_evicted: 0 })?;
    Ok(0)
}

/// chmod, chown, utimens, truncate and the like.
pub const CALLS: &[Syscall] = &[
    call!(nr::CHMOD, chmod(UserStr, FileMode), Full, ""),
    call!(nr::FCHMOD, fchmod(RawFd, FileMode), Full, ""),
    call!(nr::FCHMODAT, fchmodat(RawFd, UserStr, FileMode), Full, ""),
    call!(nr::FCHMODAT2, fchmodat2(RawFd, UserStr, FileMode, Bits<AtFlags>), Full, ""),
    call!(nr::CHOWN, chown(UserStr, Id, Id), Full, ""),
    call!(nr::LCHOWN, lchown(UserStr, Id, Id), Full, ""),
    call!(nr::FCHOWN, fchown(RawFd, Id, Id), Full, ""),
    call!(nr::FCHOWNAT, fchownat(RawFd, UserStr, Id, Id, Bits<AtFlags>), Full, ""),
    call!(nr::UTIME, utime(UserStr, UserPtr), Full, ""),
    call!(nr::UTIMES, utimes(UserStr, UserPtr), Full, ""),
    call!(nr::FUTIMESAT, futimesat(RawFd, UserStr, UserPtr), Full, ""),
    call!(nr::UTIMENSAT, utimensat(RawFd, UserStr, UserPtr, Bits<AtFlags>), Full, ""),
    call!(nr::TRUNCATE, truncate(UserStr, i64), Full, ""),
    call!(nr::FTRUNCATE, ftruncate(RawFd, i64), Full, ""),
    call!(
        nr::FALLOCATE,
        fallocate(RawFd, Bits<FallocateFlags>, i64, i64),
        Full,
        "no COLLAPSE_RANGE, INSERT_RANGE, UNSHARE_RANGE",
    ),
    call!(nr::FSYNC, fsync(RawFd), Full, "files outside of volumes are in memory"),
    call!(nr::FDATASYNC, fsync(RawFd), Full, "files outside of volumes are in memory"),
    call!(nr::SYNCFS, syncfs(RawFd), Full, "files outside of volumes are in memory"),
    call!(
        nr::SYNC_FILE_RANGE,
        sync_file_range(RawFd, i64, i64, Bits<SyncRangeFlags>),
        Full,
        "files outside of volumes are in memory"
    ),
    call!(nr::FADVISE64, fadvise64(RawFd, i64, i64, Number<FileAdvice>), Full, "accepted without effect"),
    call!(nr::READAHEAD, readahead(RawFd, i64, i64), Full, "accepted without effect"),
    call!(
        nr::CACHESTAT,
        cachestat(RawFd, UserPtr, UserPtr, Bits<NoFlags>),
        Partial,
        "says that everything is in memory, and nothing to be written"
    ),
];
