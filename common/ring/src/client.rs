//! The client's end of a ring of requests and a ring of answers: what is under way, and what the ring has no room for.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::{Consumer, Entries, Entry, Producer, Ticket, Tickets};

/// The end of a client, which remembers a `P` for each request under way.
#[derive(Debug)]
pub struct ClientEnd<P> {
    /// Whose rings these are; 0: nobody's yet.
    epoch: u32,
    requests: Producer,
    answers: Consumer,
    tickets: Tickets<P>,
    /// Requests for which the ring has no room.
    queued: VecDeque<Entry>,
}

impl<P> Default for ClientEnd<P> {
    fn default() -> Self {
        Self {
            epoch: 0,
            requests: Producer::default(),
            answers: Consumer::default(),
            tickets: Tickets::new(0),
            queued: VecDeque::new(),
        }
    }
}

impl<P> ClientEnd<P> {
    /// The epoch of the service; 0: there is none yet.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Begins an epoch, with rings that are empty. Where `void`, what was under way is not, and will never be.
    pub fn begin(&mut self, epoch: u32, void: bool) {
        self.epoch = epoch;
        if void {
            // Tickets have 16 bits of it.
            self.tickets.begin((epoch & 0xffff) as u16);
            self.queued.clear();
        }
        self.requests = Producer::default();
        self.answers = Consumer::default();
    }

    /// Forgets whose rings these are, until another epoch begins.
    pub fn leave(&mut self) {
        self.epoch = 0;
    }

    /// Queues a request, which `encode` makes of its ticket. The caller notifies the service.
    pub fn ask(&mut self, ring: &Entries<'_>, pending: P, encode: impl FnOnce(Ticket) -> Entry) {
        // Where 65,536 are under way the service does not answer, and will be replaced.
        if let Ok(ticket) = self.tickets.issue(pending) {
            self.queued.push_back(encode(ticket));
        }
        self.flush(ring);
    }

    /// Puts queued requests into their ring; true if there were some.
    pub fn flush(&mut self, ring: &Entries<'_>) -> bool {
        if self.epoch == 0 {
            return false;
        }
        let mut some = false;
        while let Some(entry) = self.queued.front() {
            if self.requests.push(ring, entry) != Ok(true) {
                break;
            }
            self.queued.pop_front();
            some = true;
        }
        // The doorbell has a word of its own.
        let _ = self.requests.publish(ring);
        some
    }

    /// Gives the answers that are there to `each`, `most` of them at most: a service that says more and more keeps nobody
    /// here. A broken ring says nothing any more; the service that broke it will be replaced. True if the service waits for
    /// room.
    pub fn hear(&mut self, ring: &Entries<'_>, most: usize, mut each: impl FnMut(&mut Self, &Entry)) -> bool {
        for _ in 0..most {
            let Ok(Some(entry)) = self.answers.pop(ring) else { break };
            each(self, &entry);
        }
        self.answers.release(ring)
    }

    /// What the request of a ticket carries, once; `None` if there is none.
    pub fn complete(&mut self, ticket: Ticket) -> Option<P> {
        self.tickets.complete(ticket)
    }

    /// Whether answers wait.
    #[must_use]
    pub fn has_answers(&self, ring: &Entries<'_>) -> bool {
        self.answers.waiting(ring).is_ok_and(|n| n > 0)
    }
}

/// Numbers below a bound, each in use by one at a time.
#[derive(Debug)]
pub struct Numbers {
    bound: u32,
    /// Those that were given back, and the first that was never used.
    free: Vec<u32>,
    fresh: u32,
}

impl Numbers {
    /// All below `bound`.
    #[must_use]
    pub const fn new(bound: u32) -> Self {
        Self { bound, free: Vec::new(), fresh: 0 }
    }

    /// One that nobody uses.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let n = self.fresh;
            self.fresh += u32::from(n < self.bound);
            (n < self.bound).then_some(n)
        })
    }

    /// This one is used no more; others than those it has are not taken.
    pub fn give_back(&mut self, n: u32) {
        if n < self.bound {
            self.free.push(n);
        }
    }

    /// These are used, and no others.
    pub fn only(&mut self, used: &[u32]) {
        self.free = (0..self.fresh).filter(|n| !used.contains(n)).collect();
    }
}
