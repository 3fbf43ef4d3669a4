//! Permission checks: mode bits against identity (`path_resolution(7)`, `capabilities(7)`).

use crate::core::subject::Cred;
use crate::objects::vfs::attr::FileType;
pub use crate::objects::vfs::attr::Perm;
use crate::objects::vfs::inode::Inode;
use crate::{Errno, Result};

/// Wanted access, as in `access(2)`.
pub const MAY_READ: u32 = 4;
/// See [`MAY_READ`].
pub const MAY_WRITE: u32 = 2;
/// See [`MAY_READ`].
pub const MAY_EXEC: u32 = 1;

/// Capability numbers the file system asks for.
#[allow(missing_docs)]
pub mod cap {
    pub const CHOWN: u32 = 0;
    pub const DAC_OVERRIDE: u32 = 1;
    pub const DAC_READ_SEARCH: u32 = 2;
    pub const FOWNER: u32 = 3;
    pub const FSETID: u32 = 4;
    pub const LINUX_IMMUTABLE: u32 = 9;
    pub const SYS_CHROOT: u32 = 18;
    pub const SYS_ADMIN: u32 = 21;
    pub const SYS_RESOURCE: u32 = 24;
    pub const MKNOD: u32 = 27;
    pub const LEASE: u32 = 28;
}

/// Whether `cred` may access `inode` in all the ways of `mask`: EACCES if not.
pub fn check(cred: &Cred, inode: &dyn Inode, mask: u32) -> Result<()> {
    let p = inode.perm();
    let bits = if cred.fsuid == p.uid {
        p.mode >> 6
    } else if cred.in_group(p.gid) {
        p.mode >> 3
    } else {
        p.mode
    };
    if bits & mask == mask {
        return Ok(());
    }
    let dir = FileType::from_mode(p.mode) == Some(FileType::Directory);
    if cred.capable_over(p.uid, p.gid, cap::DAC_OVERRIDE)
        && (dir || mask & MAY_EXEC == 0 || p.mode & 0o111 != 0)
    {
        return Ok(());
    }
    if cred.capable_over(p.uid, p.gid, cap::DAC_READ_SEARCH)
        && (mask == MAY_READ || (dir && mask & MAY_WRITE == 0))
    {
        return Ok(());
    }
    Err(Errno::EACCES)
}

/// Whether directories may be searched without looking at them.
pub fn may_search_all(cred: &Cred) -> bool {
    cred.capable(cap::DAC_OVERRIDE) || cred.capable(cap::DAC_READ_SEARCH)
}

/// Whether `cred` owns the file, or may act as if: EPERM if not.
pub fn owner(cred: &Cred, inode: &dyn Inode) -> Result<()> {
    let p = inode.perm();
    let mine = cred.fsuid == p.uid || cred.has(cap::FOWNER) && cred.user.shown_uid(p.uid).is_some();
    if mine { Ok(()) } else { Err(Errno::EPERM) }
}

/// Which of a file's set-user-ID and set-group-ID bits go when it is written or given to another: set-group-ID of
/// what is no program stays with members of the group.
pub fn lost_setid(cred: &Cred, p: Perm) -> u32 {
    let program = p.mode & 0o2010 == 0o2010;
    if program || !(cred.in_group(p.gid) || cred.capable_over(p.uid, p.gid, cap::FSETID)) {
        0o6000
    } else {
        0o4000
    }
}

/// The mode of a new file in `dir`, of the group `gid`: who is no member of the directory's group makes no
/// set-group-ID programs there.
pub fn new_mode(cred: &Cred, dir: &dyn Inode, mode: u32, gid: u32) -> u32 {
    let kind = FileType::from_mode(mode);
    let program = mode & 0o2010 == 0o2010 && kind != Some(FileType::Directory);
    let inherits = dir.perm().mode & 0o2000 != 0;
    if program && inherits && !cred.in_group(gid) && !cred.capable_over(dir.perm().uid, gid, cap::FSETID) {
        mode & !0o2000
    } else {
        mode
    }
}

/// The rule of sticky directories: EPERM unless `cred` owns the file or the directory.
pub fn sticky(cred: &Cred, dir: &dyn Inode, victim: &dyn Inode) -> Result<()> {
    let d = dir.perm();
    if d.mode & 0o1000 == 0 || cred.fsuid == d.uid {
        return Ok(());
    }
    let v = victim.perm();
    if cred.fsuid == v.uid || cred.capable_over(v.uid, v.gid, cap::FOWNER) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}
