//! Flags of clone, clone3, unshare and setns.

bitflags::bitflags! {
    /// `CLONE_` flags of clone, clone3 and unshare.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct CloneFlags: u64 {
        /// For clone3 and unshare only: clone has the signal there.
        const NEWTIME = 0x80;
        const VM = 0x100;
        const FS = 0x200;
        const FILES = 0x400;
        const SIGHAND = 0x800;
        const PIDFD = 0x1000;
        const VFORK = 0x4000;
        const PARENT = 0x8000;
        const THREAD = 0x1_0000;
        const NEWNS = 0x2_0000;
        const SYSVSEM = 0x4_0000;
        const SETTLS = 0x8_0000;
        const PARENT_SETTID = 0x10_0000;
        const CHILD_CLEARTID = 0x20_0000;
        const DETACHED = 0x40_0000;
        const CHILD_SETTID = 0x100_0000;
        const NEWCGROUP = 0x200_0000;
        const NEWUTS = 0x400_0000;
        const NEWIPC = 0x800_0000;
        const NEWUSER = 0x1000_0000;
        const NEWPID = 0x2000_0000;
        const NEWNET = 0x4000_0000;
        const CLEAR_SIGHAND = 1 << 32;
        const INTO_CGROUP = 1 << 33;
    }
}

impl CloneFlags {
    /// Where clone has the signal of the child's end.
    pub const CSIGNAL: u64 = 0xff;
    /// Namespaces and control groups: a domain has one of each.
    pub const NAMESPACES: Self = Self::NEWNS
        .union(Self::NEWCGROUP)
        .union(Self::NEWUTS)
        .union(Self::NEWIPC)
        .union(Self::NEWUSER)
        .union(Self::NEWPID)
        .union(Self::NEWNET)
        .union(Self::NEWTIME);
}
