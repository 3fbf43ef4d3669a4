//! Extended attributes (`xattr(7)`).

use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::objects::lookup::caller::read_string;
use crate::objects::lookup::caller::{Caller, Name, Target, at};
use crate::objects::lookup::perm;
use crate::objects::lookup::perm::{MAY_READ, MAY_WRITE, cap};
use crate::objects::vfs::flags::AtFlags;
use crate::objects::vfs::inode::{FileType, Inode};
use crate::personality::Arg::{Fd, Hex, Int, Ptr, Str};
use crate::personality::Support::Full;
use crate::personality::files::attr::tell;
use crate::personality::{Args, Syscall, call};
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
            && !c.cred.capable(cap::FOWNER)
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

/// The target of a call whose first argument is a path or a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Path,
    Link,
    Fd,
}

fn target(a: &Args, c: &Caller, by: By) -> Result<Target> {
    match by {
        By::Fd => {
            let f = a.file(0)?;
            Ok(f.path.clone().map_or(Target::File(f.clone()), Target::Path))
        }
        _ => {
            let name = Name::read(a.ptr(0))?;
            let flags = AtFlags::SYMLINK_NOFOLLOW.when(by == By::Link);
            c.target(at::FDCWD, name.bytes(), flags)
        }
    }
}

fn set(a: &Args, by: By) -> Result<u64> {
    let (size, how) = (a.len(3), a.number(4)?);
    if size > VALUE_MAX {
        return Err(Errno::E2BIG);
    }
    let name = attr_name(a.ptr(1))?;
    let mut value = alloc::vec![0; size];
    a.ptr(2).read_bytes(&mut value)?;
    let c = Caller::new(&**a.thread);
    let t = target(a, &c, by)?;
    t.writable()?;
    let inode = t.inode(without(&name, Errno::EPERM))?;
    allowed(&c, &**inode, &name, true)?;
    inode.setxattr(&name, &value, how)?;
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

fn get(a: &Args, by: By) -> Result<u64> {
    let name = attr_name(a.ptr(1))?;
    let c = Caller::new(&**a.thread);
    let t = target(a, &c, by)?;
    let inode = t.inode(without(&name, Errno::ENODATA))?;
    allowed(&c, &**inode, &name, false)?;
    give(a.ptr(2), a.len(3), &inode.getxattr(&name)?)
}

fn list(a: &Args, by: By) -> Result<u64> {
    let c = Caller::new(&**a.thread);
    let t = target(a, &c, by)?;
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
    give(a.ptr(1), a.len(2), &names)
}

fn remove(a: &Args, by: By) -> Result<u64> {
    let name = attr_name(a.ptr(1))?;
    let c = Caller::new(&**a.thread);
    let t = target(a, &c, by)?;
    t.writable()?;
    let inode = t.inode(without(&name, Errno::EPERM))?;
    allowed(&c, &**inode, &name, true)?;
    inode.removexattr(&name)?;
    tell(&t);
    Ok(0)
}

/// The extended attribute calls.
pub const CALLS: &[Syscall] = &[
    call(nr::SETXATTR, |a| set(a, By::Path), Full, &[Str, Str, Ptr, Int, Hex], ""),
    call(nr::LSETXATTR, |a| set(a, By::Link), Full, &[Str, Str, Ptr, Int, Hex], ""),
    call(nr::FSETXATTR, |a| set(a, By::Fd), Full, &[Fd, Str, Ptr, Int, Hex], ""),
    call(nr::GETXATTR, |a| get(a, By::Path), Full, &[Str, Str, Ptr, Int], ""),
    call(nr::LGETXATTR, |a| get(a, By::Link), Full, &[Str, Str, Ptr, Int], ""),
    call(nr::FGETXATTR, |a| get(a, By::Fd), Full, &[Fd, Str, Ptr, Int], ""),
    call(nr::LISTXATTR, |a| list(a, By::Path), Full, &[Str, Ptr, Int], ""),
    call(nr::LLISTXATTR, |a| list(a, By::Link), Full, &[Str, Ptr, Int], ""),
    call(nr::FLISTXATTR, |a| list(a, By::Fd), Full, &[Fd, Ptr, Int], ""),
    call(nr::REMOVEXATTR, |a| remove(a, By::Path), Full, &[Str, Str], ""),
    call(nr::LREMOVEXATTR, |a| remove(a, By::Link), Full, &[Str, Str], ""),
    call(nr::FREMOVEXATTR, |a| remove(a, By::Fd), Full, &[Fd, Str], ""),
];
