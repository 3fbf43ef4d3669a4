//! The page file window: tmpfs, shared and cached file pages, mapped whole into every process.
//!
//! Programs map the same pages and may write to them at any time, so bytes are only ever copied, never
//! referenced. Offsets are checked against the window; allocation of it is the kernel's business.

use doppel_abi_machine::layout::{IMAGE_BASE, PAGEFILE_BASE};

use crate::memory::user::{self, Fault, UserPtr};
use crate::rings::control::start_info;

fn window(off: u64, len: usize) -> u64 {
    let end = off.checked_add(len as u64);
    assert!(end.is_some_and(|e| e <= start_info().pagefile_size), "page file offset out of range");
    PAGEFILE_BASE + off
}

/// Size of the page file in bytes.
pub fn size() -> u64 {
    start_info().pagefile_size
}

/// Copies from the page file into a kernel buffer.
pub fn read(off: u64, buf: &mut [u8]) {
    let src = window(off, buf.len());
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
pub fn copy_to_user(off: u64, dst: UserPtr, len: usize) -> Result<usize, Fault> {
    let src = window(off, len);
    dst.transfer(len, |d| (d, src))
}

/// Copies user memory into the page file up to the first fault; returns how many bytes.
pub fn copy_from_user(off: u64, src: UserPtr, len: usize) -> Result<usize, Fault> {
    let dst = window(off, len);
    src.transfer(len, |s| (dst, s))
}

/// Copies within the page file (ranges may not overlap).
pub fn copy(from: u64, to: u64, len: usize) {
    let src = window(from, len);
    let dst = window(to, len);
    // SAFETY: both lie in the window; a plain byte copy.
    let left = unsafe { user::copy_raw(dst, src, len as u64) };
    assert!(left == 0, "page file not accessible (host out of memory?)");
}

/// Copies into the page file from an address inside a channel.
pub(crate) fn take(to: u64, from: u64, len: usize) {
    let dst = window(to, len);
    // SAFETY: the channel is mapped for ever, and its owner has checked the range; a plain byte copy.
    let left = unsafe { user::copy_raw(dst, from, len as u64) };
    assert!(left == 0, "page file not accessible (host out of memory?)");
}

/// Copies from the page file to an address inside a channel.
pub(crate) fn give(from: u64, to: u64, len: usize) {
    let src = window(from, len);
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
