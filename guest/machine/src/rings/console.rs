//! The guest's side of byte rings (`common/abi/machine`, [`RingHeader`]): those of the console and those of sessions.
//!
//! The host is trusted more than a program is, but indices are still checked: a broken ring gives no data
//! rather than a wild copy. Calls are made under the kernel's own lock, one producer and consumer per ring.

use core::sync::atomic::{Ordering, fence};

use doppel_abi_machine::layout::CONTROL_BASE;
use doppel_abi_machine::session::{SESSION_RING_COUNT, SESSION_RINGS, SESSION_STRIDE, SESSIONS};
use doppel_abi_machine::{
    CONSOLE_RINGS, RING_BYTES, RING_DATA, RING_HEADER_STRIDE, RING_STRIDE, RingHeader, control,
};

use crate::host;

/// One byte ring, by its addresses in the control area, which is mapped for ever.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    header: u64,
    data: u64,
}

impl Ring {
    /// Ring `index` of the console.
    pub fn console(index: usize) -> Self {
        assert!(index < CONSOLE_RINGS);
        let index = index as u64;
        Self {
            header: CONTROL_BASE + control::RINGS + index * RING_HEADER_STRIDE,
            data: CONTROL_BASE + control::RINGS_DATA + index * u64::from(RING_BYTES),
        }
    }

    /// Ring `index` of session `slot`.
    pub fn session(slot: usize, index: usize) -> Self {
        assert!(slot < SESSIONS && index < SESSION_RING_COUNT);
        let start = CONTROL_BASE + control::SESSIONS + slot as u64 * SESSION_STRIDE;
        let header = start + SESSION_RINGS + index as u64 * RING_STRIDE;
        Self { header, data: header + RING_DATA }
    }

    fn header(&self) -> &'static RingHeader {
        // SAFETY: the constructors give addresses of whole rings in the control area only, which is mapped for ever;
        // a header is all atomics.
        unsafe { &*(self.header as *const RingHeader) }
    }

    /// Copies between `buf` and the ring from count `at` on, wrapping; `write` tells the direction.
    fn copy(&self, at: u32, buf: *mut u8, len: usize, write: bool) {
        let pos = (at & (RING_BYTES - 1)) as usize;
        let first = len.min(RING_BYTES as usize - pos);
        // SAFETY: pos + first and len - first stay inside the ring's data; buf has len bytes (callers below);
        // both sides use plain byte copies.
        unsafe {
            let d = self.data as *mut u8;
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
    pub fn produce(&self, buf: &[u8]) -> usize {
        let h = self.header();
        let head = h.head.load(Ordering::Relaxed);
        let used = head.wrapping_sub(h.tail.load(Ordering::Acquire));
        let room = RING_BYTES.saturating_sub(used) as usize;
        let n = buf.len().min(room);
        if n == 0 {
            return 0;
        }
        self.copy(head, buf.as_ptr().cast_mut(), n, true);
        h.head.store(head.wrapping_add(n as u32), Ordering::Release);
        fence(Ordering::SeqCst);
        if h.consumer_waits.swap(0, Ordering::SeqCst) != 0 {
            host::ring_doorbell();
        }
        n
    }

    /// Bytes of room in an output ring.
    pub fn room(&self) -> usize {
        let h = self.header();
        let used = h.head.load(Ordering::Relaxed).wrapping_sub(h.tail.load(Ordering::Acquire));
        RING_BYTES.saturating_sub(used) as usize
    }

    /// Says that the guest will sleep until there is room; re-check [`Self::room`] afterwards.
    pub fn wait_for_room(&self) {
        self.header().producer_waits.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether the host reads this output ring no more.
    pub fn hung_up(&self) -> bool {
        self.header().hung_up.load(Ordering::Acquire) != 0
    }

    /// Takes up to `buf.len()` bytes of an input ring; returns how many.
    pub fn consume(&self, buf: &mut [u8]) -> usize {
        let h = self.header();
        let tail = h.tail.load(Ordering::Relaxed);
        let fill = h.head.load(Ordering::Acquire).wrapping_sub(tail);
        if fill > RING_BYTES {
            return 0;
        }
        let n = buf.len().min(fill as usize);
        if n == 0 {
            return 0;
        }
        self.copy(tail, buf.as_mut_ptr(), n, false);
        h.tail.store(tail.wrapping_add(n as u32), Ordering::Release);
        fence(Ordering::SeqCst);
        if h.producer_waits.swap(0, Ordering::SeqCst) != 0 {
            host::ring_doorbell();
        }
        n
    }

    /// Bytes waiting in an input ring.
    pub fn available(&self) -> usize {
        let h = self.header();
        let fill = h.head.load(Ordering::Acquire).wrapping_sub(h.tail.load(Ordering::Relaxed));
        if fill > RING_BYTES { 0 } else { fill as usize }
    }

    /// Says that the guest will sleep until there is input; re-check [`Self::available`] afterwards.
    pub fn wait_for_input(&self) {
        self.header().consumer_waits.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether the host has closed this input ring; data before that may still be waiting.
    pub fn closed(&self) -> bool {
        self.header().closed.load(Ordering::Acquire) != 0
    }
}

/// Writes a whole line of the kernel log, waiting a bounded time for room: lines are lost rather than the
/// domain blocked on a host that does not read.
pub fn log(mut bytes: &[u8]) {
    for _ in 0..200 {
        let n = Ring::console(doppel_abi_machine::ring::LOG).produce(bytes);
        bytes = &bytes[n..];
        if bytes.is_empty() {
            return;
        }
        host::ring_doorbell();
        let word = core::sync::atomic::AtomicU32::new(0);
        host::futex_wait(&word, 0, Some(crate::clock::host_monotonic_ns() + 1_000_000));
    }
}
