//! Extended attributes (`xattr(7)`).

use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::objects::lookup::caller::read_string;
use crate::objects::lookup::caller::{Caller, Name, Target, at};
use crate::objects::lookup::perm;
use crate::objects::lookup::perm::{MAY_READ, MAY_WRITE, cap};
use crate::objects::vfs::flags::{AtFlags, SetXattr};
use crate::objects::vfs::inode::{FileType, Inode};
use crate::personality::Support::Full;
use crate::personality::args::{Bits, Number, RawFd, UserStr};
use crate::personality::files::attr::tell;
use crate::personality::{Args, Syscall, call};
use crate::process::task::version::read_sized;
use crate::{Errno, Result};

const VALUE_MAX: usize = 64 << 10;

fn attr_name(p: UserPtr) -> Result<Vec<u8>> {
    let n = read_string(p, 256).map_err(|e| if e == Errno::E2BIG { Errno::ERANGE } else { e })?;
    if n.is_empty() { Err(Errno::ERANGE) } else { Ok(n) }
}

/// Whether `c` may use attribute `name` of `inode`; reading what is hidden gives ENODATA.
fn allowed(c: &Caller, inode: &dyn Inode, name: &[u8], write: bool) -> Result<()> {
    if name == b"user." {
        return Err(Errno::EINVAL);
    }
    if name.starts_with(b"user.") {
        if !matches!(inode.kind(), FileType::Regular | FileType::Directory) {
            return Err(if write { Errno::EPERM } else { Errno::ENODATA });
        }
        // What everybody may write in a sticky directory, its attributes are not.
        let s = inode.stat();
        if write
            && inode.kind() == FileType::Directory
            && s.mode & 0o1000 != 0
            && c.cred.fsuid != s.uid
            && !c.cred.capable_over(s.uid, s.gid, cap::FOWNER)
        {
            return Err(Errno::EPERM);
        }
        return perm::check(&c.cred, inode, if write { MAY_WRITE } else { MAY_READ });
    }
    if name.starts_with(b"trusted.") && name.len() > 8 {
        if c.cred.capable(cap::SYS_ADMIN) {
            return Ok(());
        }
        return Err(if write { Errno::EPERM } else { Errno::ENODATA });
    }
    if name.starts_with(b"security.") && name.len() > 9 {
        if write && !c.cred.capable(cap::SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        return Ok(());
    }
    Err(Errno::EOPNOTSUPP)
}

/// The error for a file without an inode (a pipe, a socket): it can have no user attributes, and has no others.
fn without(name: &[u8], user: Errno) -> Errno {
    if name.starts_with(b"user.") { user } else { Errno::EOPNOTSUPP }
}

/// How a call names the file: by a path, by a path whose last link is not followed, by a descriptor, or by a path from a
/// directory, which may be empty or missing for what the descriptor is of.
#[derive(Clone, Copy)]
enum By {
    Path(UserPtr),
    Link(UserPtr),
    Fd(RawFd),
    At(RawFd, UserPtr, AtFlags),
}

doppel_machine::pod_struct! {
    /// `struct xattr_args`.
    pub struct XattrArgs {
        /// Where the value is, or goes to.
        pub value: u64,
        /// Its bytes, or how many there is room for.
        pub size: u32,
        /// `XATTR_` flags.
        pub flags: u32,
    }
}

impl XattrArgs {
    fn read(at: UserPtr, size: usize) -> Result<Self> {
        if size < size_of::<Self>() { Err(Errno::EINVAL) } else { read_sized(at, size) }
    }
}

impl By {
    fn target(self, a: &Args, c: &Caller) -> Result<Target> {
        let (dirfd, path, flags) = match self {
            Self::Path(path) => (at::FDCWD, path, AtFlags::empty()),
            Self::Link(path) => (at::FDCWD, path, AtFlags::SYMLINK_NOFOLLOW),
            Self::Fd(RawFd(fd)) => {
                let f = a.thread.file(fd)?;
                return Ok(f.path.clone().map_or(Target::File(f.clone()), Target::Path));
            }
            Self::At(RawFd(dirfd), path, flags) => (dirfd, path, flags),
        };
        let none = flags.contains(AtFlags::EMPTY_PATH) && (path.is_null() || path.read::<u8>()? == 0);
        match (none, dirfd) {
            (true, at::FDCWD) => c.target(at::FDCWD, b"", flags),
            (true, fd) => Self::Fd(RawFd(fd)).target(a, c),
            (false, _) => c.target(dirfd, Name::read(path)?.bytes(), flags),
        }
    }
}

fn set(a: &Args, by: By, name: UserPtr, value: UserPtr, size: usize, how: Number<SetXattr>) -> Result<u64> {
    set_to(a, by, name, (value, size), how.get()?)
}

fn set_to(a: &Args, by: By, name: UserPtr, (value, size): (UserPtr, usize), how: SetXattr) -> Result<u64> {
    if size > VALUE_MAX {
        return Err(Errno::E2BIG);
    }
    let name = attr_name(name)?;
    let mut bytes = alloc::vec![0; size];
    value.read_bytes(&mut bytes)?;
    let c = Caller::new(&**a.thread);
    let t = by.target(a, &c)?;
    t.writable()?;
    let inode = t.inode(without(&name, Errno::EPERM))?;
    allowed(&c, &**inode, &name, true)?;
    inode.setxattr(&name, &bytes, how)?;
    tell(&t);
    Ok(0)
}

/// Returns a value or list: its size alone if the buffer is empty, ERANGE if it does not fit.
fn give(p: UserPtr, room: usize, bytes: &[u8]) -> Result<u64> {
    if room != 0 {
        if bytes.len() > room {
            return Err(Errno::ERANGE);
        }
        p.write_bytes(bytes)?;
    }
    Ok(bytes.len() as u64)
}

fn get(a: &Args, by: By, name: UserPtr, out: UserPtr, room: usize) -> Result<u64> {
    let name = attr_name(name)?;
    let c = Caller::new(&**a.thread);
    let t = by.target(a, &c)?;
    let inode = t.inode(without(&name, Errno::ENODATA))?;
    allowed(&c, &**inode, &name, false)?;
    give(out, room, &inode.getxattr(&name)?)
}

fn list(a: &Args, by: By, out: UserPtr, room: usize) -> Result<u64> {
    let c = Caller::new(&**a.thread);
    let t = by.target(a, &c)?;
    let mut names = match t.inode(Errno::EOPNOTSUPP) {
        Ok(inode) => inode.listxattr()?,
        Err(_) => Vec::new(),
    };
    if !c.cred.capable(cap::SYS_ADMIN) {
        names = names
            .split_inclusive(|b| *b == 0)
            .filter(|n| !n.starts_with(b"trusted."))
            .flatten()
            .copied()
            .collect();
    }
    give(out, room, &names)
}

fn remove(a: &Args, by: By, name: UserPtr) -> Result<u64> {
    let name = attr_name(name)?;
    let c = Caller::new(&**a.thread);
    let t = by.target(a, &c)?;
    t.writable()?;
    let inode = t.inode(without(&name, Errno::EPERM))?;
    allowed(&c, &**inode, &name, true)?;
    inode.removexattr(&name)?;
    tell(&t);
    Ok(0)
}

fn setxattr(
    a: &Args,
    UserStr(path): UserStr,
    UserStr(name): UserStr,
    value: UserPtr,
    size: usize,
    how: Number<SetXattr>,
) -> Result<u64> {
    set(a, By::Path(path), name, value, size, how)
}

fn lsetxattr(
    a: &Args,
    UserStr(path): UserStr,
    UserStr(name): UserStr,
    value: UserPtr,
    size: usize,
    how: Number<SetXattr>,
) -> Result<u64> {
    set(a, By::Link(path), name, value, size, how)
}

fn fsetxattr(
    a: &Args,
    fd: RawFd,
    UserStr(name): UserStr,
    value: UserPtr,
    size: usize,
    how: Number<SetXattr>,
) -> Result<u64> {
    set(a, By::Fd(fd), name, value, size, how)
}

fn getxattr(
    a: &Args,
    UserStr(path): UserStr,
    UserStr(name): UserStr,
    out: UserPtr,
    room: usize,
) -> Result<u64> {
    get(a, By::Path(path), name, out, room)
}

fn lgetxattr(
    a: &Args,
    UserStr(path): UserStr,
    UserStr(name): UserStr,
    out: UserPtr,
    room: usize,
) -> Result<u64> {
    get(a, By::Link(path), name, out, room)
}

fn fgetxattr(a: &Args, fd: RawFd, UserStr(name): UserStr, out: UserPtr, room: usize) -> Result<u64> {
    get(a, By::Fd(fd), name, out, room)
}

fn listxattr(a: &Args, UserStr(path): UserStr, out: UserPtr, room: usize) -> Result<u64> {
    list(a, By::Path(path), out, room)
}

fn llistxattr(a: &Args, UserStr(path): UserStr, out: UserPtr, room: usize) -> Result<u64> {
    list(a, By::Link(path), out, room)
}

fn flistxattr(a: &Args, fd: RawFd, out: UserPtr, room: usize) -> Result<u64> {
    list(a, By::Fd(fd), out, room)
}

fn removexattr(a: &Args, UserStr(path): UserStr, UserStr(name): UserStr) -> Result<u64> {
    remove(a, By::Path(path), name)
}

fn lremovexattr(a: &Args, UserStr(path): UserStr, UserStr(name): UserStr) -> Result<u64> {
    remove(a, By::Link(path), name)
}

fn fremovexattr(a: &Args, fd: RawFd, UserStr(name): UserStr) -> Result<u64> {
    remove(a, By::Fd(fd), name)
}

fn setxattrat(
    a: &Args,
    dirfd: RawFd,
    path: UserPtr,
    flags: Bits<AtFlags>,
    UserStr(name): UserStr,
    args: UserPtr,
    size: usize,
) -> Result<u64> {
    let args = XattrArgs::read(args, size)?;
    let by = By::At(dirfd, path, flags.of(AtFlags::TARGET)?);
    let how = SetXattr::try_from(args.flags)?;
    set_to(a, by, name, (UserPtr(args.value), args.size as usize), how)
}

fn getxattrat(
    a: &Args,
    dirfd: RawFd,
    path: UserPtr,
    flags: Bits<AtFlags>,
    UserStr(name): UserStr,
    args: UserPtr,
    size: usize,
) -> Result<u64> {
    let args = XattrArgs::read(args, size)?;
    if args.flags != 0 {
        return Err(Errno::EINVAL);
    }
    let by = By::At(dirfd, path, flags.of(AtFlags::TARGET)?);
    get(a, by, name, UserPtr(args.value), args.size as usize)
}

fn listxattrat(
    a: &Args,
    dirfd: RawFd,
    path: UserPtr,
    flags: Bits<AtFlags>,
    out: UserPtr,
    room: usize,
) -> Result<u64> {
    list(a, By::At(dirfd, path, flags.of(AtFlags::TARGET)?), out, room)
}

fn removexattrat(
    a: &Args,
    dirfd: RawFd,
    path: UserPtr,
    flags: Bits<AtFlags>,
    UserStr(name): UserStr,
) -> Result<u64> {
    remove(a, By::At(dirfd, path, flags.of(AtFlags::TARGET)?), name)
}

/// The extended attribute calls.
pub const CALLS: &[Syscall] = &[
    call!(nr::SETXATTR, setxattr(UserStr, UserStr, UserPtr, usize, Number<SetXattr>), Full, ""),
    call!(nr::LSETXATTR, lsetxattr(UserStr, UserStr, UserPtr, usize, Number<SetXattr>), Full, ""),
    call!(nr::FSETXATTR, fsetxattr(RawFd, UserStr, UserPtr, usize, Number<SetXattr>), Full, ""),
    call!(nr::GETXATTR, getxattr(UserStr, UserStr, UserPtr, usize), Full, ""),
    call!(nr::LGETXATTR, lgetxattr(UserStr, UserStr, UserPtr, usize), Full, ""),
    call!(nr::FGETXATTR, fgetxattr(RawFd, UserStr, UserPtr, usize), Full, ""),
    call!(nr::LISTXATTR, listxattr(UserStr, UserPtr, usize), Full, ""),
    call!(nr::LLISTXATTR, llistxattr(UserStr, UserPtr, usize), Full, ""),
    call!(nr::FLISTXATTR, flistxattr(RawFd, UserPtr, usize), Full, ""),
    call!(nr::REMOVEXATTR, removexattr(UserStr, UserStr), Full, ""),
    call!(nr::LREMOVEXATTR, lremovexattr(UserStr, UserStr), Full, ""),
    call!(nr::FREMOVEXATTR, fremovexattr(RawFd, UserStr), Full, ""),
    call!(nr::SETXATTRAT, setxattrat(RawFd, UserPtr, Bits<AtFlags>, UserStr, UserPtr, usize), Full, ""),
    call!(nr::GETXATTRAT, getxattrat(RawFd, UserPtr, Bits<AtFlags>, UserStr, UserPtr, usize), Full, ""),
    call!(nr::LISTXATTRAT, listxattrat(RawFd, UserPtr, Bits<AtFlags>, UserPtr, usize), Full, ""),
    call!(nr::REMOVEXATTRAT, removexattrat(RawFd, UserPtr, Bits<AtFlags>, UserStr), Full, ""),
];
