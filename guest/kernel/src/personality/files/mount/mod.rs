//! The calls on mounts: mount(2) and its kin here, those of descriptors of mounts in trees.rs, of file systems in the making in
//! contexts.rs, of what is known of mounts in report.rs.

mod attr;
mod contexts;
mod report;
mod trees;

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::objects::filesystems::{Settings, may_mount, revealing};
use crate::objects::lookup::caller::{Caller, Name, at, read_string};
use crate::objects::lookup::opener::Opener;
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm::cap;
use crate::objects::rootfs;
use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::inode::FileType;
use crate::objects::vfs::mount::attach::Where;
use crate::objects::vfs::mount::attr::Change;
use crate::objects::vfs::mount::umount::Unmount;
use crate::objects::vfs::mount::{MountNamespace, vfs};
use crate::personality::Support::Full;
use crate::personality::args::{Bits, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// Who changes mounts, and in which namespace.
struct Changer {
    caller: Caller,
    space: Arc<MountNamespace>,
}

impl Changer {
    fn new(a: &Args) -> Self {
        Self { caller: Caller::new(&**a.thread), space: a.thread.mounts() }
    }

    /// EPERM if it may not.
    fn check(&self) -> Result<()> {
        may_mount(&self.caller.cred, &self.space)
    }

    fn find(&self, name: &[u8]) -> Result<Path> {
        self.caller.find(at::FDCWD, name, true)
    }
}

/// A string that may be left out, cut to what Linux looks at.
fn optional(p: UserPtr) -> Result<Vec<u8>> {
    const PAGE: usize = 4096;
    if p.is_null() {
        return Ok(Vec::new());
    }
    match read_string(p, PAGE) {
        Err(Errno::E2BIG) => {
            let mut cut = alloc::vec![0; PAGE - 1];
            p.read_bytes(&mut cut)?;
            Ok(cut)
        }
        r => r,
    }
}

/// A name of at most a page: EINVAL if it is longer.
fn name(p: UserPtr) -> Result<Option<Vec<u8>>> {
    let read = |p| read_string(p, 4096).map_err(|e| if e == Errno::E2BIG { Errno::EINVAL } else { e });
    if p.is_null() { Ok(None) } else { read(p).map(Some) }
}

/// The flags of the mount among those of mount(2), where `old` is how it is mounted, if it is.
fn of_mount(flags: MountFlags, old: Option<MountFlags>) -> MountFlags {
    let times = MountFlags::ATIME | MountFlags::STRICTATIME;
    let mut kept = flags & MountFlags::KEPT;
    if let Some(old) = old.filter(|_| !flags.intersects(times)) {
        return (kept - MountFlags::ATIME) | (old & MountFlags::ATIME);
    }
    kept.set(MountFlags::RELATIME, !flags.contains(MountFlags::NOATIME));
    if flags.contains(MountFlags::STRICTATIME) {
        kept -= MountFlags::RELATIME | MountFlags::NOATIME;
    }
    kept
}

fn mount(
    a: &Args,
    UserStr(source): UserStr,
    UserStr(target): UserStr,
    UserStr(kind): UserStr,
    flags: Bits<MountFlags>,
    data: UserPtr,
) -> Result<u64> {
    const MAGIC: u32 = 0xc0ed_0000;
    let mut flags = flags.any();
    if flags.bits() & 0xffff_0000 == MAGIC {
        flags -= MountFlags::from_bits_retain(MAGIC);
    }
    let (kind, source, data) = (name(kind)?, name(source)?, optional(data)?);
    let me = Changer::new(a);
    let point = me.find(Name::read(target)?.bytes())?;
    me.check()?;
    if flags.contains(MountFlags::REMOUNT) {
        remount(&me, &point, flags, &data)
    } else if flags.contains(MountFlags::BIND) {
        let from = source.filter(|s| !s.is_empty()).ok_or(Errno::EINVAL)?;
        vfs().bind(&me.space, &me.find(&from)?, &point, flags.contains(MountFlags::REC))
    } else if flags.intersects(MountFlags::PROPAGATION) {
        let kind = flags - MountFlags::REC - MountFlags::SILENT;
        if kind.bits().count_ones() != 1 || !MountFlags::PROPAGATION.contains(kind) {
            return Err(Errno::EINVAL);
        }
        vfs().change(&me.space, &point, Change::kind(kind, flags.contains(MountFlags::REC)))
    } else if flags.contains(MountFlags::MOVE) {
        let from = source.filter(|s| !s.is_empty()).ok_or(Errno::EINVAL)?;
        vfs().move_to(&me.space, &me.find(&from)?, &point, Where::Top)
    } else {
        new(&me, &point, &kind.ok_or(Errno::EINVAL)?, source, flags, &data)
    }?;
    Ok(0)
}

/// Mounts a new file system.
fn new(
    me: &Changer,
    point: &Path,
    kind: &[u8],
    source: Option<Vec<u8>>,
    flags: MountFlags,
    data: &[u8],
) -> Result<()> {
    let cred = &me.caller.cred;
    let mut settings = Settings::new(kind, cred)?;
    settings.source = source;
    settings.flags = flags & MountFlags::SUPERBLOCK;
    settings.parse(data, cred).map_err(|(e, _)| e)?;
    settings.allowed(cred)?;
    let flags = revealing(&me.space, settings.kind, of_mount(flags, None))?;
    let (sb, root) = settings.create(&me.caller, false)?;
    vfs().mount_in(&me.space, point, settings.mount(sb, root, flags))
}

fn remount(me: &Changer, point: &Path, flags: MountFlags, data: &[u8]) -> Result<()> {
    let m = point.mount();
    if m.space() != me.space.number || !Arc::ptr_eq(&m.root, point.dentry()) {
        return Err(Errno::EINVAL);
    }
    let new = of_mount(flags, Some(m.flags()));
    if flags.contains(MountFlags::BIND) {
        return vfs().change(&me.space, point, Change::to(new));
    }
    m.may_become(new)?;
    let cred = &me.caller.cred;
    if !cred.capable_in(&m.sb.owner, cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let mut settings = Settings::of(&m.sb, cred)?;
    settings.flags = flags & MountFlags::SUPERBLOCK;
    settings.parse(data, cred).map_err(|(e, _)| e)?;
    settings.apply(&m.sb)?;
    vfs().change(&me.space, point, Change::to(new))
}

bitflags::bitflags! {
    /// Flags of `umount2(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct UnmountFlags: u32 {
        const FORCE = 1;
        const DETACH = 2;
        const EXPIRE = 4;
        const NOFOLLOW = 8;
    }
}

fn umount2(a: &Args, UserStr(path): UserStr, flags: Bits<UnmountFlags>) -> Result<u64> {
    let flags = flags.checked()?;
    let name = Name::read(path)?;
    let me = Changer::new(a);
    let p = me.caller.find(at::FDCWD, name.bytes(), !flags.contains(UnmountFlags::NOFOLLOW))?;
    me.check()?;
    if flags.contains(UnmountFlags::FORCE) && !me.caller.cred.capable(cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let how = if flags.contains(UnmountFlags::EXPIRE) {
        let root = me.caller.fs.root();
        let others = UnmountFlags::DETACH | UnmountFlags::FORCE;
        if flags.intersects(others) || Arc::ptr_eq(root.mount(), p.mount()) {
            return Err(Errno::EINVAL);
        }
        Unmount::Expired
    } else if flags.contains(UnmountFlags::DETACH) {
        Unmount::Lazy
    } else {
        Unmount::Idle
    };
    let root = p.mount().sb.root.clone();
    let disk = rootfs::settle(&root)?;
    vfs().umount(&me.space, &p, how)?;
    if disk.is_some() && vfs().tree().shows(|m| Arc::ptr_eq(&m.sb.root, &root)).is_none() {
        disk.inspect(|root| rootfs::unmounted(root));
    }
    Ok(0)
}

fn pivot_root(a: &Args, UserStr(new): UserStr, UserStr(old): UserStr) -> Result<u64> {
    let me = Changer::new(a);
    me.check()?;
    let directory = |name: Name| {
        let p = me.find(name.bytes())?;
        if p.dentry().kind() == FileType::Directory { Ok(p) } else { Err(Errno::ENOTDIR) }
    };
    let new = directory(Name::read(new)?)?;
    let old = directory(Name::read(old)?)?;
    let root = me.caller.fs.root();
    vfs().pivot(&me.space, &root, &new, &old)?;
    crate::process::task::directory::move_all(&root, &new);
    Ok(0)
}

/// The calls of this module and those below it.
pub const CALLS: &[Syscall] = &[
    call!(nr::MOUNT, mount(UserStr, UserStr, UserStr, Bits<MountFlags>, UserPtr), Full, ""),
    call!(nr::UMOUNT2, umount2(UserStr, Bits<UnmountFlags>), Full, ""),
    call!(nr::PIVOT_ROOT, pivot_root(UserStr, UserStr), Full, ""),
    trees::OPEN_TREE,
    trees::OPEN_TREE_ATTR,
    trees::MOVE_MOUNT,
    attr::MOUNT_SETATTR,
    contexts::FSOPEN,
    contexts::FSCONFIG,
    contexts::FSMOUNT,
    contexts::FSPICK,
    report::STATMOUNT,
    report::LISTMOUNT,
];
