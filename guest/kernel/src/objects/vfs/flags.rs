//! Flags of the calls that open, name, rename and mount files.
#![allow(missing_docs)]

use crate::core::numbers::numbers;

bitflags::bitflags! {
    /// `O_` flags of `open(2)`: access mode, what the open does, and the status flags an open file keeps.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        const WRONLY = 1;
        const RDWR = 2;
        const CREAT = 0o100;
        const EXCL = 0o200;
        const NOCTTY = 0o400;
        const TRUNC = 0o1000;
        const APPEND = 0o2000;
        const NONBLOCK = 0o4000;
        const DSYNC = 0o10000;
        const ASYNC = 0o20000;
        const DIRECT = 0o40000;
        const LARGEFILE = 0o100000;
        const DIRECTORY = 0o200000;
        const NOFOLLOW = 0o400000;
        const NOATIME = 0o1000000;
        const CLOEXEC = 0o2000000;
        const SYNC = 0o4010000;
        const PATH = 0o10000000;
        const TMPFILE = 0o20200000;
    }
}

impl OpenFlags {
    /// No bit: the access mode of a file that is only read.
    pub const RDONLY: Self = Self::empty();
    /// The bits of the access mode; both together are one of their own, which neither reads nor writes.
    pub const ACCMODE: Self = Self::WRONLY.union(Self::RDWR);
    /// What F_SETFL may change.
    pub const SETFL: Self =
        Self::APPEND.union(Self::NONBLOCK).union(Self::ASYNC).union(Self::DIRECT).union(Self::NOATIME);
    /// What the calls that make a descriptor of no file take (`eventfd2`, `pipe2`, `socket`…).
    pub const DESCRIPTOR: Self = Self::CLOEXEC.union(Self::NONBLOCK);

    /// `self` if `on`, else no flags.
    #[must_use]
    pub fn when(self, on: bool) -> Self {
        if on { self } else { Self::empty() }
    }
}

bitflags::bitflags! {
    /// `AT_` flags of the calls that take a directory descriptor and a name. One bit means different things to
    /// different calls.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AtFlags: u32 {
        /// `name_to_handle_at`: the unique number of the mount.
        const HANDLE_MNT_ID_UNIQUE = 1;
        /// `name_to_handle_at`: a handle that holds the directory.
        const HANDLE_CONNECTABLE = 2;
        const SYMLINK_NOFOLLOW = 0x100;
        /// `unlinkat`.
        const REMOVEDIR = 0x200;
        /// `faccessat2`.
        const EACCESS = 0x200;
        /// `name_to_handle_at`: a handle that need not be opened.
        const HANDLE_FID = 0x200;
        const SYMLINK_FOLLOW = 0x400;
        const NO_AUTOMOUNT = 0x800;
        const EMPTY_PATH = 0x1000;
        const STATX_SYNC_TYPE = 0x6000;
    }
}

impl AtFlags {
    /// What most calls that change attributes take.
    pub const TARGET: Self = Self::SYMLINK_NOFOLLOW.union(Self::EMPTY_PATH);

    /// `self` if `on`, else no flags.
    #[must_use]
    pub fn when(self, on: bool) -> Self {
        if on { self } else { Self::empty() }
    }
}

bitflags::bitflags! {
    /// `RESOLVE_` restrictions of `openat2(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Resolve: u32 {
        const NO_XDEV = 1;
        const NO_MAGICLINKS = 2;
        const NO_SYMLINKS = 4;
        const BENEATH = 8;
        const IN_ROOT = 16;
        const CACHED = 32;
    }
}

bitflags::bitflags! {
    /// `MS_` flags of `mount(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MountFlags: u32 {
        const RDONLY = 1;
        const NOSUID = 2;
        const NODEV = 4;
        const NOEXEC = 8;
        const SYNCHRONOUS = 16;
        const REMOUNT = 32;
        const MANDLOCK = 64;
        const DIRSYNC = 128;
        const NOSYMFOLLOW = 256;
        const NOATIME = 1024;
        const NODIRATIME = 2048;
        const BIND = 4096;
        const MOVE = 8192;
        const REC = 16384;
        const SILENT = 32768;
        const POSIXACL = 1 << 16;
        const UNBINDABLE = 1 << 17;
        const PRIVATE = 1 << 18;
        const SLAVE = 1 << 19;
        const SHARED = 1 << 20;
        const RELATIME = 1 << 21;
        const I_VERSION = 1 << 23;
        const STRICTATIME = 1 << 24;
        const LAZYTIME = 1 << 25;
    }
}

impl MountFlags {
    /// When the time of the last access is noted.
    pub const ATIME: Self = Self::NOATIME.union(Self::NODIRATIME).union(Self::RELATIME);
    /// What a mount keeps.
    pub const KEPT: Self = Self::RDONLY
        .union(Self::NOSUID)
        .union(Self::NODEV)
        .union(Self::NOEXEC)
        .union(Self::NOSYMFOLLOW)
        .union(Self::ATIME);
    /// What a file system keeps.
    pub const SUPERBLOCK: Self = Self::RDONLY
        .union(Self::SYNCHRONOUS)
        .union(Self::MANDLOCK)
        .union(Self::DIRSYNC)
        .union(Self::LAZYTIME);
    /// What changes how mounts propagate.
    pub const PROPAGATION: Self =
        Self::PRIVATE.union(Self::SLAVE).union(Self::SHARED).union(Self::UNBINDABLE);
}

bitflags::bitflags! {
    /// What nobody may change of a mount: somebody with more rights made it so (`mount_namespaces(7)`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MountLocks: u32 {
        const READ_ONLY = 1;
        const NODEV = 2;
        const NOSUID = 4;
        const NOEXEC = 8;
        const ATIME = 16;
        /// It stays where it is.
        const IN_PLACE = 32;
    }
}

bitflags::bitflags! {
    /// Flags of `renameat2(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        const NOREPLACE = 1;
        const EXCHANGE = 2;
    }
}

bitflags::bitflags! {
    /// `FALLOC_FL_` flags of `fallocate(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FallocateFlags: u32 {
        const KEEP_SIZE = 1;
        const PUNCH_HOLE = 2;
        const ZERO_RANGE = 16;
    }
}

impl FallocateFlags {
    /// No bit: room is made.
    pub const ALLOCATE: Self = Self::empty();
}

numbers! {
    /// What `setxattr(2)` asks of an attribute.
    pub enum SetXattr {
        /// It may be there or not.
        Any = 0,
        /// It must not be there.
        Create = 1,
        /// It must be there.
        Replace = 2,
    }
}
