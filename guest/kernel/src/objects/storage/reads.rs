//! Reads of files under a lease: from pages that are kept, and these brought in by runs.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering;

use doppel_abi_service::storage::{BUFFER, Lease, Operation, Request, flags};
use doppel_machine::user::UserPtr;

use super::call::Call;
use super::mapped::{AT_ONCE, Held, MOST, Mapped, in_use};
use super::node::Node;
use super::writes::{LARGE, PIECE};
use crate::Result;
use crate::core::time;
use crate::objects::pages::PAGE;
use crate::objects::vfs::file::Flight;
use crate::objects::vfs::io::Output;

/// Pages that are read from the beginning of a file on, which may be read to its end.
const FIRST: u64 = 16;
/// Large reads keep nothing of a file of more pages: beyond the processor's cache they cost about as much with pages as without.
const SCANNED: u64 = (64 << 20) / PAGE;
/// A file's time of access is renewed after so long.
const TOUCH_NS: i64 = 100_000_000;

/// How bytes are read past the pages.
#[derive(Clone, Copy)]
pub(super) struct Past {
    /// From the host's device itself.
    pub direct: bool,
    /// What the service does not have of them is zeros: the file is known to be so long.
    pub filled: bool,
}

impl Node {
    /// Reads what is kept, and keeps what is read.
    pub(super) fn read_kept(
        &self,
        held: &mut Held,
        lease: Lease,
        out: &mut Output<'_>,
        offset: u64,
    ) -> Result<usize> {
        if in_use(held, lease).is_none() {
            *held = Some(Mapped::new(self.asked().size, lease)?);
        }
        self.used.store(true, Ordering::Relaxed);
        self.touch();
        let mut at = offset;
        while let Some(m) = held.as_mut() {
            at += if m.whole { m.object.read(out, at)? } else { m.object.read_here(out, at)? } as u64;
            if m.whole || out.remaining() == 0 || at >= m.object.len() {
                break;
            }
            match self.read_missing(held, out, at) {
                Ok(n) => at += n,
                Err(_) if at > offset => break,
                Err(e) => return Err(e),
            }
        }
        if let Some(m) = held.as_mut() {
            m.count(self);
        }
        Ok((at - offset) as usize)
    }

    /// Brings pages in from `at` on, where one is missing. Without room for them bytes are read past them; gives how many.
    fn read_missing(&self, held: &mut Held, out: &mut Output<'_>, at: u64) -> Result<u64> {
        let Some(m) = held.as_mut() else { return Ok(0) };
        let first = at / PAGE;
        let last = m.object.len().div_ceil(PAGE);
        if out.remaining() >= LARGE && self.goes_past(at, last) {
            let missing =
                m.object.missing(first, last.min(first + (out.remaining() as u64).div_ceil(PAGE) + 1));
            let end = ((first + missing) * PAGE).min(m.object.len());
            let done = self.read_pieces(out, at, end, Past { direct: false, filled: true })?;
            self.read_past.fetch_max(at + done, Ordering::Relaxed);
            return Ok(done);
        }
        let count = m.object.missing(first, last.min(first + self.ahead(at, out.remaining())));
        if !self.volume.storage.kept.make_room(count) && !m.is_mapped() && !self.sheds(held)? {
            self.write_out_held(held);
            if let Some(m) = held.as_mut() {
                m.clear()?;
            }
        }
        let Some(m) = held.as_mut() else { return Ok(0) };
        self.next_read.store((first + count) * PAGE, Ordering::Relaxed);
        let Some((call, got)) = self.bring(&m.object, first, count)? else { return Ok(0) };
        let skipped = (at - first * PAGE) as usize;
        if got > skipped {
            return call.give_out(out, skipped, got - skipped).map(|n| n as u64);
        }
        // The service has less than there is.
        out.zero((m.object.len() - at).min(PAGE - at % PAGE) as usize).map(|n| n as u64)
    }

    /// Whether a large read at `at` of a file of so many pages is to leave none: most bytes are read but once, and new pages cost several
    /// times what the bytes do. What is read a second time is kept, if the file is small enough to gain by that and to leave others theirs.
    fn goes_past(&self, at: u64, pages: u64) -> bool {
        let most = SCANNED.min(self.volume.storage.kept.most() / 2);
        at >= self.read_past.load(Ordering::Relaxed) || pages > most
    }

    /// Reads bytes from `at` to `end` past the pages, by a few requests at once; gives how many.
    pub(super) fn read_pieces(&self, out: &mut Output<'_>, at: u64, end: u64, how: Past) -> Result<u64> {
        let (piece, flags) = if how.direct { (BUFFER, flags::DIRECT) } else { (PIECE, 0) };
        let end = end.min(at + out.remaining() as u64);
        let mut flights = VecDeque::with_capacity(AT_ONCE);
        let (mut asked, mut done, mut ends, mut error) = (at, at, false, None);
        loop {
            if !ends && asked < end && flights.len() < AT_ONCE {
                let first = flights.is_empty();
                // Nobody who has a slot waits for another one.
                let call =
                    if first { Some(self.call()) } else { self.volume.storage.try_call(self.before()) };
                if let Some(call) = call {
                    // The device has whole pages; what is behind the file's end does not come.
                    let b = (end - asked).min(piece as u64);
                    let whole = b.next_multiple_of(if how.direct { PAGE } else { 1 });
                    call.start(Request { a: asked, b: whole, flags, ..self.request(Operation::Read) });
                    flights.push_back((call, b));
                    asked += b;
                    continue;
                }
            }
            // A slot is not left before its request is answered.
            let Some((call, want)) = flights.pop_front() else { break };
            let answer = call.finish();
            if ends {
                continue;
            }
            let taken = answer.and_then(|answer| {
                let got = answer.value.min(want) as usize;
                let given = call.give_out(out, 0, got)?;
                Ok(given + if how.filled && given == got { out.zero(want as usize - got)? } else { 0 })
            });
            ends = taken != Ok(want as usize);
            done += taken.unwrap_or(0) as u64;
            error = error.or(taken.err());
        }
        match error {
            Some(e) if done == at => Err(e),
            _ => Ok(done - at),
        }
    }

    /// How many pages to bring in for a read of so many bytes.
    fn ahead(&self, at: u64, len: usize) -> u64 {
        let want = (at % PAGE + len as u64).div_ceil(PAGE);
        let more = match self.next_read.load(Ordering::Relaxed) {
            _ if at == 0 => FIRST,
            // Two requests, so that one is done while the other's bytes are copied.
            next if next == at => 2 * MOST,
            _ => 1,
        };
        want.max(more).min(MOST * AT_ONCE as u64)
    }

    /// A read that is answered here renews the time of access, where the host does: by a read of one byte, if it may be due.
    fn touch(&self) {
        // What waits has yet to be written, and is read after it then.
        if self.waits.load(Ordering::Relaxed) {
            return;
        }
        let now = time::coarse_realtime_ns().cast_signed();
        {
            let mut seen = self.seen.lock();
            let a = &seen.attributes;
            if a.atime > a.mtime.max(a.ctime) || now - seen.touched < TOUCH_NS || a.size == 0 {
                return;
            }
            seen.touched = now;
        }
        let call = self.call();
        // Who cannot read it will be told.
        let _ = call.ask(Request { b: 1, ..self.request(Operation::Read) });
        self.changed();
    }
}

/// A read past the pages that has begun.
pub(super) struct Flying {
    call: Call,
    to: UserPtr,
    len: usize,
}

impl Node {
    /// Begins to read at most a buffer past the pages. None if the file has it in its pages, or too many requests are under way.
    pub(super) fn fly(&self, to: UserPtr, len: usize, offset: u64) -> Option<Flying> {
        if len == 0 || len > BUFFER {
            return None;
        }
        {
            let end = offset.checked_add(len as u64)?;
            let lease = self.lease();
            let mut held = self.mapped.lock();
            self.settle(&mut held);
            if in_use(&mut held, lease).is_some_and(|m| m.is_mapped() || m.is_here(offset, end)) {
                return None;
            }
            self.write_out_held(&mut held);
        }
        let call = self.volume.storage.try_call(self.before())?;
        call.start(Request { a: offset, b: len as u64, ..self.request(Operation::Read) });
        Some(Flying { call, to, len })
    }
}

impl Flight for Flying {
    fn finish(self: Box<Self>) -> Result<usize> {
        let got = self.call.finish()?.value.min(self.len as u64) as usize;
        if got == 0 { Ok(0) } else { self.call.give_out(&mut Output::user(self.to, self.len), 0, got) }
    }
}

const _: () = assert!(BUFFER as u64 == MOST * PAGE);
