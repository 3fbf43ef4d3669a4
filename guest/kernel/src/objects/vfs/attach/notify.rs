//! Whether anybody wants to be told of changes to files, and of which (`inotify(7)`, F_NOTIFY).
//!
//! Who that is and how they are told is a matter of `ipc::inotify` and `ipc::dnotify`.
#![allow(missing_docs)]

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::core::part::Part;

bitflags::bitflags! {
    /// Events and flags of `inotify(7)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InotifyMask: u32 {
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
        const ALL_EVENTS = 0xfff;
        const UNMOUNT = 0x2000;
        const Q_OVERFLOW = 0x4000;
        const IGNORED = 0x8000;
        const ONLYDIR = 0x0100_0000;
        const DONT_FOLLOW = 0x0200_0000;
        const EXCL_UNLINK = 0x0400_0000;
        const MASK_CREATE = 0x1000_0000;
        const MASK_ADD = 0x2000_0000;
        const ISDIR = 0x4000_0000;
        const ONESHOT = 0x8000_0000;
    }
}

impl InotifyMask {
    /// `self` if `on`, else nothing.
    #[must_use]
    pub fn when(self, on: bool) -> Self {
        if on { self } else { Self::empty() }
    }
}

/// Number of watches in the domain and the next rename cookie.
#[derive(Default)]
pub struct Counters {
    watches: AtomicUsize,
    cookie: AtomicU32,
}

/// The domain's.
pub static COUNTERS: Part<Counters> = Part::new();

fn counters() -> &'static Counters {
    &COUNTERS
}

/// There is so much more to tell of changes (a watch or a note).
pub fn count(n: usize) {
    counters().watches.fetch_add(n, Ordering::Relaxed);
}

/// See [`count`].
pub fn uncount(n: usize) {
    counters().watches.fetch_sub(n, Ordering::Relaxed);
}

/// Whether anything in the domain is watched.
#[inline]
pub fn watching() -> bool {
    counters().watches.load(Ordering::Relaxed) != 0
}

/// A number that ties IN_MOVED_FROM to IN_MOVED_TO. Those of moves that others make have the highest bit.
pub fn next_cookie() -> u32 {
    counters().cookie.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & (u32::MAX >> 1)
}
