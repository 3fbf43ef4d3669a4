//! Pages of the page file: the memory behind files that were written to, memfds and shared mappings.
//!
//! Key types: [`PageFile`] (the allocator and its accounting), [`Object`] (one file's pages: a few
//! power-of-two extents that grow with the file, and which of their pages hold data). Never-written ranges
//! read as zeros and cost nothing. Invariants: free blocks and pages not marked present are all zeros; bytes
//! beyond `size` in present pages are zeros.
//! [`Quota`] bounds what the files of one tmpfs hold.
//! In a clone pages that nobody has written to are in its frozen image (kept.rs).
//! Lock order: object → page file. User memory is copied under the object's lock, which makes writes atomic.

mod backing;
mod dirty;
mod extents;
mod kept;
mod object;
mod pieces;

use crate::core::part::Part;
use crate::memory::commit::COMMIT;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doppel_abi_machine::frozen::Segment;
use doppel_abi_machine::layout::ARENA_BASE;
use doppel_algo::buddy::Buddy;
use doppel_machine::sync::{Once, SpinLock};
use doppel_machine::{arena, boot, host, pagefile};

use crate::memory::{Commit, LOG, MISSING};
use crate::{Errno, Result};

pub use backing::{EVICTABLE, Store};
pub use dirty::Run;
pub use object::Object;

use kept::Kept;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// From this many pages on, giving them back to the host beats overwriting them.
const PUNCH_PAGES: u64 = 16;
/// Files leave one in this many bytes of the domain's memory free.
const RESERVE: u64 = 8;
/// Largest file.
pub const MAX_SIZE: u64 = i64::MAX as u64 & !(PAGE - 1);

bitflags::bitflags! {
    /// Seals of memfds (`fcntl(2)`): what can no longer be done.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Seals: u32 {
        /// Sealing.
        const SEAL = 1;
        /// Cutting.
        const SHRINK = 2;
        /// Growing.
        const GROW = 4;
        /// Writing in any way.
        const WRITE = 8;
        /// Writing, but through mappings that are there.
        const FUTURE_WRITE = 16;
        /// Changing whether it may be executed.
        const EXEC = 32;
    }
}

impl Seals {
    /// Nothing is written through what is made from now on.
    pub const NO_WRITE: Self = Self::WRITE.union(Self::FUTURE_WRITE);
    /// The bytes stay as they are.
    pub const CONTENT: Self = Self::NO_WRITE.union(Self::SHRINK).union(Self::GROW);

    /// `self` if `on`, else none.
    #[must_use]
    pub fn when(self, on: bool) -> Self {
        if on { self } else { Self::empty() }
    }
}

/// The page file's allocator.
pub struct PageFile {
    blocks: SpinLock<Buddy>,
    /// Pages that hold data.
    used: AtomicU64,
    /// Pages in the file.
    end: u64,
    /// The domain's one account of memory, private mappings included.
    commit: &'static Commit,
    /// Some pages are in a frozen image, or it is noted what is written: whoever writes has to look.
    watched: AtomicBool,
    /// In a clone: pages that are in its frozen image.
    kept: Kept,
    /// What the host was told, while it looks.
    said: SpinLock<Vec<Segment>>,
}

/// What the files of one file system may hold together (tmpfs' `size=`).
#[derive(Debug)]
pub struct Quota {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Quota {
    /// Room for `limit` pages.
    pub fn new(limit: u64) -> Self {
        Self { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    /// Pages in use, and the most there may be.
    pub fn usage(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed))
    }

    /// Room for so many pages from now on.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    fn charge(&self, pages: u64) -> Result<()> {
        let most = self.limit.load(Ordering::Relaxed);
        let more = |used: u64| used.checked_add(pages).filter(|n| *n <= most);
        let r = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        r.map(drop).map_err(|_| Errno::ENOSPC)
    }

    fn uncharge(&self, pages: u64) {
        self.used.fetch_sub(pages, Ordering::Relaxed);
    }
}

static PAGE_FILE: Once<&'static PageFile> = Once::new();

/// Where the first process of a clone finds it.
pub static KEPT: Part<Once<&'static PageFile>> = Part::new();

/// Gives up so many bytes of pages that can be had again; false if there are none. Waits for nobody.
pub fn reclaim(bytes: u64) -> bool {
    EVICTABLE.make_room(bytes)
}

/// Makes the allocator; once, at boot, before the first fork.
pub fn init() {
    let end = pagefile::size() / PAGE;
    let pf = PageFile {
        blocks: SpinLock::new(Buddy::new(end)),
        used: AtomicU64::new(0),
        end,
        commit: COMMIT.get(),
        watched: AtomicBool::new(false),
        kept: Kept::default(),
        said: SpinLock::default(),
    };
    let pf: &'static PageFile = alloc::boxed::Box::leak(alloc::boxed::Box::new(pf));
    assert!(PAGE_FILE.set(pf).is_ok() && KEPT.get().set(pf).is_ok(), "page file made twice");
}

/// In a clone: the allocator is in the arena.
pub fn adopt() {
    let kept = KEPT.get().get();
    assert!(kept.is_some_and(|p| PAGE_FILE.set(p).is_ok()), "no frozen page file");
    page_file().kept.adopt();
    LOG.end();
    page_file().watched.store(true, Ordering::SeqCst);
    MISSING.set(false);
    page_file().said.lock().clear();
}

/// The page file.
pub fn page_file() -> &'static PageFile {
    match PAGE_FILE.get() {
        Some(p) => p,
        None => panic!("page file used before boot"),
    }
}

impl PageFile {
    /// Whether whoever writes has to look where pages are, and to say so.
    #[inline]
    fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// Pages that hold data, and the most there may be.
    pub fn usage(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.limit())
    }

    /// Most pages that may hold data: as many as fit in the domain's memory.
    fn limit(&self) -> u64 {
        let memory = [boot::memory_limit(), boot::start_info().host_memory].into_iter().find(|n| *n != 0);
        memory.map_or(self.end, |m| self.end.min(m / PAGE))
    }

    /// ENOSPC when the domain has no memory left for another file.
    pub fn has_room(&self) -> Result<()> {
        if arena::low() || self.commit.charge_leaving(0, RESERVE).is_err() {
            Err(Errno::ENOSPC)
        } else {
            Ok(())
        }
    }

    fn charge(&self, pages: u64) -> Result<()> {
        let old = self.used.fetch_add(pages, Ordering::Relaxed);
        if old + pages > self.limit() {
            self.used.fetch_sub(pages, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        }
        self.commit.charge_leaving(pages * PAGE, RESERVE).map_err(|_| {
            self.used.fetch_sub(pages, Ordering::Relaxed);
            Errno::ENOSPC
        })
    }

    fn uncharge(&self, pages: u64) {
        self.used.fetch_sub(pages, Ordering::Relaxed);
        self.commit.uncharge(pages * PAGE);
    }

    /// A block of at most `1 << order` pages, smaller when the page file is nearly full.
    fn alloc(&self, order: usize) -> Result<(u64, usize)> {
        let mut b = self.blocks.lock();
        (0..=order).rev().find_map(|o| b.alloc(o).map(|p| (p, o))).ok_or(Errno::ENOSPC)
    }

    fn free(&self, page: u64, order: usize) {
        self.blocks.lock().free(page, order);
    }
}

/// From here on what is written to the page file is noted, and what is `mapped` counts as written: the host copies it while the domain
/// runs. All stands still.
pub fn begin_log(mapped: impl FnOnce()) {
    let pf = page_file();
    let end = pf.blocks.lock().end_of_used();
    pf.watched.store(true, Ordering::SeqCst);
    LOG.begin(end);
    mapped();
    boot::vregs().logged.store(LOG.pages().unwrap_or(0) * PAGE, Ordering::SeqCst);
    tell(pf.kept.list());
}

/// Tells the host where the page file's content is, or forgets that: all stands still. What is still in a clone's frozen image
/// comes first, then what was written since [`begin_log`], if it has begun.
pub fn tell_host(on: bool) {
    let (pf, v) = (page_file(), boot::vregs());
    v.written_runs.store(0, Ordering::SeqCst);
    if !on {
        v.logged.store(0, Ordering::SeqCst);
        LOG.end();
        pf.watched.store(!pf.kept.is_empty(), Ordering::SeqCst);
        return tell(Vec::new());
    }
    v.logged.store(LOG.pages().unwrap_or(0) * PAGE, Ordering::SeqCst);
    let mut list = pf.kept.list();
    let written = LOG.list();
    list.extend(&written);
    tell(list);
    v.written_runs.store(written.len() as u64, Ordering::SeqCst);
}

fn tell(list: Vec<Segment>) {
    let v = boot::vregs();
    v.kept_at.store((list.as_ptr() as u64).wrapping_sub(ARENA_BASE), Ordering::SeqCst);
    v.kept_runs.store(list.len() as u64, Ordering::SeqCst);
    *page_file().said.lock() = list;
}

/// Whether whoever writes has to look where pages are, and to say so: the domain is a clone, or it is being frozen.
pub fn pages_are_watched() -> bool {
    page_file().is_watched()
}

/// Zeroes pages of the page file, giving them back to the host if that is worth it.
fn wipe(mut page: u64, count: u64) {
    LOG.note(page, count);
    let end = page + count;
    while page < end {
        // What is in the frozen image has nothing here.
        let (elsewhere, n) = page_file().kept.find(page, end - page);
        match elsewhere {
            Some(_) => page_file().kept.take(page, n),
            None if n >= PUNCH_PAGES && punch(page, n) => {}
            None => pagefile::zero(page * PAGE, (n * PAGE) as usize),
        }
        page += n;
    }
}

/// Gives pages of the page file back to the host; false if it refuses.
fn punch(page: u64, count: u64) -> bool {
    host::punch_pagefile(page * PAGE, count * PAGE).is_ok()
}
