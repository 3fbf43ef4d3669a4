//! What files are ready for, and what wait queues tell.
#![allow(missing_docs)]

bitflags::bitflags! {
    /// Events of `poll(2)`, which have the same bits in epoll, and the flags that go with them in epoll. A wait queue tells
    /// its waiters which of them may now hold; none if it does not say.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PollEvents: u32 {
        const IN = 0x1;
        const PRI = 0x2;
        const OUT = 0x4;
        const ERR = 0x8;
        const HUP = 0x10;
        const NVAL = 0x20;
        const RDNORM = 0x40;
        const RDBAND = 0x80;
        const WRNORM = 0x100;
        const WRBAND = 0x200;
        const MSG = 0x400;
        const RDHUP = 0x2000;
        const EXCLUSIVE = 1 << 28;
        const WAKEUP = 1 << 29;
        const ONESHOT = 1 << 30;
        const ET = 1 << 31;
    }
}

impl PollEvents {
    /// There are bytes to read.
    pub const READABLE: Self = Self::IN.union(Self::RDNORM);
    /// There is room to write.
    pub const WRITABLE: Self = Self::OUT.union(Self::WRNORM);
    /// What is told whether it is asked for or not.
    pub const ALWAYS: Self = Self::ERR.union(Self::HUP);
    /// The flags of epoll, which are no events.
    pub const EPOLL_FLAGS: Self = Self::EXCLUSIVE.union(Self::WAKEUP).union(Self::ONESHOT).union(Self::ET);
    /// Events that one taker uses up.
    pub(super) const USED_UP: Self =
        Self::READABLE.union(Self::WRITABLE).union(Self::PRI).union(Self::RDBAND).union(Self::WRBAND);

    /// `self` if `on`, else no events.
    #[must_use]
    pub fn when(self, on: bool) -> Self {
        if on { self } else { Self::empty() }
    }
}
