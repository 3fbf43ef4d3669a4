//! The bits of fanotify_init and fanotify_mark.
#![allow(missing_docs)]

bitflags::bitflags! {
    /// Events and flags of marks; the events that inotify knows too have its bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FanMask: u64 {
        const ACCESS = 0x1;
        const MODIFY = 0x2;
        const ATTRIB = 0x4;
        const CLOSE_WRITE = 0x8;
        const CLOSE_NOWRITE = 0x10;
        const OPEN = 0x20;
        const MOVED_FROM = 0x40;
        const MOVED_TO = 0x80;
        const CREATE = 0x100;
        const DELETE = 0x200;
        const DELETE_SELF = 0x400;
        const MOVE_SELF = 0x800;
        const OPEN_EXEC = 0x1000;
        const Q_OVERFLOW = 0x4000;
        const FS_ERROR = 0x8000;
        const OPEN_PERM = 0x1_0000;
        const ACCESS_PERM = 0x2_0000;
        const OPEN_EXEC_PERM = 0x4_0000;
        const EVENT_ON_CHILD = 0x0800_0000;
        const RENAME = 0x1000_0000;
        const ONDIR = 0x4000_0000;
    }
}

impl FanMask {
    /// Events that wait for an answer.
    pub const PERM: Self = Self::OPEN_PERM.union(Self::ACCESS_PERM).union(Self::OPEN_EXEC_PERM);
    /// Events of names in a directory.
    pub const ENTRY: Self =
        Self::CREATE.union(Self::DELETE).union(Self::MOVED_FROM).union(Self::MOVED_TO).union(Self::RENAME);
    /// Events of an open file, which a descriptor can stand for.
    pub const OPENED: Self = Self::ACCESS
        .union(Self::MODIFY)
        .union(Self::CLOSE_WRITE)
        .union(Self::CLOSE_NOWRITE)
        .union(Self::OPEN)
        .union(Self::OPEN_EXEC)
        .union(Self::PERM);
    /// Bits that are no events.
    pub const FLAGS: Self = Self::EVENT_ON_CHILD.union(Self::ONDIR);
    /// What a mark may have.
    pub const MARK: Self = Self::OPENED
        .union(Self::ENTRY)
        .union(Self::ATTRIB)
        .union(Self::DELETE_SELF)
        .union(Self::MOVE_SELF)
        .union(Self::FS_ERROR)
        .union(Self::FLAGS);
}

bitflags::bitflags! {
    /// `FAN_` flags of fanotify_init.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitFlags: u32 {
        const CLOEXEC = 0x1;
        const NONBLOCK = 0x2;
        const CLASS_CONTENT = 0x4;
        const CLASS_PRE_CONTENT = 0x8;
        const UNLIMITED_QUEUE = 0x10;
        const UNLIMITED_MARKS = 0x20;
        const ENABLE_AUDIT = 0x40;
        const REPORT_PIDFD = 0x80;
        const REPORT_TID = 0x100;
        const REPORT_FID = 0x200;
        const REPORT_DIR_FID = 0x400;
        const REPORT_NAME = 0x800;
        const REPORT_TARGET_FID = 0x1000;
        const REPORT_FD_ERROR = 0x2000;
    }
}

impl InitFlags {
    /// The class of the group.
    pub const CLASS: Self = Self::CLASS_CONTENT.union(Self::CLASS_PRE_CONTENT);
    /// What has files told by handles.
    pub const FID: Self =
        Self::REPORT_FID.union(Self::REPORT_DIR_FID).union(Self::REPORT_NAME).union(Self::REPORT_TARGET_FID);
    /// What wants CAP_SYS_ADMIN.
    pub const PRIVILEGED: Self = Self::CLASS
        .union(Self::UNLIMITED_QUEUE)
        .union(Self::UNLIMITED_MARKS)
        .union(Self::REPORT_PIDFD)
        .union(Self::REPORT_TID)
        .union(Self::REPORT_FD_ERROR);
}

bitflags::bitflags! {
    /// `FAN_MARK_` flags of fanotify_mark.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MarkFlags: u32 {
        const ADD = 0x1;
        const REMOVE = 0x2;
        const DONT_FOLLOW = 0x4;
        const ONLYDIR = 0x8;
        const MOUNT = 0x10;
        const IGNORED_MASK = 0x20;
        const IGNORED_SURV_MODIFY = 0x40;
        const FLUSH = 0x80;
        const FILESYSTEM = 0x100;
        const EVICTABLE = 0x200;
        const IGNORE = 0x400;
    }
}

impl MarkFlags {
    /// What is marked.
    pub const KIND: Self = Self::MOUNT.union(Self::FILESYSTEM);
    /// What is done.
    pub const COMMAND: Self = Self::ADD.union(Self::REMOVE).union(Self::FLUSH);
    /// What is said of events that are not wanted.
    pub const IGNORES: Self = Self::IGNORED_MASK.union(Self::IGNORE);
}
