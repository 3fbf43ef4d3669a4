//! Open flags kept in [`super::File::flags`] (`open(2)`), and those fcntl may change.
#![allow(missing_docs)]

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
