//! The rings of the channel, and the slots of requests.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_service::ENTRIES;
use doppel_abi_service::storage::{Answer, FileEvent, Operation, Request, SLOTS, flags};
use doppel_machine::storage::{CHANNEL, file_events};
use doppel_ring::{Consumer, Entries, Entry, Producer, Ticket};

/// Where a slot is.
#[derive(Clone, Copy, Default)]
enum State {
    #[default]
    Free,
    /// Somebody fills it.
    Taken,
    /// Its request is under way.
    Asked(Request),
    Answered(Answer),
}

/// Requests without an answer that are kept before the service is told.
const NOTES: usize = 64;
/// Events that are taken at once.
const EVENTS: usize = 32;

/// Private side of the rings.
#[derive(Default)]
pub(super) struct Link {
    /// Whose rings these are; 0: nobody's yet.
    epoch: u32,
    /// Somebody had them before.
    again: bool,
    requests: Producer,
    answers: Consumer,
    last_ticket: u64,
    slots: Slots,
    /// Slots whose requests have no room in the ring, in order.
    queued: Vec<u16>,
    events: Consumer,
    /// Requests that nobody answers.
    notes: Vec<Request>,
    /// The domain is being frozen: threads begin nothing.
    closed: bool,
}

struct Slots([State; SLOTS as usize]);

impl Default for Slots {
    fn default() -> Self {
        Self([State::Free; SLOTS as usize])
    }
}

impl Link {
    /// Threads begin nothing from here on, or do again.
    pub fn close(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// Whether nobody has a slot.
    pub fn is_idle(&self) -> bool {
        self.slots.0.iter().all(|s| matches!(s, State::Free))
    }

    /// A slot that nobody uses, for a thread.
    pub fn take_for_thread(&mut self) -> Option<u16> {
        if self.closed { None } else { self.take() }
    }

    /// A slot that nobody uses.
    pub fn take(&mut self) -> Option<u16> {
        let slot = self.slots.0.iter().position(|s| matches!(s, State::Free))?;
        self.slots.0[slot] = State::Taken;
        u16::try_from(slot).ok()
    }

    /// One, if that leaves most of them to others.
    pub fn take_spare(&mut self) -> Option<u16> {
        let free = self.slots.0.iter().filter(|s| matches!(s, State::Free)).count();
        if free > self.slots.0.len() / 2 { self.take() } else { None }
    }

    /// It is used no more.
    pub fn give_back(&mut self, slot: u16) {
        self.slots.0[usize::from(slot)] = State::Free;
    }

    /// Asks in a slot. The caller rings the doorbell.
    pub fn ask(&mut self, slot: u16, request: Request) {
        self.last_ticket += 1;
        let request = Request { slot, ticket: Ticket(self.last_ticket), ..request };
        self.slots.0[usize::from(slot)] = State::Asked(request);
        self.queued.push(slot);
        self.flush();
    }

    /// Whether what is asked in a slot waits for the host's device.
    pub fn waits_for_device(&self, slot: u16) -> bool {
        let asked = &self.slots.0[usize::from(slot)];
        matches!(asked, State::Asked(request) if request.is_synced() || request.is_direct())
    }

    /// The answer in a slot, once.
    pub fn answered(&mut self, slot: u16) -> Option<Answer> {
        let state = &mut self.slots.0[usize::from(slot)];
        let State::Answered(answer) = *state else { return None };
        *state = State::Taken;
        Some(answer)
    }

    /// Gives a node back; true: the service is told now, ring it.
    pub fn forget(&mut self, node: u64, times: u64) -> bool {
        self.note(Request { a: times, ..Request::new(Operation::Forget, node) })
    }

    /// Asks for what is not answered; true: the service is told now, ring it.
    pub fn note(&mut self, request: Request) -> bool {
        self.notes.push(request);
        self.notes.len() >= NOTES && self.flush()
    }

    /// The same, told at once. The caller rings the doorbell.
    pub fn tell(&mut self, request: Request) {
        self.notes.push(request);
        self.flush();
    }

    /// Some events that have come.
    pub fn events(&mut self) -> Vec<FileEvent> {
        if self.epoch == 0 {
            return Vec::new();
        }
        let ring = file_events().ring();
        // One that is broken says nothing any more.
        let next = || FileEvent::take(&mut self.events, &ring).ok().flatten();
        let taken: Vec<_> = core::iter::from_fn(next).take(EVENTS).collect();
        if !taken.is_empty() && self.events.release(&ring) {
            CHANNEL.ring();
        }
        taken
    }

    /// Takes all answers there are, and marks their slots as done. Begins anew if the service domain is another one.
    pub fn hear(&mut self, done: &mut [bool; SLOTS as usize]) {
        let epoch = CHANNEL.header().epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            self.begin(epoch);
        }
        if self.epoch == 0 {
            return;
        }
        let ring = CHANNEL.answers().ring();
        // A broken ring says nothing any more; the service domain that broke it will be replaced.
        for _ in 0..ENTRIES {
            let Ok(Some(entry)) = self.answers.pop(&ring) else { break };
            let Ok(answer) = Answer::decode(&entry) else { continue };
            let Some(state) = self.slots.0.get_mut(usize::from(answer.slot)) else { continue };
            // An answer to what was not asked there is none.
            if matches!(state, State::Asked(r) if r.ticket == answer.ticket) {
                *state = State::Answered(answer);
                done[usize::from(answer.slot)] = true;
            }
        }
        let room = self.answers.release(&ring);
        if self.flush() | room {
            CHANNEL.ring();
        }
    }

    /// The domain was woken: the channel is another one.
    pub fn restart(&mut self) {
        self.epoch = 0;
    }

    /// Begins an epoch: what was under way is asked again.
    fn begin(&mut self, epoch: u32) {
        let again = core::mem::replace(&mut self.again, true);
        self.epoch = epoch;
        self.requests = Producer::default();
        self.answers = Consumer::default();
        self.events = Consumer::default();
        file_events().header.reset();
        CHANNEL.requests().header.reset();
        CHANNEL.answers().header.reset();
        if again {
            let mut asked: Vec<(u64, u16)> = Vec::new();
            for (slot, state) in (0..).zip(&mut self.slots.0) {
                if let State::Asked(request) = state {
                    request.flags |= flags::AGAIN;
                    asked.push((request.ticket.0, slot));
                }
            }
            asked.sort_unstable();
            self.queued = asked.into_iter().map(|(_, slot)| slot).collect();
        }
        CHANNEL.header().guest_epoch.store(epoch, Ordering::Release);
        self.flush();
        CHANNEL.ring();
    }

    /// Puts a request into the ring; false if that is full. Then the service tells of room: what fills it may be nodes that are given
    /// back, which nobody answers.
    fn put(&mut self, ring: &Entries<'_>, entry: &Entry) -> bool {
        loop {
            match self.requests.push(ring, entry) {
                Ok(true) => return true,
                Ok(false) if self.requests.sleep(ring) == Ok(false) => {}
                _ => return false,
            }
        }
    }

    /// Puts what waits into the ring; true if there was something.
    fn flush(&mut self) -> bool {
        if self.epoch == 0 {
            return false;
        }
        let ring = CHANNEL.requests().ring();
        let mut sent = 0;
        while let Some(slot) = self.queued.get(sent) {
            if let State::Asked(request) = self.slots.0[usize::from(*slot)]
                && !self.put(&ring, &request.encode())
            {
                break;
            }
            sent += 1;
        }
        self.queued.drain(..sent);
        let mut some = sent > 0;
        while self.queued.is_empty()
            && let Some(request) = self.notes.last()
        {
            if self.requests.push(&ring, &request.encode()) != Ok(true) {
                break;
            }
            self.notes.pop();
            some = true;
        }
        // The doorbell has a word of its own.
        let _ = self.requests.publish(&ring);
        some
    }
}
