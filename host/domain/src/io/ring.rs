//! The host's ends of the console rings.
//!
//! Each end keeps a private copy of its own index; the domain's index is an allegation: read once,
//! checked, and an impossible one makes the ring [`Broken`], which ends the domain.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};

use doppel_abi_machine::session::{SESSION_RING_COUNT, SESSION_RINGS, SESSION_STRIDE, SESSIONS};
use doppel_abi_machine::{
    RING_BYTES, RING_DATA, RING_HEADER_STRIDE, RING_STRIDE, RingHeader, VirtualRegisters, control,
};
use doppel_sys::shared::{self, SharedMap};
use rustix::thread::futex;

/// The domain broke the ring protocol.
#[derive(Debug)]
pub(crate) struct Broken;

/// Why a transfer stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The domain broke the protocol.
    Broken,
    /// The host's descriptor failed.
    Io(io::Error),
}

impl From<Broken> for Stop {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

/// Where ring `index` lies in the control area.
#[derive(Clone, Copy, Debug)]
struct RingOffsets {
    header: usize,
    data: usize,
}

impl RingOffsets {
    /// Ring `index` of the console.
    fn of(index: usize) -> Self {
        let index = index as u64;
        Self::at(
            control::RINGS + index * RING_HEADER_STRIDE,
            control::RINGS_DATA + index * u64::from(RING_BYTES),
        )
    }

    /// Ring `index` of a session.
    fn session(slot: usize, index: usize) -> Self {
        assert!(slot < SESSIONS && index < SESSION_RING_COUNT, "ring {index} of session {slot}");
        let start = control::SESSIONS + slot as u64 * SESSION_STRIDE;
        let header = start + SESSION_RINGS + index as u64 * RING_STRIDE;
        Self::at(header, header + RING_DATA)
    }

    fn at(header: u64, data: u64) -> Self {
        Self { header: shared::offset(header), data: shared::offset(data) }
    }

    fn header(self, map: &SharedMap) -> &RingHeader {
        map.get(self.header)
    }

    /// The contiguous part of `len` bytes at `index`: offset in the map and length.
    fn run(self, index: u32, len: u32) -> (usize, usize) {
        let position = index & (RING_BYTES - 1);
        let len = len.min(RING_BYTES - position);
        (self.data + position as usize, len as usize)
    }
}

/// A ring the domain writes and the host reads.
#[derive(Debug)]
pub(crate) struct OutputRing {
    offsets: RingOffsets,
    tail: u32,
    /// What the domain knows of that: those before it are gone for good.
    told: u32,
}

impl OutputRing {
    pub fn new(index: usize) -> Self {
        Self { offsets: RingOffsets::of(index), tail: 0, told: 0 }
    }

    /// Ring `index` of a session that begins.
    pub fn session(slot: usize, index: usize) -> Self {
        Self { offsets: RingOffsets::session(slot, index), tail: 0, told: 0 }
    }

    /// Goes on where another process has stopped: at what it said it had taken, or, if that is what it could not say any
    /// more, up to `taken`.
    pub fn resume(&mut self, map: &SharedMap, taken: Option<u32>) {
        let header = self.offsets.header(map);
        self.tail = header.tail.load(Ordering::Acquire);
        // An index that is no further than what waits.
        let waiting = header.head.load(Ordering::Acquire).wrapping_sub(self.tail);
        if let Some(taken) = taken
            && taken.wrapping_sub(self.tail) <= waiting.min(RING_BYTES)
        {
            self.tail = taken;
            header.tail.store(taken, Ordering::Release);
        }
        self.told = self.tail;
    }

    /// Bytes taken so far, modulo 2^32.
    pub fn taken(&self) -> u32 {
        self.tail
    }

    /// Bytes waiting.
    pub fn available(&self, map: &SharedMap) -> Result<u32, Broken> {
        let head = self.offsets.header(map).head.load(Ordering::Acquire);
        let fill = head.wrapping_sub(self.tail);
        if fill > RING_BYTES { Err(Broken) } else { Ok(fill) }
    }

    /// Copies waiting bytes to `buf`, without taking them; returns how many.
    pub fn peek(&self, map: &SharedMap, buf: &mut [u8]) -> Result<usize, Broken> {
        let most = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        let (offset, len) = self.offsets.run(self.tail, self.available(map)?.min(most));
        map.read(offset, &mut buf[..len]);
        Ok(len)
    }

    /// Takes the first `n` bytes, which were seen by [`Self::peek`].
    pub fn advance(&mut self, map: &SharedMap, n: usize) {
        self.take(n);
        self.tell_taken(map, self.tail);
    }

    /// Takes the first `n` bytes, but leaves them in the ring until [`Self::tell_taken`]: whoever goes on with it finds
    /// them there.
    pub fn take(&mut self, n: usize) {
        self.tail = self.tail.wrapping_add(u32::try_from(n).expect("at most a ring"));
    }

    /// Tells the domain that bytes before `at`, which were taken, need no room any more; false if it knows.
    pub fn tell_taken(&mut self, map: &SharedMap, at: u32) -> bool {
        let more = at.wrapping_sub(self.told);
        if more == 0 || more > self.tail.wrapping_sub(self.told) {
            return false;
        }
        self.told = at;
        self.offsets.header(map).tail.store(at, Ordering::Release);
        true
    }

    /// Whether bytes that were taken are in the ring yet.
    pub fn holds_back(&self) -> bool {
        self.told != self.tail
    }

    /// Bytes that were taken and are in the ring yet are not taken.
    pub fn rewind(&mut self) {
        self.tail = self.told;
    }

    /// Forgets all waiting bytes.
    pub fn discard(&mut self, map: &SharedMap) -> Result<(), Broken> {
        self.tail = self.tail.wrapping_add(self.available(map)?);
        self.tell_taken(map, self.tail);
        Ok(())
    }

    /// Says that nobody will read any more.
    pub fn hang_up(&self, map: &SharedMap) {
        self.offsets.header(map).hung_up.store(1, Ordering::Release);
    }

    /// Whether the domain waits for room; asking takes the request.
    pub fn take_producer_waits(&self, map: &SharedMap) -> bool {
        fence(Ordering::SeqCst);
        let word = &self.offsets.header(map).producer_waits;
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
    }

    /// Asks for the doorbell on the next byte; false if there are bytes already.
    pub fn sleep(&self, map: &SharedMap) -> Result<bool, Broken> {
        self.offsets.header(map).consumer_waits.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(self.available(map)? == 0)
    }
}

/// A ring the host writes and the domain reads.
#[derive(Debug)]
pub(crate) struct InputRing {
    offsets: RingOffsets,
    head: u32,
}

impl InputRing {
    pub fn new(index: usize) -> Self {
        Self { offsets: RingOffsets::of(index), head: 0 }
    }

    /// Ring `index` of a session that begins.
    pub fn session(slot: usize, index: usize) -> Self {
        Self { offsets: RingOffsets::session(slot, index), head: 0 }
    }

    /// Goes on where another process has stopped.
    pub fn resume(&mut self, map: &SharedMap) {
        self.head = self.offsets.header(map).head.load(Ordering::Acquire);
    }

    /// Bytes written so far, modulo 2^32.
    pub fn written(&self) -> u32 {
        self.head
    }

    /// Whether nothing more will come.
    pub fn is_closed(&self, map: &SharedMap) -> bool {
        self.offsets.header(map).closed.load(Ordering::Acquire) != 0
    }

    fn room(&self, map: &SharedMap) -> Result<u32, Broken> {
        let tail = self.offsets.header(map).tail.load(Ordering::Acquire);
        let fill = self.head.wrapping_sub(tail);
        if fill > RING_BYTES { Err(Broken) } else { Ok(RING_BYTES - fill) }
    }

    /// Whether there is room; if not, asks for the doorbell when there is.
    pub fn has_room(&self, map: &SharedMap) -> Result<bool, Broken> {
        if self.room(map)? > 0 {
            return Ok(true);
        }
        self.offsets.header(map).producer_waits.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(self.room(map)? > 0)
    }

    /// Fills from `fd`; `Ok(0)` with room left means end of file.
    pub fn fill_from(&mut self, map: &SharedMap, fd: BorrowedFd<'_>) -> Result<u32, Stop> {
        let (offset, len) = self.offsets.run(self.head, self.room(map)?);
        let done = map.read_from(fd, offset, len).map_err(Stop::Io)?;
        let done = u32::try_from(done).expect("at most a ring");
        self.head = self.head.wrapping_add(done);
        self.offsets.header(map).head.store(self.head, Ordering::Release);
        Ok(done)
    }

    /// Copies as much of `bytes` as there is room for; returns how much.
    pub fn push(&mut self, map: &SharedMap, bytes: &[u8]) -> Result<usize, Broken> {
        let mut done = 0;
        // At most twice: up to the end of the ring, and from its start.
        while done < bytes.len() {
            let most = u32::try_from(bytes.len() - done).unwrap_or(u32::MAX);
            let (offset, len) = self.offsets.run(self.head, self.room(map)?.min(most));
            if len == 0 {
                break;
            }
            map.write(offset, &bytes[done..done + len]);
            done += len;
            self.head = self.head.wrapping_add(u32::try_from(len).expect("at most a ring"));
            self.offsets.header(map).head.store(self.head, Ordering::Release);
        }
        Ok(done)
    }

    /// As [`Self::push`], until there is no room and the doorbell is asked for: also says whether it comes to that.
    pub fn push_until_full(&mut self, map: &SharedMap, bytes: &[u8]) -> Result<(usize, bool), Broken> {
        // A domain that reads as fast as we write would have us here for ever, so would one that lies.
        const ROUNDS: u32 = 64;
        let mut done = 0;
        for _ in 0..ROUNDS {
            done += self.push(map, &bytes[done..])?;
            if done == bytes.len() {
                return Ok((done, false));
            }
            // Room that came meanwhile is not told by the doorbell.
            if !self.has_room(map)? {
                break;
            }
        }
        Ok((done, true))
    }

    /// Says that nothing more will come.
    pub fn close(&self, map: &SharedMap) {
        self.offsets.header(map).closed.store(1, Ordering::Release);
    }

    /// Whether the domain sleeps for input; asking takes the request.
    pub fn take_consumer_waits(&self, map: &SharedMap) -> bool {
        fence(Ordering::SeqCst);
        let word = &self.offsets.header(map).consumer_waits;
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
    }
}

/// The virtual registers of a domain.
pub(crate) fn registers(map: &SharedMap) -> &VirtualRegisters {
    map.get(shared::offset(control::VREGS))
}

/// Posts events: sets the bits, bumps the sequence, wakes whoever idles on it.
pub(crate) fn post(map: &SharedMap, bits: u64) {
    let registers = registers(map);
    registers.pending.fetch_or(bits, Ordering::SeqCst);
    registers.event_seq.fetch_add(1, Ordering::SeqCst);
    // The only possible failure is an unmapped word, and ours is mapped.
    let _ = futex::wake(&registers.event_seq, futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
mod tests;
