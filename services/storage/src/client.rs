//! One domain's channel: requests in, answers out, from several threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use doppel_abi_service::storage::{Answer, FILE_EVENTS, FileEvents, Ledger, Request, Traffic};
use doppel_ring::{Broken, Producer};
use doppel_service::Channel;
use doppel_sys::shared::{SharedMap, offset};
use rustix::io::Errno;

use crate::changes::Changes;
use crate::engine::{Pace, Takes};
use crate::nodes::Nodes;
use crate::stays::Stays;
use crate::throttle::{Limits, Throttle};

/// A domain that is served. Locks: the link, the nodes or the rates, one at a time.
#[derive(Debug)]
pub(crate) struct Client {
    link: Mutex<Link>,
    nodes: Mutex<Nodes>,
    changes: Arc<Changes>,
    pub memory: Arc<SharedMap>,
    /// Begins with the ledger.
    pub records: Arc<SharedMap>,
    /// Rates of its volumes, and what waits for them.
    throttle: Mutex<Throttle>,
    /// There are any.
    throttled: AtomicBool,
    /// Beside others.
    pub weight: AtomicU32,
    /// How long its requests take.
    pub pace: Pace,
    /// Whether who has waited for a device stays with it.
    pub stays: Stays,
    /// Requests that threads work on.
    working: AtomicU32,
    /// It has more to ask than it may have worked on.
    limited: AtomicBool,
    /// It has broken the protocol.
    broken: AtomicBool,
    /// It has files open for writing.
    pub writes: AtomicBool,
}

/// The rings.
#[derive(Debug)]
pub(crate) struct Link {
    pub channel: Channel,
    /// Answers for which there is no room in the ring.
    waiting: VecDeque<Answer>,
    /// Slots, by bits, whose requests are not answered.
    busy: u64,
    events: Producer,
    /// An event found no room.
    full: bool,
}

/// What a client has to do.
#[derive(Debug)]
pub(crate) enum Next {
    Nothing,
    Request(Request),
    /// It broke the protocol.
    Broken,
}

/// Its request has been taken then.
pub(crate) type Taken = (Arc<Client>, Request, Instant);

impl Client {
    pub fn new(channel: Channel, nodes: Nodes) -> Self {
        let (memory, records) = (channel.share(), nodes.share());
        let places = nodes.places();
        let changes = nodes.changes().clone();
        let link =
            Link { channel, waiting: VecDeque::new(), busy: 0, events: Producer::default(), full: false };
        Self {
            link: Mutex::new(link),
            changes,
            nodes: Mutex::new(nodes),
            memory,
            records,
            throttle: Mutex::new(Throttle::new(places)),
            throttled: AtomicBool::new(false),
            weight: AtomicU32::new(Limits::default().weight),
            pace: Pace::default(),
            stays: Stays::default(),
            working: AtomicU32::new(0),
            limited: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            writes: AtomicBool::new(false),
        }
    }

    /// What it knows of files.
    pub fn nodes(&self) -> MutexGuard<'_, Nodes> {
        // A thread that panics ends the process.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its rings.
    pub fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What others change in its files.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Hears what others have changed, and tells the domain; some of it.
    pub fn hear_changes(&self) {
        for _ in 0..FORMER {
            let Some((node, events)) = self.changes.former() else { break };
            match self.watch(node, events, 0) {
                // One that is not there any more is watched by nobody.
                Ok(()) | Err(Errno::STALE | Errno::NOENT) => {}
                Err(e) => doppel_service::say(format_args!("a domain's watch of a file is lost: {e}")),
            }
        }
        self.changes.hear();
        self.tell();
    }

    /// Tells the domain what waits, if there is something and room for it.
    pub fn tell(&self) {
        if self.changes.is_waiting() && self.link().tell(&self.changes).is_err() {
            self.breaks();
        }
    }

    /// Whether there is something to hear or to tell.
    fn has_changes(&self) -> bool {
        self.changes.is_told() || self.changes.is_waiting() && self.link().can_tell()
    }

    /// From here on it has these limits.
    pub fn limit(&self, limits: &Limits) {
        self.weight.store(limits.weight.max(1), Ordering::Relaxed);
        let mut throttle = self.throttle();
        throttle.set(&limits.rates, Instant::now());
        self.throttled.store(throttle.is_any(), Ordering::Relaxed);
    }

    fn throttle(&self) -> MutexGuard<'_, Throttle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that threads work on.
    pub fn working(&self) -> u32 {
        self.working.load(Ordering::SeqCst)
    }

    /// Takes its next request, if not so many are worked on.
    pub fn take(&self, most: u32, now: Instant) -> Next {
        if self.broken.load(Ordering::Relaxed) {
            return Next::Broken;
        }
        if self.has_changes() {
            self.hear_changes();
        }
        let released = self.throttled.load(Ordering::Relaxed) && self.may_take(most);
        if let Some(request) = released.then(|| self.throttle().ready(now)).flatten() {
            return self.takes(request, now);
        }
        loop {
            let taken = self.link().take(|| self.may_take(most));
            match taken {
                // No more than there are slots.
                Ok(Some(request)) if self.holds_back(&request, now) => {}
                Ok(Some(request)) => return self.takes(request, now),
                Ok(None) => return Next::Nothing,
                Err(Broken) => return Next::Broken,
            }
        }
    }

    fn takes(&self, request: Request, now: Instant) -> Next {
        self.working.fetch_add(1, Ordering::SeqCst);
        self.pace.begins(Takes::of(&request), now);
        Next::Request(request)
    }

    /// Holds a request back, if its rates want that.
    fn holds_back(&self, request: &Request, now: Instant) -> bool {
        if !self.throttled.load(Ordering::Relaxed) {
            return false;
        }
        // What is of no volume will be answered so.
        let Ok(volume) = self.nodes().volume_of(request.node) else { return false };
        let mut throttle = self.throttle();
        let goes_on = throttle.admit(usize::try_from(volume).unwrap_or(usize::MAX), request, now);
        self.throttled.store(throttle.is_any(), Ordering::Relaxed);
        !goes_on
    }

    /// When something that is held back may go on.
    pub fn release(&self) -> Option<Instant> {
        if self.throttled.load(Ordering::Relaxed) { self.throttle().next() } else { None }
    }

    fn has_released(&self) -> bool {
        self.release().is_some_and(|when| when <= Instant::now())
    }

    fn may_take(&self, most: u32) -> bool {
        if self.working.load(Ordering::SeqCst) < most {
            return true;
        }
        self.limited.store(true, Ordering::SeqCst);
        // Who has just finished may have looked before that.
        self.working.load(Ordering::SeqCst) < most
    }

    /// Whether it has something to say that may be heard; who breaks the protocol is found at work.
    pub fn speaks(&self, most: u32) -> bool {
        let speaks = self.broken.load(Ordering::Relaxed)
            || self.has_released()
            || self.has_changes()
            || self.link().channel.speaks().unwrap_or(true);
        speaks && self.may_take(most)
    }

    /// It has broken the protocol, as the leader is to see.
    pub fn breaks(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Whether one request is worked on, and no other one is there.
    pub fn asks_no_more(&self) -> bool {
        self.working() == 1 && !self.link().channel.speaks().unwrap_or(true)
    }

    /// Asks for its doorbell; false if there is something to do.
    pub fn sleeps(&self, most: u32) -> bool {
        let silent = self.link().channel.sleep().unwrap_or(false)
            && !self.broken.load(Ordering::Relaxed)
            && !self.has_released()
            && !self.has_changes();
        silent || !self.may_take(most)
    }

    /// Answers a request. True: it waits to have more worked on.
    pub fn answer(
        &self,
        answer: Option<Answer>,
        (begun, takes): (Instant, Takes),
        mut t: Traffic,
        alone: bool,
    ) -> bool {
        let now = Instant::now();
        let took = now.saturating_duration_since(begun);
        self.pace.ends(takes, now, answer.is_some().then_some(took));
        if let Some(answer) = answer {
            t.operations = 1;
            t.nanoseconds = took.as_nanos() as u64;
            self.records.get::<Ledger>(0).add(&t);
            let mut link = self.link();
            if link.answer(answer).is_err() {
                self.broken.store(true, Ordering::Relaxed);
            }
            // Whoever waits for news may sleep for long.
            if alone {
                link.channel.insist();
            }
        }
        self.working.fetch_sub(1, Ordering::SeqCst);
        self.limited.swap(false, Ordering::SeqCst)
    }

    /// Tells the guest kernel of what it was to look at by itself.
    pub fn insist(&self) {
        self.link().channel.insist();
    }

    /// Closes what was not written lately; false if there is nothing left to close.
    pub fn close_writers(&self, now: Instant) -> bool {
        let left = self.nodes.try_lock().map_or(true, |mut nodes| nodes.close_writers(now));
        self.writes.store(left, Ordering::Relaxed);
        left
    }
}

impl Link {
    fn take(&mut self, may: impl FnOnce() -> bool) -> Result<Option<Request>, Broken> {
        // Nobody is heard who does not take answers, so these cannot become more and more.
        if !self.flush()? || !self.channel.speaks()? || !may() {
            return Ok(None);
        }
        // Nobody marks anything here.
        self.channel.marked(|_| {});
        let Some(entry) = self.channel.hear_one()? else { return Ok(None) };
        let request = Request::decode(&entry).map_err(|_| Broken)?;
        if request.operation.is_answered() {
            let bit = 1u64.checked_shl(request.slot.into()).ok_or(Broken)?;
            if self.busy & bit != 0 {
                return Err(Broken);
            }
            self.busy |= bit;
        }
        Ok(Some(request))
    }

    /// Tells of events, as far as there is room.
    fn tell(&mut self, changes: &Changes) -> Result<(), Broken> {
        if !self.channel.agreed() {
            return Ok(());
        }
        let memory = self.channel.share();
        let ring = memory.get::<FileEvents>(offset(FILE_EVENTS)).ring();
        self.full = false;
        while let Some(event) = changes.next() {
            if event.put(&mut self.events, &ring)? {
                changes.took();
            } else {
                self.full = true;
                if !self.can_tell() {
                    break;
                }
            }
        }
        // All news wake by one word, so the ring's own is not looked at.
        let _ = self.events.publish(&ring);
        self.channel.mark(0);
        self.channel.wake();
        Ok(())
    }

    /// Whether there is room for events; if not, the guest kernel tells when there is some.
    fn can_tell(&mut self) -> bool {
        if !self.channel.agreed() {
            return false;
        }
        let ring = self.channel.get::<FileEvents>(FILE_EVENTS).ring();
        // It may have told of less than enough.
        !self.full
            || self.events.sleep(&ring).is_ok() && self.events.room(&ring).is_ok_and(|room| room >= ROOM)
    }

    fn answer(&mut self, answer: Answer) -> Result<(), Broken> {
        self.waiting.push_back(answer);
        self.flush().map(drop)
    }

    /// Puts answers into the ring; false if it is full.
    fn flush(&mut self) -> Result<bool, Broken> {
        let mut fits = true;
        while fits && let Some(answer) = self.waiting.front() {
            fits = self.channel.answer(&answer.encode(), true)?;
            if fits {
                self.busy &= !(1u64.checked_shl(answer.slot.into()).unwrap_or(0));
                self.waiting.pop_front();
            }
        }
        self.channel.wake();
        Ok(fits)
    }
}

/// Watches of a predecessor that are had again at once.
const FORMER: usize = 32;
/// Room in the ring of events for which one that was full is looked at again: more than any event takes.
const ROOM: u32 = 64;

/// Between two looks for files that are not written any more.
pub(crate) const WRITERS: Duration = Duration::from_millis(200);
