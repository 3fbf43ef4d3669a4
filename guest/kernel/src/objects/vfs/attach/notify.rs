//! Whether anybody wants to be told of changes to files, and of which (`inotify(7)`, F_NOTIFY).
//!
//! Who that is and how they are told is a matter of `ipc::inotify` and `ipc::dnotify`.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::core::part::Part;

/// Events and flags (`inotify(7)`).
#[allow(missing_docs)]
pub mod event {
    pub const IN_ACCESS: u32 = 0x1;
    pub const IN_MODIFY: u32 = 0x2;
    pub const IN_ATTRIB: u32 = 0x4;
    pub const IN_CLOSE_WRITE: u32 = 0x8;
    pub const IN_CLOSE_NOWRITE: u32 = 0x10;
    pub const IN_OPEN: u32 = 0x20;
    pub const IN_MOVED_FROM: u32 = 0x40;
    pub const IN_MOVED_TO: u32 = 0x80;
    pub const IN_CREATE: u32 = 0x100;
    pub const IN_DELETE: u32 = 0x200;
    pub const IN_DELETE_SELF: u32 = 0x400;
    pub const IN_MOVE_SELF: u32 = 0x800;
    pub const IN_ALL_EVENTS: u32 = 0xfff;
    pub const IN_UNMOUNT: u32 = 0x2000;
    pub const IN_Q_OVERFLOW: u32 = 0x4000;
    pub const IN_IGNORED: u32 = 0x8000;
    pub const IN_ONLYDIR: u32 = 0x0100_0000;
    pub const IN_DONT_FOLLOW: u32 = 0x0200_0000;
    pub const IN_EXCL_UNLINK: u32 = 0x0400_0000;
    pub const IN_MASK_CREATE: u32 = 0x1000_0000;
    pub const IN_MASK_ADD: u32 = 0x2000_0000;
    pub const IN_ISDIR: u32 = 0x4000_0000;
    pub const IN_ONESHOT: u32 = 0x8000_0000;
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

/// A number that ties IN_MOVED_FROM to IN_MOVED_TO.
pub fn next_cookie() -> u32 {
    counters().cookie.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}
