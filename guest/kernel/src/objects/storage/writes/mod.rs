//! Writes of files under a lease that lets them wait (unwritten.rs).

pub(super) mod passing;

use alloc::collections::VecDeque;

use doppel_abi_service::storage::{BUFFER, Operation, Request, flags};

use super::call::Call;
use super::mapped::{AT_ONCE, Held, Mapped, in_use};
use super::node::Node;
use crate::Errno;
use crate::Result;
use crate::core::time;
use crate::objects::pages::PAGE;
use crate::objects::vfs::file::File;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::io::Input;

/// Behind this a file system may not let a file end: it is asked at once.
const FARTHEST: u64 = 1 << 42;
/// What a file system must have room for besides what waits, so that it will take that.
const ROOM: u64 = 64 << 20;
/// How long it is relied upon that it has.
const ROOM_NS: u64 = 1_000_000_000;

/// From so many bytes on a write does not wait: to copy them once more would cost more than to ask at once.
pub(super) const LARGE: usize = 128 << 10;
/// Bytes of a request of many: the service writes one while the next is copied.
pub(super) const PIECE: usize = 128 << 10;

impl Node {
    /// Writes all there is up to `limit` by a few requests at once; gives how much, and where that ends. Without `held` the pages are the
    /// caller's care, and the bytes go to the host's device itself if they are many.
    pub(super) fn write_pieces(
        &self,
        input: &mut Input<'_>,
        offset: u64,
        limit: u64,
        mut held: Option<&mut Held>,
    ) -> Result<(usize, u64)> {
        if offset >= limit {
            return Err(Errno::EFBIG);
        }
        // What is removed may be the room for it.
        self.volume.flush_names();
        let mut flights = VecDeque::with_capacity(AT_ONCE);
        let (mut at, mut done, mut error) = (offset, 0, None);
        let direct = held.is_none() && input.remaining() >= LARGE;
        let (piece, flags) = if direct { (BUFFER, flags::DIRECT) } else { (PIECE, 0) };
        // No more is asked for; and what is under way behind a part that was not written does not count.
        let (mut ends, mut broken) = (false, false);
        loop {
            let room = usize::try_from(limit - at).unwrap_or(usize::MAX).min(piece);
            if !ends && input.remaining() > 0 && room > 0 && flights.len() < AT_ONCE {
                let first = flights.is_empty();
                // Nobody who has a slot waits for another one.
                let call =
                    if first { Some(self.call()) } else { self.volume.storage.try_call(self.before()) };
                if let Some(call) = call {
                    let n = call.gather(input, room).unwrap_or_else(|e| {
                        error = Some(e);
                        0
                    });
                    ends = n == 0;
                    if n > 0 {
                        let b = n as u64;
                        let flags = flags | self.holds();
                        call.start(Request { a: at, b, flags, ..self.request(Operation::Write) });
                        flights.push_back((call, n));
                        at += n as u64;
                    }
                    continue;
                }
            }
            // A slot is not left before its request is answered.
            let Some((call, n)) = flights.pop_front() else { break };
            let wrote = self.written(&call, n, held.as_deref_mut()).map(|(wrote, _)| wrote);
            if !broken {
                done += wrote.unwrap_or(0);
                error = error.or(wrote.err());
                broken = wrote != Ok(n);
                ends |= broken;
            }
        }
        match error {
            Some(e) if done == 0 => Err(e),
            _ => Ok((done, offset + done as u64)),
        }
    }

    /// Waits for a request to write `n` bytes, and brings what is in memory in step; gives how many it wrote, and where that ends.
    pub(super) fn written(&self, call: &Call, n: usize, held: Option<&mut Held>) -> Result<(usize, u64)> {
        let answer = call.finish().inspect_err(|_| self.changed())?;
        let wrote = Call::length(answer.value, n)?;
        let size = self.note(call, true).size;
        if let Some(m) = held.and_then(|held| in_use(held, self.lease())) {
            m.wrote(call, answer.node.saturating_sub(wrote as u64), wrote, size)?;
            m.count(self);
        }
        Ok((wrote, answer.node))
    }

    /// Writes into pages that wait to be written, if they may; gives how much, and where that ends. What is left is to be written at
    /// once, and nothing waits then.
    pub(super) fn write_waiting(
        &self,
        file: &File,
        input: &mut Input<'_>,
        offset: u64,
        append: bool,
        held: &mut Held,
    ) -> Result<(usize, u64)> {
        let mut done = Ok((0, offset));
        let large = input.remaining() >= LARGE && !self.is_kept(input, offset, append, held);
        if !large && self.may_wait(file) && self.makes_way(held) {
            done = self.write_pages(file, input, offset, append, held);
        }
        if input.remaining() > 0 || done.is_err() {
            self.write_out_held(held);
        }
        match done {
            Err(Errno::ENOSPC) => Ok((0, offset)),
            done => done,
        }
    }

    /// Whether what is to be overwritten is in memory: then that is the fastest place.
    fn is_kept(&self, input: &Input<'_>, offset: u64, append: bool, held: &mut Held) -> bool {
        let end = offset.saturating_add(input.remaining() as u64);
        let kept = in_use(held, self.lease()).filter(|_| !append);
        kept.is_some_and(|m| m.object.is_present(offset / PAGE, end.div_ceil(PAGE)))
    }

    fn may_wait(&self, file: &File) -> bool {
        const AT_ONCE: OpenFlags = OpenFlags::DSYNC.union(OpenFlags::SYNC).union(OpenFlags::DIRECT);
        self.lease().may_delay()
            && !self.volume.storage.is_closing()
            && !file.flags().intersects(AT_ONCE)
            && self.has_room()
    }

    fn write_pages(
        &self,
        file: &File,
        input: &mut Input<'_>,
        offset: u64,
        append: bool,
        held: &mut Held,
    ) -> Result<(usize, u64)> {
        let lease = self.lease();
        if in_use(held, lease).is_none() {
            *held = Some(Mapped::new(self.asked().size, lease)?);
        }
        let pages = (input.remaining() as u64).div_ceil(PAGE);
        if !self.volume.storage.kept.make_room(pages) && !self.sheds(held)? {
            self.write_out_held(held);
            if let Some(m) = held.as_mut().filter(|m| !m.is_mapped()) {
                m.clear()?;
            }
        }
        let Some(m) = held.as_mut() else { return Err(Errno::EIO) };
        let at = if append { m.object.len() } else { offset };
        let limit = file.size_limit().min(FARTHEST);
        let end = at.saturating_add(input.remaining() as u64).min(limit);
        if at >= end || !self.make_whole(m, at, end)? {
            return Ok((0, offset));
        }
        self.begin_to_wait();
        let done = m.object.write(input, at, false, limit);
        if let Ok((1.., end)) = done {
            self.wait_with(m, at, end);
        }
        m.count(self);
        if self.lease() == lease {
            self.is_written(held);
        } else {
            self.write_out_held(held);
        }
        done
    }

    /// Brings in the pages that are written in part, and have other bytes; false: there is no room.
    fn make_whole(&self, m: &Mapped, at: u64, end: u64) -> Result<bool> {
        let size = m.object.len();
        for page in [at / PAGE, (end - 1) / PAGE] {
            let (first, behind) = (page * PAGE, (page + 1) * PAGE);
            let whole = at <= first && (end >= behind || end >= size);
            let missing = !whole && !m.whole && first < size && !m.object.is_present(page, page + 1);
            if missing && self.bring(&m.object, page, 1)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the file system has room for what waits.
    fn has_room(&self) -> bool {
        let now = time::monotonic_ns();
        let (room, volume) = (&self.volume.room, &self.volume);
        let known = *room.lock();
        if known.1 > now {
            return known.0;
        }
        let call = self.ordered_call();
        let some = call.ask(self.request(Operation::StatFs)).is_ok() && {
            let bytes = call.text(5 * 8);
            let word = |i: usize| bytes.as_chunks().0.get(i).map_or(0, |w| u64::from_le_bytes(*w));
            word(1).saturating_mul(word(4)) > ROOM + volume.storage.unwritten.bytes()
        };
        *room.lock() = (some, now + ROOM_NS);
        some
    }
}
