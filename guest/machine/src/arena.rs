//! The arena allocator: the global allocator of the guest kernel, shared by all processes of a domain.
//!
//! Two levels: a buddy allocator of pages whose per-page state bytes start the arena, and free lists of
//! small blocks in size classes on top. All of its state lies in the arena itself ([`Header`]), so every
//! process sees the same heap at the same addresses.
//! Lock order: class lock → page lock; both are leaves for everybody else.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_machine::layout::{ARENA_BASE, PAGE};

use crate::sync::SpinLock;

const MAX_ORDER: usize = 18; // 1 GiB
/// Small blocks: 16 to 2048 bytes, in steps of a quarter power of two from 64 on.
const CLASSES: [u16; 24] = [
    16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280,
    1536, 1792, 2048,
];
/// Pages taken from the buddy level to fill a class.
const SLAB_ORDER: usize = 2;

/// State byte of a page: 0 in use or not a block start, otherwise 1 + order of the free block it starts.
const USED: u8 = 0;

#[repr(C)]
struct FreeBlock {
    next: *mut FreeBlock,
    prev: *mut FreeBlock,
}

struct Pages {
    free: [*mut FreeBlock; MAX_ORDER + 1],
    /// First byte of allocatable memory and number of its pages.
    base: u64,
    count: u64,
    /// Pages from here on were never allocated: they are handed out in order, without touching state bytes.
    fresh: u64,
}

struct Class {
    free: *mut u64,
}

// SAFETY: the raw pointers lead to arena memory owned by the allocator, always under its lock.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Send for Class {}

#[repr(C)]
struct Header {
    pages: SpinLock<Pages>,
    classes: [SpinLock<Class>; CLASSES.len()],
    /// Bytes in use, in pages and small blocks as handed out.
    used: AtomicU64,
    limit: AtomicU64,
}

const STATE_OFFSET: u64 = 4096;

fn header() -> &'static Header {
    // SAFETY: boot.rs mapped the arena and called init before the first allocation.
    unsafe { &*(ARENA_BASE as *const Header) }
}

fn state(page: u64) -> *mut u8 {
    (ARENA_BASE + STATE_OFFSET + page) as *mut u8
}

/// Lays out an empty arena of `size` bytes; once, at boot.
///
/// # Safety
/// The arena must be mapped, zeroed, and used by nobody.
pub(crate) unsafe fn init(size: u64) {
    assert!(size_of::<Header>() as u64 <= STATE_OFFSET);
    let pages = size / PAGE;
    let base = (ARENA_BASE + STATE_OFFSET + pages).next_multiple_of(PAGE << 4);
    let count = (ARENA_BASE + size - base) / PAGE;
    let h = Header {
        pages: SpinLock::new(Pages { free: [core::ptr::null_mut(); MAX_ORDER + 1], base, count, fresh: 0 }),
        classes: [const { SpinLock::new(Class { free: core::ptr::null_mut() }) }; CLASSES.len()],
        used: AtomicU64::new(0),
        limit: AtomicU64::new(count * PAGE),
    };
    // SAFETY: forwarded contract.
    unsafe { (ARENA_BASE as *mut Header).write(h) };
}

impl Pages {
    fn index(&self, b: *mut FreeBlock) -> u64 {
        (b as u64 - self.base) / PAGE
    }

    fn push(&mut self, order: usize, page: u64) {
        let b = (self.base + page * PAGE) as *mut FreeBlock;
        let next = self.free[order];
        // SAFETY: the block is free and inside the arena; list pointers are kept valid under the lock.
        unsafe {
            b.write(FreeBlock { next, prev: core::ptr::null_mut() });
            if !next.is_null() {
                (*next).prev = b;
            }
            *state(page) = 1 + order as u8;
        }
        self.free[order] = b;
    }

    fn unlink(&mut self, order: usize, page: u64) {
        let b = (self.base + page * PAGE) as *mut FreeBlock;
        // SAFETY: the block is on the list of this order.
        unsafe {
            let FreeBlock { next, prev } = b.read();
            if prev.is_null() {
                self.free[order] = next;
            } else {
                (*prev).next = next;
            }
            if !next.is_null() {
                (*next).prev = prev;
            }
            *state(page) = USED;
        }
    }

    fn alloc(&mut self, order: usize) -> *mut u8 {
        for o in order..=MAX_ORDER {
            let b = self.free[o];
            if b.is_null() {
                continue;
            }
            let page = self.index(b);
            self.unlink(o, page);
            for half in (order..o).rev() {
                self.push(half, page + (1 << half));
            }
            return b.cast();
        }
        // Fresh pages, aligned to the block size; what alignment skips goes to the free lists.
        let want = 1u64 << order;
        while !self.fresh.is_multiple_of(want) {
            let o = self.fresh.trailing_zeros() as usize;
            if self.fresh + (1 << o) > self.count {
                return core::ptr::null_mut();
            }
            let page = self.fresh;
            self.fresh += 1 << o;
            self.push(o, page);
        }
        if self.fresh + want > self.count {
            return core::ptr::null_mut();
        }
        let at = self.base + self.fresh * PAGE;
        self.fresh += want;
        at as *mut u8
    }

    fn free(&mut self, at: *mut u8, order: usize) {
        let mut page = (at as u64 - self.base) / PAGE;
        let mut o = order;
        while o < MAX_ORDER {
            let buddy = page ^ (1 << o);
            // SAFETY: state bytes exist for every page of the arena.
            if buddy + (1 << o) > self.fresh || unsafe { *state(buddy) } != 1 + o as u8 {
                break;
            }
            self.unlink(o, buddy);
            page &= !(1 << o);
            o += 1;
        }
        self.push(o, page);
    }
}

fn class_of(size: usize) -> Option<usize> {
    CLASSES.iter().position(|&c| usize::from(c) >= size)
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
// of two in full because slabs are page aligned), and stay valid until freed.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = effective(layout);
        let h = header();
        match class_of(size) {
            Some(c) => alloc_small(h, c),
            None => {
                let order = order_of(size);
                if order > MAX_ORDER {
                    return core::ptr::null_mut();
                }
                h.used.fetch_add(PAGE << order, Ordering::Relaxed);
                h.pages.lock().alloc(order)
            }
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let size = effective(layout);
        let h = header();
        match class_of(size) {
            Some(c) => {
                let mut class = h.classes[c].lock();
                // SAFETY: the block is at least 16 bytes and no longer used.
                unsafe { at.cast::<u64>().write(class.free as u64) };
                class.free = at.cast();
            }
            None => {
                h.used.fetch_sub(PAGE << order_of(size), Ordering::Relaxed);
                h.pages.lock().free(at, order_of(size));
            }
        }
    }
}

fn alloc_small(h: &Header, c: usize) -> *mut u8 {
    let mut class = h.classes[c].lock();
    if class.free.is_null() {
        let slab = h.pages.lock().alloc(SLAB_ORDER);
        if slab.is_null() {
            return core::ptr::null_mut();
        }
        h.used.fetch_add(PAGE << SLAB_ORDER, Ordering::Relaxed);
        let size = usize::from(CLASSES[c]);
        let n = ((PAGE as usize) << SLAB_ORDER) / size;
        for i in (0..n).rev() {
            // SAFETY: the i-th block of the fresh slab.
            unsafe {
                let b = slab.add(i * size).cast::<u64>();
                b.write(class.free as u64);
                class.free = b;
            }
        }
    }
    let b = class.free;
    // SAFETY: a free block's first word is the next free block.
    class.free = unsafe { b.read() } as *mut u64;
    b.cast()
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
