//! `mount_setattr(2)`, and the attributes that other calls take.

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use super::Changer;
use crate::objects::lookup::caller::{Name, Target};
use crate::objects::vfs::flags::{AtFlags, MountFlags};
use crate::objects::vfs::mount::attr::Change;
use crate::objects::vfs::mount::vfs;
use crate::personality::Support::Partial;
use crate::personality::args::{Bits, RawFd, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::process::task::version::read_sized;
use crate::{Errno, Result};

bitflags::bitflags! {
    /// `MOUNT_ATTR_` flags.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) struct Attr: u64 {
        const RDONLY = 1;
        const NOSUID = 2;
        const NODEV = 4;
        const NOEXEC = 8;
        const NOATIME = 0x10;
        const STRICTATIME = 0x20;
        /// All bits of the number that says when access is noted; 0 is RELATIME.
        const ATIME = 0x70;
        const NODIRATIME = 0x80;
        const IDMAP = 0x10_0000;
        const NOSYMFOLLOW = 0x20_0000;
    }
}

/// Those that are flags of a mount too.
const PLAIN: [(Attr, MountFlags); 6] = [
    (Attr::RDONLY, MountFlags::RDONLY),
    (Attr::NOSUID, MountFlags::NOSUID),
    (Attr::NODEV, MountFlags::NODEV),
    (Attr::NOEXEC, MountFlags::NOEXEC),
    (Attr::NODIRATIME, MountFlags::NODIRATIME),
    (Attr::NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
];

impl Attr {
    fn plain(self) -> MountFlags {
        let flags = PLAIN.iter().filter(|(a, _)| self.contains(*a));
        flags.fold(MountFlags::empty(), |all, (_, f)| all | *f)
    }

    /// The flag of a mount for when access is noted: EINVAL if there is no such time.
    fn time(self) -> Result<MountFlags> {
        match (self & Self::ATIME).bits() {
            0 => Ok(MountFlags::RELATIME),
            0x10 => Ok(MountFlags::NOATIME),
            0x20 => Ok(MountFlags::empty()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Of a new mount.
    pub(super) fn flags(self) -> Result<MountFlags> {
        Ok(self.plain() | self.time()?)
    }

    /// The attributes of a mount.
    pub(super) fn of(flags: MountFlags) -> Self {
        let plain = PLAIN.iter().filter(|(_, f)| flags.contains(*f));
        let time = if flags.contains(MountFlags::NOATIME) {
            Self::NOATIME
        } else if flags.contains(MountFlags::RELATIME) {
            Self::empty()
        } else {
            Self::STRICTATIME
        };
        plain.fold(time, |all, (a, _)| all | *a)
    }
}

doppel_machine::pod_struct! {
    /// `struct mount_attr`.
    #[allow(missing_docs)]
    pub struct UserAttr {
        pub set: u64,
        pub clear: u64,
        pub propagation: u64,
        pub userns: u64,
    }
}

impl UserAttr {
    /// What it asks for; none if nothing. EINVAL for what there is not.
    fn change(&self, recursive: bool) -> Result<Option<Change>> {
        if self.set == 0 && self.clear == 0 && self.propagation == 0 {
            return Ok(None);
        }
        let kind = u32::try_from(self.propagation).ok().and_then(MountFlags::from_bits);
        let kind = kind.filter(|k| MountFlags::PROPAGATION.contains(*k) && k.bits().count_ones() <= 1);
        let (set, clear) = (Attr::from_bits(self.set), Attr::from_bits(self.clear));
        let (Some(kind), Some(set), Some(clear)) = (kind, set, clear) else { return Err(Errno::EINVAL) };
        // Ids are those of the file system on all mounts.
        if (set | clear).contains(Attr::IDMAP) {
            return Err(Errno::EINVAL);
        }
        let mut change = Change { clear: clear.plain(), set: set.plain(), kind, recursive };
        if clear.intersects(Attr::ATIME) {
            if !clear.contains(Attr::ATIME) {
                return Err(Errno::EINVAL);
            }
            change.clear |= MountFlags::RELATIME | MountFlags::NOATIME;
            change.set |= set.time()?;
        } else if set.intersects(Attr::ATIME) {
            return Err(Errno::EINVAL);
        }
        Ok(Some(change))
    }
}

/// Whether a structure of this size can be read: E2BIG, EINVAL.
fn check_size(size: usize) -> Result<()> {
    match size {
        4097.. => Err(Errno::E2BIG),
        _ if size < size_of::<UserAttr>() => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// Reads the structure of a call, of which the program says how long it is.
pub(super) fn read(p: UserPtr, size: usize, recursive: bool) -> Result<Option<Change>> {
    check_size(size)?;
    read_sized::<UserAttr>(p, size)?.change(recursive)
}

fn mount_setattr(
    a: &Args,
    RawFd(dir): RawFd,
    UserStr(path): UserStr,
    flags: Bits<TreeFlags>,
    attr: UserPtr,
    size: usize,
) -> Result<u64> {
    let flags = flags.of(TreeFlags::PATH | TreeFlags::RECURSIVE)?;
    check_size(size)?;
    let me = Changer::new(a);
    me.check()?;
    let Some(change) = read(attr, size, flags.contains(TreeFlags::RECURSIVE))? else { return Ok(0) };
    let name = Name::read(path)?;
    let Target::Path(at) = me.caller.target(dir, name.bytes(), flags.at())? else {
        return Err(Errno::EINVAL);
    };
    vfs().change(&me.space, &at, change)?;
    Ok(0)
}

bitflags::bitflags! {
    /// Flags of open_tree(2) and mount_setattr(2).
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) struct TreeFlags: u32 {
        const CLONE = 1;
        const SYMLINK_NOFOLLOW = 0x100;
        const NO_AUTOMOUNT = 0x800;
        const EMPTY_PATH = 0x1000;
        const RECURSIVE = 0x8000;
        const CLOEXEC = 0o2000000;
    }
}

impl TreeFlags {
    /// Those that say what is meant by a name.
    pub(super) const PATH: Self = Self::SYMLINK_NOFOLLOW.union(Self::NO_AUTOMOUNT).union(Self::EMPTY_PATH);

    /// These, as other calls have them.
    pub(super) fn at(self) -> AtFlags {
        AtFlags::from_bits_truncate((self & Self::PATH).bits())
    }
}

/// `mount_setattr(2)`.
pub(super) const MOUNT_SETATTR: Syscall = call!(
    nr::MOUNT_SETATTR,
    mount_setattr(RawFd, UserStr, Bits<TreeFlags>, UserPtr, usize),
    Partial,
    "MOUNT_ATTR_IDMAP: EINVAL, as on file systems that do not support it; ids are those of the file system on every mount",
);
