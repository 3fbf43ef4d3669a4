//! The arena allocator: the global allocator of the guest kernel, shared by all processes of a domain.
//!
//! Two levels: a buddy allocator of pages (pages.rs), and free lists of small blocks in size classes on top. A page
//! holds blocks of one class, and is written to only as far as blocks of it were handed out. All state lies in the
//! arena itself ([`Header`]), so every process sees the same heap at the same addresses.
//!
//! Freeing makes no host call: memory goes back to the host when [`trim()`] is called, which the kernel does some time
//! after [`trim_wanted`] says that it pays, and before a freeze.
//! Lock order: class lock → chunk lock → page lock; all are leaves for everybody else.

mod pages;
mod trim;

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doppel_abi_machine::layout::{ARENA_BASE, PAGE};

use crate::sync::SpinLock;
use pages::{MAX_ORDER, Pages};
pub(crate) use trim::discard;
pub use trim::{Huge, trim, trim_wanted};

/// Small blocks: multiples of 16 bytes of which a page holds a whole number with little left over; all powers of two
/// from 32 on are among them. They are few because in a small domain half a page of each lies idle.
const CLASSES: [u16; 12] = [32, 64, 96, 128, 192, 256, 336, 512, 672, 1024, 1360, 2048];
/// The largest small block.
const SMALL: usize = 2048;
/// Class by size in units of 16 bytes, rounded up.
const CLASS_OF: [u8; SMALL / 16 + 1] = {
    let mut table = [0; SMALL / 16 + 1];
    let (mut units, mut class) = (0, 0);
    while units < table.len() {
        if units * 16 > CLASSES[class] as usize {
            class += 1;
        }
        table[units] = class as u8;
        units += 1;
    }
    table
};
/// Pages taken from the buddy level at once to be cut for the classes, so that the small objects of all classes lie
/// close together: a process that reads one page of shared memory is given those around it, up to 64 KiB, by the
/// same fault.
const CHUNK_ORDER: usize = 6;
/// So much of one class must be free before it is worth looking for whole free pages in it.
const CLASS_SPARE: u32 = 256 << 10;

struct Class {
    free: *mut u64,
    /// Blocks on the free list.
    count: u32,
    /// When there are more, somebody should [`trim()`].
    spare: u32,
    /// The part of a page that was not handed out yet: next address and end.
    next: u64,
    end: u64,
}

// SAFETY: the raw pointers lead to arena memory owned by the allocator, always under its lock.
unsafe impl Send for Class {}

#[repr(C)]
struct Header {
    pages: SpinLock<Pages>,
    classes: [SpinLock<Class>; CLASSES.len()],
    /// Rest of the chunk that pages are cut from: next address and end.
    chunk: SpinLock<(u64, u64)>,
    /// Bytes in use, in pages and pages of small blocks.
    used: AtomicU64,
    limit: AtomicU64,
    /// How much of the start of the arena is in huge pages.
    gathered: AtomicU64,
    /// [`trim_wanted`].
    trim_wanted: AtomicBool,
    /// Where to find everything else: addresses that a clone's first process starts from.
    roots: [AtomicU64; ROOTS],
}

/// Addresses kept in the arena for clones.
const ROOTS: usize = 2;
/// The machine layer's shared state.
pub(crate) const ROOT_MACHINE: usize = 0;
/// The kernel object.
pub(crate) const ROOT_KERNEL: usize = 1;

/// A root address; 0 if it was never set.
pub(crate) fn root(which: usize) -> u64 {
    header().roots[which].load(Ordering::Relaxed)
}

/// Notes a root address, for clones.
pub(crate) fn set_root(which: usize, addr: u64) {
    header().roots[which].store(addr, Ordering::Relaxed);
}

fn header() -> &'static Header {
    // SAFETY: boot.rs mapped the arena and called init before the first allocation.
    unsafe { &*(ARENA_BASE as *const Header) }
}

/// Lays out an empty arena of `size` bytes; once, at boot.
///
/// # Safety
/// The arena must be mapped, zeroed, and used by nobody.
pub(crate) unsafe fn init(size: u64) {
    assert!(size_of::<Header>() as u64 <= pages::MAP_OFFSET);
    let h = Header::new(Pages::new(ARENA_BASE, size));
    // SAFETY: forwarded contract.
    unsafe { (ARENA_BASE as *mut Header).write(h) };
}

impl Header {
    fn new(pages: Pages) -> Self {
        let limit = pages.count() * PAGE;
        let class = |size: u16| Class {
            free: core::ptr::null_mut(),
            count: 0,
            spare: CLASS_SPARE / u32::from(size),
            next: 0,
            end: 0,
        };
        Self {
            pages: SpinLock::new(pages),
            classes: core::array::from_fn(|c| SpinLock::new(class(CLASSES[c]))),
            chunk: SpinLock::new((0, 0)),
            used: AtomicU64::new(0),
            limit: AtomicU64::new(limit),
            gathered: AtomicU64::new(0),
            trim_wanted: AtomicBool::new(false),
            roots: [const { AtomicU64::new(0) }; ROOTS],
        }
    }
}

/// Continues with the arena of a frozen domain; once, at boot.
pub(crate) fn adopt() {
    // The copy is made of small pages.
    header().gathered.store(0, Ordering::Relaxed);
}

fn class_of(size: usize) -> Option<usize> {
    CLASS_OF.get(size.div_ceil(16)).map(|c| usize::from(*c))
}

fn order_of(size: usize) -> usize {
    size.div_ceil(PAGE as usize).next_power_of_two().trailing_zeros() as usize
}

/// The size a layout is rounded to: alignment above 16 is had from page blocks or power-of-two classes.
fn effective(layout: Layout) -> usize {
    if layout.align() <= 16 {
        layout.size().max(1)
    } else {
        layout.size().max(layout.align()).next_power_of_two()
    }
}

/// The guest kernel's global allocator.
pub struct Arena;

// SAFETY: blocks are disjoint, aligned (small classes: the block size's largest power of two up to 16, powers
// of two in full because they are cut from the start of a page), and stay valid until freed.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = effective(layout);
        match class_of(size) {
            Some(c) => alloc_small(header(), c),
            None => alloc_pages(header(), order_of(size)).0,
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let size = effective(layout);
        let (at, zeroed) = match class_of(size) {
            Some(c) => (alloc_small(header(), c), false),
            None => alloc_pages(header(), order_of(size)),
        };
        if !at.is_null() && !zeroed {
            // SAFETY: the block is the caller's and at least so long.
            unsafe { at.write_bytes(0, layout.size()) };
        }
        at
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller vouches for the size, and the alignment is that of a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let (old, new) = (effective(layout), effective(wanted));
        let same = match (class_of(old), class_of(new)) {
            (Some(a), Some(b)) => a == b,
            (None, None) => order_of(old) == order_of(new),
            _ => false,
        };
        if same {
            return at;
        }
        // SAFETY: forwarded contract; the new block is another one and holds the lesser of the two sizes.
        unsafe {
            let to = self.alloc(wanted);
            if !to.is_null() {
                core::ptr::copy_nonoverlapping(at, to, layout.size().min(new_size));
                self.dealloc(at, layout);
            }
            to
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let size = effective(layout);
        let h = header();
        match class_of(size) {
            // SAFETY: forwarded contract.
            Some(c) => unsafe { free_small(h, c, at) },
            None => free_pages(h, at as u64, order_of(size)),
        }
    }
}

/// A block of pages, and whether it is known to be all zeros; null when memory is used up.
fn alloc_pages(h: &Header, order: usize) -> (*mut u8, bool) {
    if order > MAX_ORDER {
        return (core::ptr::null_mut(), false);
    }
    match h.pages.lock().alloc(order) {
        Some((at, zeroed)) => {
            h.used.fetch_add(PAGE << order, Ordering::Relaxed);
            (at as *mut u8, zeroed)
        }
        None => (core::ptr::null_mut(), false),
    }
}

fn free_pages(h: &Header, at: u64, order: usize) {
    h.used.fetch_sub(PAGE << order, Ordering::Relaxed);
    let much = {
        let mut p = h.pages.lock();
        p.free(at, order, false);
        p.dirty_much()
    };
    if much {
        trim::want(h);
    }
}

/// A page for small blocks; 0 when memory is used up.
fn cut_page(h: &Header) -> u64 {
    let mut chunk = h.chunk.lock();
    let at = if chunk.0 != chunk.1 {
        chunk.0
    } else {
        let (from, order) = {
            let mut p = h.pages.lock();
            // What trim gave back comes first. When memory is nearly used up there may still be room for the page.
            if let Some((at, _)) = p.alloc_below(0, CHUNK_ORDER) {
                (at, 0)
            } else if let Some((at, _)) = p.alloc(CHUNK_ORDER) {
                (at, CHUNK_ORDER)
            } else {
                return 0;
            }
        };
        *chunk = (from, from + (PAGE << order));
        from
    };
    chunk.0 += PAGE;
    h.used.fetch_add(PAGE, Ordering::Relaxed);
    at
}

/// Blocks of a class in one page.
fn per_page(c: usize) -> u64 {
    PAGE / u64::from(CLASSES[c])
}

fn alloc_small(h: &Header, c: usize) -> *mut u8 {
    let mut class = h.classes[c].lock();
    let b = class.free;
    if !b.is_null() {
        // SAFETY: a free block's first word is the next free block.
        class.free = unsafe { b.read() } as *mut u64;
        class.count -= 1;
        return b.cast();
    }
    let size = u64::from(CLASSES[c]);
    if class.next == class.end {
        let page = cut_page(h);
        if page == 0 {
            return core::ptr::null_mut();
        }
        class.next = page;
        class.end = page + per_page(c) * size;
    }
    let at = class.next;
    class.next += size;
    at as *mut u8
}

/// Takes back a block of class `c`.
///
/// # Safety
/// It was handed out as such, and nobody uses it any more.
unsafe fn free_small(h: &Header, c: usize, at: *mut u8) {
    let mut class = h.classes[c].lock();
    // SAFETY: forwarded contract; the smallest block holds a word.
    unsafe { at.cast::<u64>().write(class.free as u64) };
    class.free = at.cast();
    class.count += 1;
    if class.count > class.spare {
        class.spare = u32::MAX;
        drop(class);
        trim::want(h);
    }
}

/// Bytes of a huge page of the host.
const HUGE: u64 = 2 << 20;
/// How much of the arena is kept in huge pages at most.
const GATHER_MAX: u64 = 16 << 20;

/// Asks the host to put the start of the arena, as far as it is used, in huge pages, except where that has been
/// done. A new address space then takes one fault for 2 MiB of kernel objects instead of one for every page it
/// touches. A host that cannot makes forks slower, no other difference; one that is hindered by what others do at
/// this moment may be asked again.
pub fn gather() {
    let h = header();
    let end = h.pages.lock().used_end().next_multiple_of(HUGE);
    let end = end.min(GATHER_MAX).min(h.limit.load(Ordering::Relaxed) / HUGE * HUGE);
    let mut at = h.gathered.load(Ordering::Relaxed);
    while at < end && crate::host::collapse_arena(at, HUGE).is_ok() {
        at += HUGE;
    }
    h.gathered.store(at, Ordering::Relaxed);
}

/// Whether [`gather`] has put some of the arena into huge pages, which [`trim()`] would take apart.
pub fn is_gathered() -> bool {
    header().gathered.load(Ordering::Relaxed) != 0
}

/// Bytes of kernel memory in use and the most there can be.
pub fn usage() -> (u64, u64) {
    let h = header();
    (h.used.load(Ordering::Relaxed), h.limit.load(Ordering::Relaxed))
}

/// Whether kernel memory is nearly used up: system calls that allocate for the program should give ENOMEM.
pub fn low() -> bool {
    let (used, limit) = usage();
    used > limit / 8 * 7
}
