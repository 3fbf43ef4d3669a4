//! The guest's side of the console rings (`abi/machine`, [`RingHeader`]).
//!
//! The host is trusted more than a program is, but indices are still checked: a broken ring gives no data
//! rather than a wild copy. Calls are made under the kernel's own lock, one producer and consumer per ring.

use core::sync::atomic::{Ordering, fence};

use doppel_abi_machine::layout::CONTROL_BASE;
use doppel_abi_machine::{CONSOLE_RINGS, RING_BYTES, RING_DATA, RING_STRIDE, RingHeader, control};

use crate::host;

fn header(ring: usize) -> &'static RingHeader {
    assert!(ring < CONSOLE_RINGS);
    // SAFETY: the control area is mapped for ever; a header is all atomics.
    unsafe { &*((CONTROL_BASE + control::RINGS + ring as u64 * RING_STRIDE) as *const RingHeader) }
}

fn data(ring: usize) -> *mut u8 {
    (CONTROL_BASE + control::RINGS + ring as u64 * RING_STRIDE + RING_DATA) as *mut u8
}

/// Copies between `buf` and the ring from count `at` on, wrapping; `write` tells the direction.
fn copy(ring: usize, at: u32, buf: *mut u8, len: usize, write: bool) {
    let pos = (at & (RING_BYTES - 1)) as usize;
    let first = len.min(RING_BYTES as usize - pos);
    // SAFETY: pos + first and len - first stay inside the ring's data; buf has len bytes (callers below);
    // both sides use plain byte copies.
    unsafe {
        let d = data(ring);
        if write {
            core::ptr::copy_nonoverlapping(buf, d.add(pos), first);
            core::ptr::copy_nonoverlapping(buf.add(first), d, len - first);
        } else {
            core::ptr::copy_nonoverlapping(d.add(pos), buf, first);
            core::ptr::copy_nonoverlapping(d, buf.add(first), len - first);
        }
    }
}

/// Writes as much of `buf` as there is room for; returns how much. Rings the doorbell if the host sleeps.
pub fn produce(ring: usize, buf: &[u8]) -> usize {
    let h = header(ring);
    let head = h.head.load(Ordering::Relaxed);
    let used = head.wrapping_sub(h.tail.load(Ordering::Acquire));
    let room = RING_BYTES.saturating_sub(used) as usize;
    let n = buf.len().min(room);
    if n == 0 {
        return 0;
    }
    copy(ring, head, buf.as_ptr().cast_mut(), n, true);
    h.head.store(head.wrapping_add(n as u32), Ordering::Release);
    fence(Ordering::SeqCst);
    if h.consumer_waits.swap(0, Ordering::SeqCst) != 0 {
        host::ring_doorbell();
    }
    n
}

/// Bytes of room in an output ring.
pub fn room(ring: usize) -> usize {
    let h = header(ring);
    let used = h.head.load(Ordering::Relaxed).wrapping_sub(h.tail.load(Ordering::Acquire));
    RING_BYTES.saturating_sub(used) as usize
}

/// Says that the guest will sleep until there is room; re-check [`room`] afterwards.
pub fn wait_for_room(ring: usize) {
    header(ring).producer_waits.store(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// Whether the host reads this output ring no more.
pub fn hung_up(ring: usize) -> bool {
    header(ring).hung_up.load(Ordering::Acquire) != 0
}

/// Takes up to `buf.len()` bytes of an input ring; returns how many.
pub fn consume(ring: usize, buf: &mut [u8]) -> usize {
    let h = header(ring);
    let tail = h.tail.load(Ordering::Relaxed);
    let fill = h.head.load(Ordering::Acquire).wrapping_sub(tail);
    if fill > RING_BYTES {
        return 0;
    }
    let n = buf.len().min(fill as usize);
    if n == 0 {
        return 0;
    }
    copy(ring, tail, buf.as_mut_ptr(), n, false);
    h.tail.store(tail.wrapping_add(n as u32), Ordering::Release);
    fence(Ordering::SeqCst);
    if h.producer_waits.swap(0, Ordering::SeqCst) != 0 {
        host::ring_doorbell();
    }
    n
}

/// Bytes waiting in an input ring.
pub fn available(ring: usize) -> usize {
    let h = header(ring);
    let fill = h.head.load(Ordering::Acquire).wrapping_sub(h.tail.load(Ordering::Relaxed));
    if fill > RING_BYTES { 0 } else { fill as usize }
}

/// Says that the guest will sleep until there is input; re-check [`available`] afterwards.
pub fn wait_for_input(ring: usize) {
    header(ring).consumer_waits.store(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// Whether the host has closed this input ring; data before that may still be waiting.
pub fn closed(ring: usize) -> bool {
    header(ring).closed.load(Ordering::Acquire) != 0
}

/// Writes a whole line of the kernel log, waiting a bounded time for room: lines are lost rather than the
/// domain blocked on a host that does not read.
pub fn log(mut bytes: &[u8]) {
    for _ in 0..200 {
        let n = produce(doppel_abi_machine::ring::LOG, bytes);
        bytes = &bytes[n..];
        if bytes.is_empty() {
            return;
        }
        host::ring_doorbell();
        let word = core::sync::atomic::AtomicU32::new(0);
        host::futex_wait(&word, 0, Some(crate::clock::host_monotonic_ns() + 1_000_000));
    }
}
