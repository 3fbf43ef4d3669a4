//! The page file window: tmpfs, shared and cached file pages, mapped whole into every process.
//!
//! Programs map the same pages and may write to them at any time, so bytes are only ever copied, never
//! referenced. Offsets are checked against the window; allocation of it is the kernel's business.
//! In a clone pages that nobody has written to since are still in its frozen image ([`Place::Frozen`]): which ones
//! is the kernel's business too.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use doppel_abi_machine::layout::{IMAGE_BASE, PAGEFILE_BASE};

use crate::memory::frozen;
use crate::memory::user::{self, Fault, UserPtr};
use crate::rings::control::start_info;

fn window(off: u64, len: usize) -> u64 {
    let end = off.checked_add(len as u64);
    assert!(end.is_some_and(|e| e <= start_info().pagefile_size), "page file offset out of range");
    PAGEFILE_BASE + off
}

/// Where bytes lie that are only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the page file, at this offset.
    Own(u64),
    /// In what the frozen image has of the page file, at this offset ([`frozen::kept_pages`]).
    Frozen(u64),
}

impl Place {
    /// The place so many bytes further.
    #[must_use]
    pub fn behind(self, bytes: u64) -> Self {
        match self {
            Self::Own(off) => Self::Own(off + bytes),
            Self::Frozen(off) => Self::Frozen(off + bytes),
        }
    }

    #[inline]
    fn address(self, len: usize) -> u64 {
        match self {
            Self::Own(off) => window(off, len),
            Self::Frozen(off) => frozen::window(off, len),
        }
    }
}

/// Size of the page file in bytes.
pub fn size() -> u64 {
    start_info().pagefile_size
}

/// Copies from the page file into a kernel buffer.
pub fn read(from: Place, buf: &mut [u8]) {
    let src = from.address(buf.len());
    // SAFETY: src lies in the window, buf is ours; the copy is a plain byte copy without references to src.
    let left = unsafe { user::copy_raw(buf.as_mut_ptr() as u64, src, buf.len() as u64) };
    assert!(left == 0, "page file not readable (host out of memory?)");
}

/// Copies from a kernel buffer into the page file.
pub fn write(off: u64, buf: &[u8]) {
    let dst = window(off, buf.len());
    // SAFETY: as for read.
    let left = unsafe { user::copy_raw(dst, buf.as_ptr() as u64, buf.len() as u64) };
    assert!(left == 0, "page file not writable (host out of memory?)");
}

/// A word of it that is accessed as one.
fn word(address: u64) -> &'static AtomicU32 {
    assert!(address.is_multiple_of(4), "a word is not aligned");
    // SAFETY: the address was checked to lie in a window, which is mapped for ever; others write words there at any time,
    // which an atomic allows.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
}

/// Reads an aligned word; what was written before it was is seen, too.
pub fn load(from: Place) -> u32 {
    word(from.address(4)).load(Ordering::Acquire)
}

/// Writes an aligned word; whoever sees it sees what was written before.
pub fn store(off: u64, value: u32) {
    word(window(off, 4)).store(value, Ordering::Release);
}

/// Two words of it that are accessed as one.
fn long(address: u64) -> &'static AtomicU64 {
    assert!(address.is_multiple_of(8), "a word is not aligned");
    // SAFETY: as for `word`.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }
}

/// Copies a few bytes out of it, eight at a time from a multiple of eight on: that is quicker than [`read`].
#[inline]
pub fn read_words(from: Place, buf: &mut [u8]) {
    let first = from.address(buf.len());
    for (address, to) in (first..).step_by(8).zip(buf.chunks_exact_mut(8)) {
        to.copy_from_slice(&long(address).load(Ordering::Relaxed).to_ne_bytes());
    }
}

/// Copies a few bytes into it, as [`read_words`].
#[inline]
pub fn write_words(off: u64, buf: &[u8]) {
    let first = window(off, buf.len());
    for (address, from) in (first..).step_by(8).zip(buf.chunks_exact(8)) {
        let mut word = [0; 8];
        word.copy_from_slice(from);
        long(address).store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }
}

/// Fills part of the page file with zeros.
pub fn zero(off: u64, len: usize) {
    const ZEROS: [u8; 512] = [0; 512];
    let mut at = 0;
    while at < len {
        let n = (len - at).min(ZEROS.len());
        write(off + at as u64, &ZEROS[..n]);
        at += n;
    }
}

/// Copies page file bytes to user memory up to the first fault; returns how many.
pub fn copy_to_user(from: Place, dst: UserPtr, len: usize) -> Result<usize, Fault> {
    let src = from.address(len);
    dst.transfer(len, |d| (d, src))
}

/// Copies user memory into the page file up to the first fault; returns how many bytes.
pub fn copy_from_user(off: u64, src: UserPtr, len: usize) -> Result<usize, Fault> {
    let dst = window(off, len);
    src.transfer(len, |s| (dst, s))
}

/// Copies what the frozen image has to the page file; false if the host cannot read it, or has no memory.
#[must_use]
pub fn copy_from_frozen(from: u64, to: u64, len: usize) -> bool {
    let src = frozen::window(from, len);
    let dst = window(to, len);
    // SAFETY: both lie in their windows; a plain byte copy.
    let left = unsafe { user::copy_raw(dst, src, len as u64) };
    left == 0
}

/// Copies into the page file from an address inside a channel.
pub(crate) fn take(to: u64, from: u64, len: usize) {
    let dst = window(to, len);
    // SAFETY: the channel is mapped for ever, and its owner has checked the range; a plain byte copy.
    let left = unsafe { user::copy_raw(dst, from, len as u64) };
    assert!(left == 0, "page file not accessible (host out of memory?)");
}

/// Copies from the page file to an address inside a channel.
pub(crate) fn give(from: Place, to: u64, len: usize) {
    let src = from.address(len);
    // SAFETY: as for take.
    let left = unsafe { user::copy_raw(to, src, len as u64) };
    assert!(left == 0, "page file not accessible (host out of memory?)");
}

/// Copies a piece of the root image into the page file (copy-up).
pub fn copy_from_image(image_off: u64, to: u64, len: usize) {
    let end = image_off.checked_add(len as u64);
    assert!(end.is_some_and(|e| e <= start_info().image_size), "image offset out of range");
    let dst = window(to, len);
    // SAFETY: both ranges were checked; a plain byte copy.
    let left = unsafe { user::copy_raw(dst, IMAGE_BASE + image_off, len as u64) };
    assert!(left == 0, "root image not readable (truncated on the host?)");
}
