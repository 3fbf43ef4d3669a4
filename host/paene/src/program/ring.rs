//! The guest kernel's ends of the rings (`common/abi/machine`, [`RingHeader`]). The other end is the host's, which is trusted;
//! an impossible index still gives no bytes rather than a panic.

use std::sync::atomic::{Ordering, fence};

use doppel_abi_machine::session::{SESSION_RINGS, SESSION_STRIDE};
use doppel_abi_machine::{RING_BYTES, RING_DATA, RING_HEADER_STRIDE, RING_STRIDE, RingHeader, control};
use doppel_sys::shared::{self, SharedMap};

/// One ring, by its places in the control area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    header: usize,
    data: usize,
}

/// What a transfer has done: how many bytes, and whether the other side waited for that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub bytes: usize,
    pub tell: bool,
}

impl Ring {
    /// Ring `index` of the console.
    pub fn console(index: usize) -> Self {
        let index = index as u64;
        Self::at(
            control::RINGS + index * RING_HEADER_STRIDE,
            control::RINGS_DATA + index * u64::from(RING_BYTES),
        )
    }

    /// Ring `index` of session `slot`.
    pub fn session(slot: usize, index: usize) -> Self {
        let start = control::SESSIONS + slot as u64 * SESSION_STRIDE;
        let header = start + SESSION_RINGS + index as u64 * RING_STRIDE;
        Self::at(header, header + RING_DATA)
    }

    fn at(header: u64, data: u64) -> Self {
        Self { header: shared::offset(header), data: shared::offset(data) }
    }

    fn header<'a>(&self, map: &'a SharedMap) -> &'a RingHeader {
        map.get(self.header)
    }

    /// The bytes from count `at` on that lie together: offset and length.
    fn run(&self, at: u32, len: u32) -> (usize, usize) {
        let position = at & (RING_BYTES - 1);
        (self.data + position as usize, len.min(RING_BYTES - position) as usize)
    }

    /// Bytes of room; asks to be told of some if there is none.
    pub fn room(&self, map: &SharedMap) -> usize {
        let h = self.header(map);
        let room = || {
            let used = h.head.load(Ordering::Relaxed).wrapping_sub(h.tail.load(Ordering::Acquire));
            RING_BYTES.saturating_sub(used) as usize
        };
        if room() > 0 {
            return room();
        }
        h.producer_waits.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        room()
    }

    /// Writes what there is room for.
    pub fn produce(&self, map: &SharedMap, bytes: &[u8]) -> Moved {
        let h = self.header(map);
        let mut done = 0;
        while done < bytes.len() {
            let head = h.head.load(Ordering::Relaxed);
            let used = head.wrapping_sub(h.tail.load(Ordering::Acquire));
            let most = u32::try_from(bytes.len() - done).unwrap_or(u32::MAX);
            let (offset, len) = self.run(head, RING_BYTES.saturating_sub(used).min(most));
            if len == 0 {
                break;
            }
            map.write(offset, &bytes[done..done + len]);
            done += len;
            h.head.store(head.wrapping_add(u32::try_from(len).expect("at most a ring")), Ordering::Release);
        }
        fence(Ordering::SeqCst);
        Moved { bytes: done, tell: done > 0 && h.consumer_waits.swap(0, Ordering::SeqCst) != 0 }
    }

    /// Whether nobody reads any more.
    pub fn hung_up(&self, map: &SharedMap) -> bool {
        self.header(map).hung_up.load(Ordering::Acquire) != 0
    }

    /// Takes what there is, up to the length of `buf`; if there is nothing, asks to be told of some.
    pub fn consume(&self, map: &SharedMap, buf: &mut [u8]) -> Moved {
        let h = self.header(map);
        let tail = h.tail.load(Ordering::Relaxed);
        let fill = || {
            let fill = h.head.load(Ordering::Acquire).wrapping_sub(tail);
            if fill > RING_BYTES { 0 } else { fill }
        };
        if fill() == 0 {
            h.consumer_waits.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
        let most = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        let (offset, len) = self.run(tail, fill().min(most));
        if len == 0 {
            return Moved::default();
        }
        map.read(offset, &mut buf[..len]);
        h.tail.store(tail.wrapping_add(u32::try_from(len).expect("at most a ring")), Ordering::Release);
        fence(Ordering::SeqCst);
        Moved { bytes: len, tell: h.producer_waits.swap(0, Ordering::SeqCst) != 0 }
    }

    /// Whether no more input will come; some may still be in the ring.
    pub fn closed(&self, map: &SharedMap) -> bool {
        self.header(map).closed.load(Ordering::Acquire) != 0
    }
}
