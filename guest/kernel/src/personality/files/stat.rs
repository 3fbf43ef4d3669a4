//! System calls that tell about files.

use doppel_abi_linux::syscalls::nr;
use doppel_machine::shield;
use doppel_machine::user::UserPtr;

use crate::core::namespace::{Kind, user};
use crate::objects::lookup::caller::{Caller, Name, Target, at, file_stat};
use crate::objects::lookup::fast::peek;
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm;
use crate::objects::vfs::devices::split;
use crate::objects::vfs::file::File;
use crate::objects::vfs::flags::{AtFlags, MountFlags};
use crate::objects::vfs::inode::{Stat, StatFs, Time};
use crate::objects::vfs::mount::Mount;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, RawFd, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::process::namespaces::nsfs::NsFile;
use crate::process::task::Cred;
use crate::{Errno, Result};

doppel_machine::pod_struct! {
    /// `struct stat`.
    pub struct UserStat {
        /// See `stat(3type)`.
        pub dev: u64,
        /// See `stat(3type)`.
        pub ino: u64,
        /// See `stat(3type)`.
        pub nlink: u64,
        /// See `stat(3type)`.
        pub mode: u32,
        /// See `stat(3type)`.
        pub uid: u32,
        /// See `stat(3type)`.
        pub gid: u32,
        /// Padding.
        pub pad: u32,
        /// See `stat(3type)`.
        pub rdev: u64,
        /// See `stat(3type)`.
        pub size: i64,
        /// See `stat(3type)`.
        pub blksize: i64,
        /// See `stat(3type)`.
        pub blocks: i64,
        /// Access, modification, change time: seconds and nanoseconds.
        pub times: [i64; 6],
        /// Unused.
        pub unused: [i64; 3],
    }
}

doppel_machine::pod_struct! {
    /// `struct statx`.
    pub struct UserStatx {
        /// See `statx(2)`.
        pub mask: u32,
        /// See `statx(2)`.
        pub blksize: u32,
        /// See `statx(2)`.
        pub attributes: u64,
        /// See `statx(2)`.
        pub nlink: u32,
        /// See `statx(2)`.
        pub uid: u32,
        /// See `statx(2)`.
        pub gid: u32,
        /// See `statx(2)`.
        pub mode: u16,
        /// Padding.
        pub pad: u16,
        /// See `statx(2)`.
        pub ino: u64,
        /// See `statx(2)`.
        pub size: u64,
        /// See `statx(2)`.
        pub blocks: u64,
        /// See `statx(2)`.
        pub attributes_mask: u64,
        /// Access, birth, change, modification: 16 bytes each.
        pub times: [StatxTime; 4],
        /// Major and minor of the device node, then of the file system.
        pub devices: [u32; 4],
        /// Mount.
        pub mnt_id: u64,
        /// Direct I/O alignments and room for more.
        pub spare: [u64; 13],
    }
}

doppel_machine::pod_struct! {
    /// `struct statx_timestamp`.
    pub struct StatxTime {
        /// Seconds.
        pub sec: i64,
        /// Nanoseconds.
        pub nsec: u32,
        /// Padding.
        pub pad: i32,
    }
}

doppel_machine::pod_struct! {
    /// `struct statfs`.
    pub struct UserStatfs {
        /// Magic number.
        pub kind: i64,
        /// Block size.
        pub bsize: i64,
        /// Blocks: all, free, free for users.
        pub blocks: [u64; 3],
        /// Inodes: all, free.
        pub files: [u64; 2],
        /// Id.
        pub fsid: [i32; 2],
        /// Longest name.
        pub namelen: i64,
        /// Fragment size.
        pub frsize: i64,
        /// Mount flags.
        pub flags: i64,
        /// Unused.
        pub spare: [i64; 4],
    }
}

const _: () = {
    assert!(size_of::<UserStat>() == 144, "struct stat, stat(2)");
    assert!(size_of::<UserStatx>() == 256, "struct statx, statx(2)");
    assert!(size_of::<UserStatfs>() == 120, "struct statfs, statfs(2)");
};

const SECOND: Time = 1_000_000_000;

/// The owner and the group of a file as the caller's user namespace has them.
#[inline]
fn owner_shown(a: &Args, s: &Stat) -> (u32, u32) {
    if !user::any(Kind::User) {
        return (s.uid, s.gid);
    }
    let guard = shield::read();
    let user = &a.thread.cred.get(&guard).user;
    (user.uid(s.uid), user.gid(s.gid))
}

fn put_stat(a: &Args, p: UserPtr, s: &Stat) -> Result<u64> {
    put_shown(p, s, owner_shown(a, s))
}

/// As [`put_stat`], where owner and group are known as the caller has them.
#[inline]
fn put_shown(p: UserPtr, s: &Stat, (uid, gid): (u32, u32)) -> Result<u64> {
    let mut times = [0; 6];
    for (i, t) in [s.atime, s.mtime, s.ctime].into_iter().enumerate() {
        times[2 * i] = t.div_euclid(SECOND);
        times[2 * i + 1] = t.rem_euclid(SECOND);
    }
    p.write(&UserStat {
        dev: s.dev,
        ino: s.ino,
        nlink: u64::from(s.nlink),
        mode: s.mode,
        uid,
        gid,
        pad: 0,
        rdev: s.rdev,
        size: s.size.cast_signed(),
        blksize: i64::from(s.blksize),
        blocks: s.blocks.cast_signed(),
        times,
        unused: [0; 3],
    })?;
    Ok(0)
}

/// Tells the attributes of what a name stands for: from the directory cache, if it can be.
#[inline]
fn stat_name(a: &Args, dirfd: i32, name: &[u8], flags: AtFlags, out: UserPtr) -> Result<u64> {
    let follow = !flags.contains(AtFlags::SYMLINK_NOFOLLOW);
    let mut found = Stat::default();
    // Owner and group are looked up under the walk's guard: another took a tenth of stat(2)'s time.
    let at_hand = peek(&**a.thread, dirfd, name, follow, |spot, cred| {
        let there = spot.dentry.inode().at_hand(&mut found);
        there.then(|| (cred.user.uid(found.uid), cred.user.gid(found.gid)))
    });
    match at_hand {
        Some(Ok(owner)) => put_shown(out, &found, owner),
        Some(Err(e)) => Err(e),
        None => put_stat(a, out, &stat_slow(a, dirfd, name, flags)?),
    }
}

#[cold]
fn stat_slow(a: &Args, dirfd: i32, name: &[u8], flags: AtFlags) -> Result<Stat> {
    let caller = Caller::new(&**a.thread);
    caller.stat(&caller.target(dirfd, name, flags)?)
}

#[inline]
fn stat(a: &Args, UserStr(path): UserStr, out: UserPtr) -> Result<u64> {
    let name = Name::read(path)?;
    stat_name(a, at::FDCWD, name.bytes(), AtFlags::empty(), out)
}

#[inline]
fn lstat(a: &Args, UserStr(path): UserStr, out: UserPtr) -> Result<u64> {
    let name = Name::read(path)?;
    stat_name(a, at::FDCWD, name.bytes(), AtFlags::SYMLINK_NOFOLLOW, out)
}

#[inline]
fn fstat(a: &Args, RawFd(fd): RawFd, out: UserPtr) -> Result<u64> {
    let f = a.thread.any_file(fd)?;
    put_stat(a, out, &file_stat(&f)?)
}

#[inline]
fn newfstatat(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    out: UserPtr,
    flags: Bits<AtFlags>,
) -> Result<u64> {
    let flags = flags.of(AtFlags::TARGET | AtFlags::NO_AUTOMOUNT)?;
    let name = Name::read(path)?;
    if name.bytes().is_empty() && flags.contains(AtFlags::EMPTY_PATH) && dirfd != at::FDCWD {
        let f = a.thread.any_file(dirfd)?;
        return put_stat(a, out, &file_stat(&f)?);
    }
    stat_name(a, dirfd, name.bytes(), flags, out)
}

fn statx_time(t: Time) -> StatxTime {
    StatxTime { sec: t.div_euclid(SECOND), nsec: t.rem_euclid(SECOND) as u32, pad: 0 }
}

bitflags::bitflags! {
    /// What `statx(2)` is asked for, and what it gives.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct StatxMask: u32 {
        const BASIC_STATS = 0x7ff;
        const BTIME = 0x800;
        const MNT_ID = 0x1000;
        const MNT_ID_UNIQUE = 0x4000;
        const RESERVED = 0x8000_0000;
    }
}

fn statx(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    flags: Bits<AtFlags>,
    mask: Bits<StatxMask>,
    out: UserPtr,
) -> Result<u64> {
    const MOUNT_ROOT: u64 = 0x2000;
    let flags = flags.of(AtFlags::TARGET | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_SYNC_TYPE)?;
    if flags.contains(AtFlags::STATX_SYNC_TYPE) || mask.any().contains(StatxMask::RESERVED) {
        return Err(Errno::EINVAL);
    }
    // Programs probe with a null path and AT_EMPTY_PATH.
    let name = if path.is_null() && flags.contains(AtFlags::EMPTY_PATH) && dirfd >= 0 {
        None
    } else {
        Some(Name::read(path)?)
    };
    let caller = Caller::new(&**a.thread);
    let target = caller.target(dirfd, name.as_ref().map_or(b"", Name::bytes), flags)?;
    let s = caller.stat(&target)?;
    let (mnt_id, is_root) = match &target {
        Target::Path(p) if mask.any().contains(StatxMask::MNT_ID_UNIQUE) => {
            (p.mount().unique(), alloc::sync::Arc::ptr_eq(&p.mount().root, p.dentry()))
        }
        Target::Path(p) => (p.mount().id, alloc::sync::Arc::ptr_eq(&p.mount().root, p.dentry())),
        Target::File(_) => (0, false),
    };
    let (rmajor, rminor) = split(s.rdev);
    let (major, minor) = split(s.dev);
    let (uid, gid) = owner_shown(a, &s);
    let mut given = StatxMask::BASIC_STATS | StatxMask::BTIME;
    let unique = mask.any().contains(StatxMask::MNT_ID_UNIQUE);
    given.set(if unique { StatxMask::MNT_ID_UNIQUE } else { StatxMask::MNT_ID }, mnt_id != 0);
    out.write(&UserStatx {
        mask: given.bits(),
        blksize: s.blksize,
        attributes: if is_root { MOUNT_ROOT } else { 0 },
        nlink: s.nlink,
        uid,
        gid,
        mode: s.mode as u16,
        pad: 0,
        ino: s.ino,
        size: s.size,
        blocks: s.blocks,
        attributes_mask: MOUNT_ROOT,
        times: [s.atime, s.btime, s.ctime, s.mtime].map(statx_time),
        devices: [rmajor, rminor, major, minor],
        mnt_id,
        spare: [0; 13],
    })?;
    Ok(0)
}

bitflags::bitflags! {
    /// What `access(2)` asks for: R_OK, W_OK, X_OK; F_OK is none of them. The bits are those of a file's mode.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct AccessMode: u32 {
        const EXEC = perm::MAY_EXEC;
        const WRITE = perm::MAY_WRITE;
        const READ = perm::MAY_READ;
    }
}

/// The answer, where the caller asks with its own identity and the directory cache knows the name.
fn access_cached(a: &Args, dirfd: i32, name: &[u8], mode: AccessMode, flags: AtFlags) -> Option<Result<u64>> {
    let own = |c: &Cred| c.fsuid == c.ruid && c.fsgid == c.rgid;
    if !flags.contains(AtFlags::EACCESS) && !own(a.thread.cred.get(&shield::read())) {
        return None;
    }
    let follow = !flags.contains(AtFlags::SYMLINK_NOFOLLOW);
    let found = peek(&**a.thread, dirfd, name, follow, |spot, cred| {
        let runs = !mode.contains(AccessMode::EXEC) || !spot.mount.flags().contains(MountFlags::NOEXEC);
        let writes = !mode.contains(AccessMode::WRITE) || spot.mount.writable().is_ok();
        let kind_matters = spot.dentry.kind() == crate::objects::vfs::FileType::Symlink;
        let answer = || match mode.bits() {
            0 => Ok(0),
            want => perm::check(cred, &**spot.dentry.inode(), want).map(|()| 0),
        };
        (runs && writes && !kind_matters).then(answer)
    })?;
    Some(found.and_then(|r| r))
}

fn access_at(a: &Args, dirfd: i32, path: UserPtr, mode: Bits<AccessMode>, flags: AtFlags) -> Result<u64> {
    let mode = mode.checked()?;
    let name = Name::read(path)?;
    if let Some(r) = access_cached(a, dirfd, name.bytes(), mode, flags) {
        return r;
    }
    let caller = if flags.contains(AtFlags::EACCESS) {
        Caller::new(&**a.thread)
    } else {
        let cred = a.thread.cred();
        if cred.fsuid == cred.ruid && cred.fsgid == cred.rgid {
            Caller::with(a.thread.fs(), cred)
        } else {
            let mut c = (*cred).clone();
            c.fsuid = c.ruid;
            c.fsgid = c.rgid;
            c.cap_effective = if c.ruid == 0 { c.cap_permitted } else { 0 };
            Caller::with(a.thread.fs(), alloc::sync::Arc::new(c))
        }
    };
    let target = caller.target(dirfd, name.bytes(), flags)?;
    if mode.is_empty() {
        return Ok(0);
    }
    let Target::Path(path) = target else { return Ok(0) };
    let regular = matches!(path.dentry().kind(), crate::objects::vfs::FileType::Regular);
    if mode.contains(AccessMode::EXEC) && regular && path.mount().flags().contains(MountFlags::NOEXEC) {
        return Err(Errno::EACCES);
    }
    perm::check(&caller.cred, &**path.inode(), mode.bits())?;
    if mode.contains(AccessMode::WRITE)
        && matches!(
            path.dentry().kind(),
            crate::objects::vfs::FileType::Regular
                | crate::objects::vfs::FileType::Directory
                | crate::objects::vfs::FileType::Symlink
        )
    {
        path.mount().writable()?;
    }
    Ok(0)
}

#[inline]
fn access(a: &Args, UserStr(path): UserStr, mode: Bits<AccessMode>) -> Result<u64> {
    access_at(a, at::FDCWD, path, mode, AtFlags::empty())
}

fn faccessat(a: &Args, RawFd(dirfd): RawFd, UserStr(path): UserStr, mode: Bits<AccessMode>) -> Result<u64> {
    access_at(a, dirfd, path, mode, AtFlags::empty())
}

fn faccessat2(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    mode: Bits<AccessMode>,
    flags: Bits<AtFlags>,
) -> Result<u64> {
    access_at(a, dirfd, path, mode, flags.of(AtFlags::TARGET | AtFlags::EACCESS)?)
}

fn read_link(a: &Args, dirfd: i32, path: UserPtr, buffer: UserPtr, len: i32) -> Result<u64> {
    if len <= 0 {
        return Err(Errno::EINVAL);
    }
    let name = Name::read(path)?;
    let caller = Caller::new(&**a.thread);
    // An empty name means the link a descriptor was opened on with O_PATH | O_NOFOLLOW.
    let target = match caller.target(dirfd, name.bytes(), AtFlags::TARGET)? {
        Target::Path(p) => p,
        Target::File(_) => return Err(Errno::ENOENT),
    };
    let text = match target.inode().readlink() {
        Err(Errno::EINVAL) if name.bytes().is_empty() => return Err(Errno::ENOENT),
        r => r?,
    };
    target.inode().touch_atime();
    let n = text.len().min(len as usize);
    buffer.write_bytes(&text[..n])?;
    Ok(n as u64)
}

fn readlink(a: &Args, UserStr(path): UserStr, buffer: UserPtr, len: i32) -> Result<u64> {
    read_link(a, at::FDCWD, path, buffer, len)
}

fn readlinkat(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    buffer: UserPtr,
    len: i32,
) -> Result<u64> {
    read_link(a, dirfd, path, buffer, len)
}

/// `f_type` of the file system of a mount.
pub(crate) fn magic_of(m: &Mount) -> u64 {
    named_magic(Some(m.fstype())).unwrap_or_else(|| m.root.inode().statfs().magic)
}

fn magic(s: &StatFs, at: Option<&Path>) -> u64 {
    named_magic(at.map(|p| p.mount().fstype())).unwrap_or(s.magic)
}

/// `f_type` of the synthetic file systems; the others know their own.
fn named_magic(kind: Option<&str>) -> Option<u64> {
    Some(match kind {
        Some("proc") => 0x9fa0,
        Some("sysfs") => 0x6265_6572,
        Some("cgroup2") => 0x6367_7270,
        Some("devpts") => 0x1cd1,
        Some("ramfs") => 0x8584_58f6,
        Some("mqueue") => 0x1980_0202,
        Some("nsfs") => 0x6e73_6673,
        _ => return None,
    })
}

const ST_VALID: i64 = 0x20;

/// `f_flags` of a mount and its file system.
fn shown_flags(m: &Mount) -> i64 {
    let (own, system) = (m.flags(), m.sb.flags());
    let mut out = (own | system & MountFlags::RDONLY).bits() & 0xf;
    for (flag, bit) in [
        (MountFlags::NOATIME, 0x400),
        (MountFlags::NODIRATIME, 0x800),
        (MountFlags::RELATIME, 0x1000),
        (MountFlags::NOSYMFOLLOW, 0x2000),
    ] {
        if own.contains(flag) {
            out |= bit;
        }
    }
    if system.contains(MountFlags::SYNCHRONOUS) {
        out |= 0x10;
    }
    if system.contains(MountFlags::MANDLOCK) {
        out |= 0x40;
    }
    i64::from(out)
}

fn put_statfs(p: UserPtr, s: &StatFs, at: Option<&Path>) -> Result<u64> {
    let flags = at.map_or(0, |p| shown_flags(p.mount()));
    p.write(&UserStatfs {
        kind: magic(s, at).cast_signed(),
        bsize: s.block_size.cast_signed(),
        blocks: [s.blocks, s.free, s.free],
        files: [s.files, s.files_free],
        fsid: [s.dev as i32, 0],
        namelen: 255,
        frsize: s.block_size.cast_signed(),
        flags: flags | ST_VALID,
        spare: [0; 4],
    })?;
    Ok(0)
}

fn statfs(a: &Args, UserStr(path): UserStr, out: UserPtr) -> Result<u64> {
    let name = Name::read(path)?;
    let p = Caller::new(&**a.thread).find(at::FDCWD, name.bytes(), true)?;
    put_statfs(out, &p.inode().statfs(), Some(&p))
}

/// `NSFS_MAGIC`.
const NSFS: u64 = 0x6e73_6673;

/// The magic number of files that belong to no mounted file system.
fn anonymous_fs(f: &File) -> StatFs {
    match &f.inode {
        Some(i) => i.statfs(),
        None if f.downcast::<NsFile>().is_some() => StatFs { magic: NSFS, ..StatFs::default() },
        None => StatFs::default(),
    }
}

fn fstatfs(a: &Args, RawFd(fd): RawFd, out: UserPtr) -> Result<u64> {
    let f = a.thread.any_file(fd)?;
    put_statfs(out, &anonymous_fs(&f), f.path.as_ref())
}

/// stat and the like.
pub const CALLS: &[Syscall] = &[
    call!(nr::STAT, stat(UserStr, UserPtr), Full, ""),
    call!(nr::LSTAT, lstat(UserStr, UserPtr), Full, ""),
    call!(nr::FSTAT, fstat(RawFd, UserPtr), Full, ""),
    call!(nr::NEWFSTATAT, newfstatat(RawFd, UserStr, UserPtr, Bits<AtFlags>), Full, ""),
    call!(nr::STATX, statx(RawFd, UserStr, Bits<AtFlags>, Bits<StatxMask>, UserPtr), Full, ""),
    call!(nr::ACCESS, access(UserStr, Bits<AccessMode>), Full, ""),
    call!(nr::FACCESSAT, faccessat(RawFd, UserStr, Bits<AccessMode>), Full, ""),
    call!(nr::FACCESSAT2, faccessat2(RawFd, UserStr, Bits<AccessMode>, Bits<AtFlags>), Full, ""),
    call!(nr::READLINK, readlink(UserStr, UserPtr, i32), Full, ""),
    call!(nr::READLINKAT, readlinkat(RawFd, UserStr, UserPtr, i32), Full, ""),
    call!(nr::STATFS, statfs(UserStr, UserPtr), Full, ""),
    call!(nr::FSTATFS, fstatfs(RawFd, UserPtr), Full, ""),
];
