//! Bytes of files that wait in the domain, under a lease that allows it: which they are, and how they go to the service.
//!
//! They go when a program asks for it or for what follows from them (fsync, attributes, another size), when there are too many, some
//! seconds after they were written, and when the lease is taken back. Threads wait for what they send; PID 1 must not, and looks
//! again for the answers ([`Flight`]).

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_service::storage::{Answer, BUFFER, Operation, Request};
use doppel_machine::sync::SpinLock;

use super::call::Call;
use super::mapped::{AT_ONCE, Held, Mapped};
use super::node::Node;
use super::{Storage, result, storage};
use crate::core::time::{self, Expire};
use crate::objects::pages::{PAGE, page_file};
use crate::{Errno, Result, kernel};

/// How long bytes wait.
pub(super) const AGE_NS: u64 = 5_000_000_000;
/// Most bytes that wait; and one in so many of the domain's memory.
const MOST: u64 = 256 << 20;
const PART: u64 = 8;
/// What lies so many bytes apart at most is written at once.
const NEAR: u64 = 64 << 10;
/// Requests of PID 1 that are under way at once.
const BEHIND: usize = 16;
/// Bytes of pages that a file gives back at once to make room for more of its own: to give all back takes a large one a quarter of a second.
const SHED: u64 = 16 << 20;
/// Between two looks of PID 1 for answers.
pub(super) const LOOK_NS: u64 = 1_000_000;
/// Files that it looks at, at once.
const LOOKS: usize = 64;
/// Files that may have bytes that wait; of more, the oldest one's go while the next ones are written.
const FILES: usize = 32;

/// A request to write that is under way.
pub(super) struct Flight {
    file: Arc<Node>,
    call: Call,
    len: u64,
    /// How many of them have waited.
    waited: u64,
}

/// All files with bytes that wait.
#[derive(Default)]
pub(super) struct Unwritten {
    bytes: AtomicU64,
    /// In the order in which they had some, with the time of that.
    files: SpinLock<BTreeMap<u64, (u64, Arc<Node>)>>,
    last: AtomicU64,
    /// What PID 1 has sent.
    flights: SpinLock<Vec<Flight>>,
    /// When PID 1 is to look; 0: it need not.
    look: AtomicU64,
}

impl Unwritten {
    /// Most bytes that may wait.
    fn most() -> u64 {
        MOST.min(page_file().usage().1 * PAGE / PART)
    }

    pub fn is_full(&self) -> bool {
        self.bytes() > Self::most()
    }

    fn is_half_full(&self) -> bool {
        self.bytes() > Self::most() / 2
    }

    /// Bytes that wait, or are under way.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// All files, the oldest first.
    pub fn files(&self) -> Vec<Arc<Node>> {
        self.files.lock().values().map(|(_, file)| file.clone()).collect()
    }

    /// Files whose bytes are to go now.
    fn due(&self, now: u64) -> Vec<Arc<Node>> {
        let full = self.is_half_full();
        let files = self.files.lock();
        let due =
            files.values().filter(|(since, file)| full || since + AGE_NS <= now || file.is_taken_back());
        due.map(|(_, file)| file.clone()).take(LOOKS).collect()
    }

    /// The oldest file whose bytes are not under way, if there are many.
    fn oldest_of_many(&self) -> Option<Arc<Node>> {
        let files = self.files.lock();
        if files.len() <= FILES {
            return None;
        }
        let mut oldest = files.values().take(BEHIND).map(|(_, file)| file);
        oldest.find(|file| file.flying.load(Ordering::SeqCst) == 0).cloned()
    }

    /// Has PID 1 look at `when`, if it does not look before.
    pub(super) fn arm(&self, when: u64) {
        let before = self.look.load(Ordering::SeqCst);
        if (before == 0 || when < before)
            && self.look.compare_exchange(before, when, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            kernel().timekeeper.arm(when, Arc::new(Look));
        }
    }
}

/// PID 1 looks.
struct Look;

impl Expire for Look {
    fn expire(self: Arc<Self>, now: u64) {
        let Some(storage) = storage() else { return };
        let look = &storage.unwritten.look;
        // Otherwise there is another one to come.
        if look.load(Ordering::SeqCst) <= now {
            look.store(0, Ordering::SeqCst);
            storage.write_behind(now);
        }
    }
}

impl Storage {
    /// PID 1: sends what is due, and looks for answers.
    pub(super) fn write_behind(&'static self, now: u64) {
        self.hear();
        self.land();
        if let Some(next) = self.names_behind(now, false) {
            self.unwritten.arm(next);
        }
        for file in self.unwritten.due(now) {
            // Somebody works with it: another time.
            let Some(mut held) = file.mapped.try_lock() else { continue };
            file.send_behind(&mut held);
        }
        let flies = !self.unwritten.flights.lock().is_empty();
        let next = self.unwritten.files.lock().values().next().map(|(since, _)| since + AGE_NS);
        if flies || next.is_some() {
            let soon = flies || self.unwritten.is_half_full() || next.is_some_and(|next| next <= now);
            self.unwritten.arm(if soon { now + LOOK_NS } else { next.unwrap_or(now) });
        }
    }

    /// Somebody writes a further file: sends an older one's bytes, and waits for nothing.
    fn send_oldest(&'static self) {
        let Some(oldest) = self.unwritten.oldest_of_many() else { return };
        self.hear();
        self.land();
        if let Some(mut held) = oldest.mapped.try_lock() {
            oldest.send_behind(&mut held);
        }
        self.unwritten.arm(time::monotonic_ns() + LOOK_NS);
    }

    /// PID 1 is about to sleep: looks whether a lease was taken back.
    pub(super) fn look_at_leases(&'static self) {
        if self.names_are_taken_back() {
            return self.write_behind(time::monotonic_ns());
        }
        if self.unwritten.files.lock().is_empty() {
            return;
        }
        let taken_back = |root: &Arc<Node>| !root.volume.is_written() && !root.lease().may_delay();
        let roots: Vec<_> = self.roots.lock().iter().filter_map(Weak::upgrade).collect();
        if roots.iter().any(taken_back) {
            self.write_behind(time::monotonic_ns());
        }
    }

    /// Ends what PID 1 has sent and was answered.
    fn land(&self) {
        loop {
            let landed = {
                let mut flights = self.unwritten.flights.lock();
                let found = flights.iter().enumerate().find_map(|(i, f)| Some((i, f.call.answered()?)));
                found.map(|(i, answer)| (flights.swap_remove(i), answer))
            };
            let Some((flight, answer)) = landed else { return };
            let (file, slot) = (flight.file.clone(), flight.call.slot());
            flight.end(result(answer));
            file.flying.fetch_sub(1, Ordering::SeqCst);
            self.waiting[usize::from(slot)].notify_all();
            // Who has the lock looks by itself.
            if let Some(held) = file.mapped.try_lock() {
                file.is_written(&held);
            }
        }
    }

    /// The slot of something that PID 1 has sent for a file.
    fn flight_of(&self, file: &Node) -> Option<u16> {
        let flights = self.unwritten.flights.lock();
        flights.iter().find(|f| core::ptr::eq(Arc::as_ptr(&f.file), file)).map(|f| f.call.slot())
    }

    /// Sends all that waits. The caller holds no lock, and may wait.
    pub(super) fn write_all_out(&self) {
        self.flush_all_names();
        self.unwritten.files().iter().for_each(|file| file.write_out());
    }

    /// PID 1, when the domain ends: sends all that waits, for as long as that takes within reason.
    pub(super) fn write_at_the_end(&'static self) {
        let until = time::monotonic_ns() + AGE_NS;
        while !self.send_all() && time::monotonic_ns() < until {
            self.nap();
        }
    }

    /// PID 1: sends what waits, as much as can be under way, and ends what was answered; whether nothing is left.
    pub(super) fn send_all(&'static self) -> bool {
        let _ = self.names_behind(time::monotonic_ns(), true);
        for file in self.unwritten.files() {
            if let Some(mut held) = file.mapped.try_lock() {
                file.send_behind(&mut held);
            }
        }
        self.hear();
        self.land();
        self.unwritten.files.lock().is_empty() && self.names_are_flushed()
    }
}

impl Flight {
    /// It was answered.
    fn end(self, answer: Result<Answer>) {
        let done = answer.and_then(|a| if a.value == self.len { Ok(()) } else { Err(Errno::ENOSPC) });
        match done {
            Ok(()) => drop(self.file.note(&self.call, true)),
            // The bytes are lost, as on Linux: who syncs is told.
            Err(e) => {
                self.file.changed();
                self.file.failed.tell(e);
            }
        }
        self.file.volume.storage.unwritten.bytes.fetch_sub(self.waited, Ordering::Relaxed);
    }
}

/// What became of bytes that waited and could not be written: each open file is told once, at its next sync.
#[derive(Default)]
pub(super) struct Failed(SpinLock<Failures>);

#[derive(Default)]
struct Failures {
    /// How often that happened, and why the last time.
    count: u32,
    why: u16,
    /// By open file: how many it was told of.
    seen: Vec<(usize, u32)>,
}

impl Failed {
    pub(super) fn tell(&self, why: Errno) {
        let mut f = self.0.lock();
        (f.count, f.why) = (f.count + 1, why.0);
    }

    /// What an open file, known by its address, is to be told now.
    pub fn take(&self, file: usize) -> Result<()> {
        let mut f = self.0.lock();
        let count = f.count;
        if count == 0 {
            return Ok(());
        }
        let known = f.seen.iter().position(|(at, _)| *at == file);
        let seen = match known {
            Some(i) => core::mem::replace(&mut f.seen[i].1, count),
            None => {
                f.seen.push((file, count));
                0
            }
        };
        if seen == count { Ok(()) } else { Err(Errno(f.why)) }
    }
}

impl Node {
    /// Whether bytes wait, and no lease allows that any more.
    fn is_taken_back(&self) -> bool {
        self.waits.load(Ordering::SeqCst) && !self.lease().may_delay()
    }

    /// Bytes from `start` to `end` of its pages are to be written some time. The caller looks at the lease afterwards.
    pub(super) fn wait_with(&self, m: &mut Mapped, start: u64, end: u64) {
        let unwritten = &self.volume.storage.unwritten;
        m.mtime = time::realtime_ns().cast_signed();
        unwritten.bytes.fetch_add(m.unwritten.add(start, end), Ordering::Relaxed);
        self.changed();
        if unwritten.is_half_full() {
            unwritten.arm(time::monotonic_ns() + LOOK_NS);
        }
    }

    /// Says that bytes will wait: before any do.
    pub(super) fn begin_to_wait(&self) {
        if self.waits.swap(true, Ordering::SeqCst) {
            return;
        }
        let unwritten = &self.volume.storage.unwritten;
        self.volume.leases.begin_file(self.volume.number);
        let Some(me) = self.me.upgrade() else { return };
        let number = unwritten.last.fetch_add(1, Ordering::Relaxed);
        self.turn.store(number, Ordering::Relaxed);
        let now = time::monotonic_ns();
        unwritten.files.lock().insert(number, (now, me));
        unwritten.arm(now + AGE_NS);
        self.volume.storage.send_oldest();
    }

    /// If nothing waits any more, says so.
    pub(super) fn is_written(&self, held: &Held) -> bool {
        let waits = held.as_ref().is_some_and(|m| !m.unwritten.is_empty());
        if waits || self.flying.load(Ordering::SeqCst) > 0 {
            return false;
        }
        if self.waits.swap(false, Ordering::SeqCst) {
            let number = self.turn.load(Ordering::Relaxed);
            let gone = self.volume.storage.unwritten.files.lock().remove(&number);
            self.volume.leases.end_file(self.volume.number);
            // The caller has the file, so this is not its end.
            drop(gone);
        }
        true
    }

    /// Begins to write some of what waits, with a slot; with these flags, if that is all there is.
    fn send(&self, m: &mut Mapped, call: Call, last: u32) -> Option<Flight> {
        let most = BUFFER as u64;
        let (start, mut end) = m.unwritten.take(most)?;
        let mut waited = end - start;
        // What lies a little behind goes with it, if all between is here.
        while let Some(next) = m.unwritten.first()
            && next - end <= NEAR
            && next < start + most
            && m.object.is_present(end / PAGE, next.div_ceil(PAGE))
            && let Some((next, behind)) = m.unwritten.take(start + most - next)
        {
            waited += behind - next;
            end = behind;
        }
        let len = end - start;
        m.object.get(start, len as usize, |place, done, len| call.fill_from_pages(done, place, len));
        let other = m.mtime.cast_unsigned();
        let flags = if m.unwritten.is_empty() { last } else { 0 };
        call.start(Request { a: start, b: len, other, flags, ..self.request(Operation::Write) });
        Some(Flight { file: self.me.upgrade()?, call, len, waited })
    }

    /// Writes all that waits, and waits for that. The bytes are gone from here afterwards, if only they could not be written.
    pub(super) fn write_out_held(&self, held: &mut Held) {
        if !self.waits.load(Ordering::SeqCst) {
            return;
        }
        self.await_flights();
        if let Some(m) = held.as_mut() {
            while !m.unwritten.is_empty() {
                self.write_some(m);
            }
        }
        self.is_written(held);
    }

    /// Waits for what PID 1 has sent of its bytes.
    fn await_flights(&self) {
        let storage = self.volume.storage;
        while self.flying.load(Ordering::SeqCst) > 0 {
            match storage.flight_of(self) {
                Some(slot) => storage.wait(&storage.waiting[usize::from(slot)], || {
                    storage.hear();
                    storage.land();
                    (storage.flight_of(self) != Some(slot)).then_some(())
                }),
                // Somebody ends it.
                None => core::hint::spin_loop(),
            }
        }
    }

    /// Writes some of what waits, and waits for that.
    fn write_some(&self, m: &mut Mapped) {
        let mut flights = Vec::with_capacity(AT_ONCE);
        flights.extend(self.send(m, self.call(), 0));
        // Nobody who has a slot waits for another one.
        while flights.len() < AT_ONCE
            && !m.unwritten.is_empty()
            && let Some(call) = self.volume.storage.try_call(self.before())
        {
            flights.extend(self.send(m, call, 0));
        }
        for flight in flights {
            let answer = flight.call.finish();
            flight.end(answer);
        }
    }

    /// Whether a few more bytes may wait. If there are too many, some of this file's are written first: whoever writes much waits a little,
    /// again and again, and not once for all of it. False: it has none.
    pub(super) fn makes_way(&self, held: &mut Held) -> bool {
        if !self.volume.storage.unwritten.is_full() {
            return true;
        }
        let Some(m) = held.as_mut().filter(|m| !m.unwritten.is_empty()) else { return false };
        self.write_some(m);
        true
    }

    /// Gives some of its first pages back, for which there is no room; what waits of them is written before. False: it has none, or
    /// something has it mapped.
    pub(super) fn sheds(&self, held: &mut Held) -> Result<bool> {
        let Some(m) = held.as_mut().filter(|m| !m.is_mapped()) else { return Ok(false) };
        // What is under way is not the service's yet.
        self.await_flights();
        for _ in 0..2 {
            let Ok(first) = m.object.seek(0, true) else { return Ok(false) };
            let first = first / PAGE * PAGE;
            let waits = m.unwritten.first().map_or(u64::MAX, |first| first / PAGE * PAGE);
            let end = m.object.len().next_multiple_of(PAGE).min(waits).min(first + SHED);
            if first < end {
                m.whole = false;
                m.object.punch(first, end - first)?;
                m.count(self);
                return Ok(true);
            }
            self.write_some(m);
        }
        Ok(false)
    }

    /// Writes what waits for good, if that can be done by one request with this flag. False: what is left, and whatever was written before,
    /// is not certain to survive a power cut.
    pub(super) fn write_out_synced(&self, how: u32) -> bool {
        if !self.waits.load(Ordering::SeqCst) {
            return false;
        }
        // Names come before what is in the files.
        self.volume.flush_names();
        let mut held = self.mapped.lock();
        let flies = self.flying.load(Ordering::SeqCst) > 0;
        let Some(m) = held.as_mut().filter(|m| !flies && !m.unwritten.is_empty()) else { return false };
        let Some(flight) = self.send(m, self.call(), how) else { return false };
        let whole = m.unwritten.is_empty();
        let answer = flight.call.finish();
        let done = answer.is_ok();
        flight.end(answer);
        self.is_written(&held);
        whole && done
    }

    /// The same for who does not have the lock.
    pub(super) fn write_out(&self) {
        if self.waits.load(Ordering::SeqCst) {
            self.write_out_held(&mut self.mapped.lock());
        }
    }

    /// What waits under a lease that is not held any more is written.
    pub(super) fn settle(&self, held: &mut Held) {
        if self.waits.load(Ordering::SeqCst) && !held.as_ref().is_some_and(|m| m.is_kept(self.lease())) {
            self.write_out_held(held);
        }
    }

    /// Sends some of what waits, without waiting for answers: PID 1 sees to these.
    fn send_behind(&self, held: &mut Held) {
        // What is under way may be of the same bytes.
        if self.is_written(held) || self.flying.load(Ordering::SeqCst) > 0 {
            return;
        }
        let storage = self.volume.storage;
        let Some(m) = held.as_mut() else { return };
        while !m.unwritten.is_empty() && storage.unwritten.flights.lock().len() < BEHIND {
            let Some(call) = storage.try_call(self.before()) else { return };
            self.flying.fetch_add(1, Ordering::SeqCst);
            match self.send(m, call, 0) {
                Some(flight) => storage.unwritten.flights.lock().push(flight),
                None => drop(self.flying.fetch_sub(1, Ordering::SeqCst)),
            }
        }
    }

    /// Drops what waits behind `size`, where the file is to end.
    pub(super) fn cut(&self, m: &mut Mapped, size: u64) {
        let gone = m.unwritten.cut(size);
        self.volume.storage.unwritten.bytes.fetch_sub(gone, Ordering::Relaxed);
    }
}
