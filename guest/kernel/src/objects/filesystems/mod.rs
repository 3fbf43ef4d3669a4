//! Making file systems, and changing how they are set, for mount(2) and the calls of fsopen(2).
//!
//! Key types: [`Settings`] (what one is to be made with), [`context::Context`] (settings that a descriptor stands for).

pub mod context;
pub mod detached;
pub(crate) mod nsfs;
mod options;
mod visible;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::core::subject::Cred;
use crate::objects::block::{self, Device};
use crate::objects::erofs;
use crate::objects::lookup::caller::{Caller, at};
use crate::objects::lookup::perm::cap;
use crate::objects::rootfs::{self, DiskOptions, TmpfsOptions};
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::devices;
use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::inode::FileType;
use crate::objects::vfs::kinds::{MakeFs, TYPES};
use crate::objects::vfs::mount::{Mount, MountNamespace, Superblock, vfs};
use crate::{Errno, Result};
pub use visible::revealing;

/// How a file system comes to be.
#[derive(Clone, Copy)]
pub(super) enum Make {
    Memory,
    Image,
    Disk,
    Kernel(MakeFs),
}

/// What a file system is to be made with, or changed to.
pub struct Settings {
    /// Its type.
    pub kind: &'static str,
    make: Make,
    /// First column of /proc/mounts.
    pub source: Option<Vec<u8>>,
    /// What holds wherever it is mounted.
    pub flags: MountFlags,
    tmpfs: TmpfsOptions,
    mkfs: bool,
    /// Names that were given, and how the mount table shows them.
    given: Vec<(String, String)>,
}

/// The types that who has all capabilities in a user namespace may mount there.
const OF_USERS: [&str; 7] = ["proc", "sysfs", "tmpfs", "ramfs", "devpts", "mqueue", "cgroup2"];

impl Settings {
    /// For a new file system of a type, which is the caller's: ENODEV if there is no such type.
    pub fn new(kind: &[u8], cred: &Cred) -> Result<Self> {
        let (kind, make) = match kind {
            b"tmpfs" => ("tmpfs", Make::Memory),
            b"ramfs" => ("ramfs", Make::Memory),
            b"erofs" => ("erofs", Make::Image),
            k if k == rootfs::DISK_TYPE.as_bytes() => (rootfs::DISK_TYPE, Make::Disk),
            _ => {
                let found = TYPES.get().list.lock().iter().find(|(n, _)| n.as_bytes() == kind).copied();
                let (name, make) = found.ok_or(Errno::ENODEV)?;
                (name, Make::Kernel(make))
            }
        };
        let tmpfs = TmpfsOptions { uid: cred.fsuid, gid: cred.fsgid, ..TmpfsOptions::default() };
        let flags = MountFlags::empty();
        Ok(Self { kind, make, source: None, flags, tmpfs, mkfs: false, given: Vec::new() })
    }

    /// For changing one that is there.
    pub fn of(sb: &Superblock, cred: &Cred) -> Result<Self> {
        let mut s = match Self::new(sb.fstype.as_bytes(), cred) {
            // Those the domain starts with have no options.
            Err(_) => Self { kind: sb.fstype, ..Self::new(b"ramfs", cred)? },
            new => new?,
        };
        s.flags = sb.flags();
        Ok(s)
    }

    /// Whether the caller may make it: EPERM if not.
    pub fn allowed(&self, cred: &Cred) -> Result<()> {
        let may = cred.capable(cap::SYS_ADMIN) || OF_USERS.contains(&self.kind) && cred.has(cap::SYS_ADMIN);
        if may { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// All options of mount(2), separated by commas.
    pub fn parse(&mut self, data: &[u8], cred: &Cred) -> core::result::Result<(), (Errno, String)> {
        for option in data.split(|b| *b == b',').filter(|o| !o.is_empty()) {
            let text = core::str::from_utf8(option).map_err(|_| (Errno::EINVAL, "Bad option".into()))?;
            let (key, value) = match text.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (text, None),
            };
            self.set(key, value, cred)?;
        }
        Ok(())
    }

    /// Makes it: a file system and what of it is to be mounted. `exclusive`: it is not mounted anywhere yet.
    pub fn create(&self, caller: &Caller, exclusive: bool) -> Result<(Arc<Superblock>, Arc<Dentry>)> {
        let mut flags = self.flags;
        let root = match self.make {
            Make::Memory => Dentry::root(rootfs::tmpfs(self.tmpfs)),
            Make::Image => {
                flags |= MountFlags::RDONLY;
                Dentry::root(erofs::mount(&self.device(caller)?)?)
            }
            Make::Disk => {
                let read_only = flags.contains(MountFlags::RDONLY);
                rootfs::mount_disk(&self.device(caller)?, DiskOptions { read_only, mkfs: self.mkfs })?
            }
            Make::Kernel(make) => Dentry::root(make()?),
        };
        // A disk that is mounted already is one file system.
        let known = vfs().tree().shows(|m| Arc::ptr_eq(&m.sb.root, &root)).map(|m| m.sb.clone());
        match known {
            Some(_) if exclusive => Err(Errno::EBUSY),
            Some(sb) if sb.flags().contains(MountFlags::RDONLY) != flags.contains(MountFlags::RDONLY) => {
                Err(Errno::EBUSY)
            }
            Some(sb) => Ok((sb, root)),
            None => {
                let owner = &caller.cred.user;
                Ok((Superblock::new(self.kind, root.clone(), flags, &self.shown(), owner), root))
            }
        }
    }

    /// Changes a file system that is mounted.
    pub fn apply(&self, sb: &Superblock) -> Result<()> {
        let read_only = self.flags.contains(MountFlags::RDONLY);
        if read_only {
            if !sb.flags().contains(MountFlags::RDONLY) {
                vfs().unwritten(sb)?;
            }
            rootfs::settle(&sb.root)?;
        } else {
            if self.kind == "erofs" {
                return Err(Errno::EACCES);
            }
            rootfs::allow_writes(&sb.root)?;
        }
        if self.kind == "tmpfs" {
            self.limit(sb)?;
        }
        sb.set_flags(self.flags);
        Ok(())
    }

    fn device(&self, caller: &Caller) -> Result<Arc<Device>> {
        let path = self.source.as_deref().filter(|s| !s.is_empty()).ok_or(Errno::ENOENT)?;
        let found = caller.find(at::FDCWD, path, true)?;
        if found.dentry().kind() != FileType::BlockDevice {
            return Err(Errno::ENOTBLK);
        }
        if found.mount().flags().contains(MountFlags::NODEV) {
            return Err(Errno::EACCES);
        }
        block::numbered(devices::split(found.inode().stat().rdev))
    }

    /// A new mount of it.
    pub fn mount(&self, sb: Arc<Superblock>, root: Arc<Dentry>, flags: MountFlags) -> Arc<Mount> {
        let source = self.source.as_deref().unwrap_or(b"none");
        Mount::new(root, sb, source, flags)
    }
}

/// Whether the caller may change mounts of its namespace: EPERM if not.
pub fn may_mount(cred: &Cred, space: &MountNamespace) -> Result<()> {
    if cred.capable_in(space.owner(), cap::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

/// What the log of a context says of an option.
fn unknown(kind: &str, key: &str) -> (Errno, String) {
    (Errno::EINVAL, format!("{kind}: Unknown parameter '{key}'"))
}
