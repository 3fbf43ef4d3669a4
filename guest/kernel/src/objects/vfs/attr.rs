//! Attributes of files: kind, owner, mode, times, sizes.

/// Kind of file, with its `S_IFMT` value.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FileType {
    Fifo = 0o010000,
    CharDevice = 0o020000,
    Directory = 0o040000,
    BlockDevice = 0o060000,
    Regular = 0o100000,
    Symlink = 0o120000,
    Socket = 0o140000,
}

impl FileType {
    /// The `d_type` of getdents64.
    pub fn dirent_type(self) -> u8 {
        (self as u32 >> 12) as u8
    }

    /// From the file type bits of a mode.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170000 {
            0o010000 => Self::Fifo,
            0o020000 => Self::CharDevice,
            0o040000 => Self::Directory,
            0o060000 => Self::BlockDevice,
            0o100000 => Self::Regular,
            0o120000 => Self::Symlink,
            0o140000 => Self::Socket,
            _ => return None,
        })
    }
}

/// A time stamp: nanoseconds since 1970.
pub type Time = i64;

/// Attributes, as `stat(2)` and `statx(2)` give them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    /// Device number of the file system (`makedev`).
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// Preferred I/O size.
    pub blksize: u32,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last data change.
    pub mtime: Time,
    /// Last attribute change.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
}

impl Stat {
    /// What anonymous inodes (eventfd, epoll…) show.
    pub fn anonymous() -> Self {
        Self {
            dev: 0xd,
            ino: 1,
            mode: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blksize: 4096,
            blocks: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            btime: 0,
        }
    }

    /// The file type.
    pub fn kind(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::Regular)
    }
}

/// What `statfs(2)` says of a file system.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug)]
pub struct StatFs {
    pub magic: u64,
    pub block_size: u64,
    pub blocks: u64,
    pub free: u64,
    pub files: u64,
    pub files_free: u64,
    pub dev: u64,
}

impl Default for StatFs {
    fn default() -> Self {
        // ANON_INODE_FS_MAGIC: no file system of its own.
        Self { magic: 0x0904_1934, block_size: 4096, blocks: 0, free: 0, files: 0, files_free: 0, dev: 0 }
    }
}

/// A change of attributes; `None` leaves one alone. Permission checks are done by the caller.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<Time>,
    pub mtime: Option<Time>,
    pub size: Option<u64>,
}

/// Owner and mode: what a permission check needs.
#[derive(Clone, Copy, Debug)]
pub struct Perm {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}
