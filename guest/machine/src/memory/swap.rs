//! The swap region: a file of the host for pages that have left memory (docs/memory.md).
//!
//! Key type: [`Window`], a part of it that this process has mapped to copy to it. Pages are read back by the host alone: a page
//! that has left memory is mapped from the region, private. Which pages hold what is the kernel's business.

use alloc::vec::Vec;

use doppel_abi_machine::frozen::{SEGMENT_SIZE, Segment};
use doppel_abi_machine::layout::{PAGE, SWAP_BASE};
use doppel_abi_machine::{fd, swap};

use crate::host::{self, HostError, PUNCH_HOLE_KEEP_SIZE, nr};
use crate::memory::user;
use crate::rings::control::start_info;

const EINVAL: HostError = HostError(22);

/// Pages of the region; none: there is no region.
pub fn pages() -> u64 {
    start_info().swap_size / PAGE
}

/// Frees what pages of the region hold on the host; they read as zeros afterwards.
pub fn punch(page: u64, count: u64) -> Result<(), HostError> {
    let (off, len) = (page * PAGE, count * PAGE);
    // SAFETY: the region is never referenced, only copied and mapped into user memory.
    unsafe { host::call(nr::FALLOCATE, [fd::SWAP as u64, PUNCH_HOLE_KEEP_SIZE, off, len, 0, 0]) }.map(drop)
}

/// What a [`Window`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Looking at pages.
    Read,
    /// Changing them.
    Write,
}

/// A part of the region, mapped into this process. A process has one at a time: the caller holds a lock that says so.
#[derive(Debug)]
pub struct Window {
    len: u64,
}

impl Window {
    /// Maps `count` pages from `page` on, and has the host make them present, so that a full or broken disk is an error here
    /// and not a fault later.
    pub fn open(page: u64, count: u64, how: Use) -> Result<Self, HostError> {
        let end = page.checked_add(count).filter(|end| *end <= pages());
        end.filter(|_| count > 0 && count * PAGE <= swap::WINDOW).ok_or(EINVAL)?;
        Self::map(page * PAGE, count * PAGE, how)
    }

    fn map(off: u64, len: u64, how: Use) -> Result<Self, HostError> {
        const SHARED_FIXED: u64 = 0x11;
        const POPULATE_READ: u64 = 22;
        const POPULATE_WRITE: u64 = 23;
        let (prot, advice) = match how {
            Use::Read => (1, POPULATE_READ),
            Use::Write => (3, POPULATE_WRITE),
        };
        // SAFETY: this range of the kernel's is for nothing else, and nobody has a reference into it.
        unsafe { host::call(nr::MMAP, [SWAP_BASE, len, prot, SHARED_FIXED, fd::SWAP as u64, off]) }?;
        let window = Self { len };
        // SAFETY: makes pages of that mapping present.
        unsafe { host::call(nr::MADVISE, [SWAP_BASE, len, advice, 0, 0, 0]) }?;
        Ok(window)
    }

    fn at(&self, offset: usize, len: usize) -> u64 {
        let end = (offset as u64).checked_add(len as u64);
        assert!(end.is_some_and(|end| end <= self.len), "outside of the swap window");
        SWAP_BASE + offset as u64
    }

    /// Copies `bytes` to `offset`; false if the host could not take them.
    #[must_use]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let to = self.at(offset, bytes.len());
        // SAFETY: inside the mapping, as just checked; a plain byte copy, whose faults are fixed up.
        unsafe { user::copy_raw(to, bytes.as_ptr() as u64, bytes.len() as u64) == 0 }
    }

    /// Copies from `offset`; false if the host could not give them.
    #[must_use]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        let from = self.at(offset, bytes.len());
        // SAFETY: as for write.
        unsafe { user::copy_raw(bytes.as_mut_ptr() as u64, from, bytes.len() as u64) == 0 }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: as for map. A failure leaves it mapped, and the next one takes its place.
        let _ = unsafe { host::call(nr::MUNMAP, [SWAP_BASE, self.len, 0, 0, 0, 0]) };
    }
}

/// The pages that the host wants out of memory.
pub fn list() -> Vec<Segment> {
    let mut count = [0; 8];
    if pages() == 0 {
        return Vec::new();
    }
    let Ok(window) = Window::map(start_info().swap_size, swap::LIST, Use::Read) else { return Vec::new() };
    if !window.read(0, &mut count) {
        return Vec::new();
    }
    let n = u64::from_le_bytes(count).min(swap::MOST) as usize;
    let mut bytes = alloc::vec![0; n * SEGMENT_SIZE as usize];
    if !window.read(swap::ENTRIES as usize, &mut bytes) {
        return Vec::new();
    }
    bytes.chunks_exact(SEGMENT_SIZE as usize).map(segment).collect()
}

fn segment(bytes: &[u8]) -> Segment {
    let word = |i: usize| u64::from_le_bytes(core::array::from_fn(|k| bytes[i * 8 + k]));
    Segment { space: word(0) as i32, file: 0, addr: word(1), len: word(2), offset: word(3) }
}
