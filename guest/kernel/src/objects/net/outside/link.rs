//! The rings of the channel, and the numbers of sockets.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_service::ENTRIES;
use doppel_abi_service::net::{ACCEPTED, Answer, Request};
use doppel_machine::network as channel;
use doppel_ring::{Consumer, Producer, Ticket, Tickets};

use super::{News, Pending};
use crate::core::events::{Kind, record};

/// Whether the service may have said something, without a lock.
pub(super) fn has_news() -> bool {
    channel::to_guest().any()
}

/// Private side of the rings.
pub(super) struct Link {
    /// Whose rings these are; 0: nobody's yet.
    epoch: u32,
    /// There were others before.
    again: bool,
    requests: Producer,
    answers: Consumer,
    tickets: Tickets<Pending>,
    /// Requests for which the ring has no room.
    queued: VecDeque<(Request, Ticket)>,
    /// Numbers that were given back, and the first that was never used.
    free: Vec<u32>,
    fresh: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            epoch: 0,
            again: false,
            requests: Producer::default(),
            answers: Consumer::default(),
            tickets: Tickets::new(0),
            queued: VecDeque::new(),
            free: Vec::new(),
            fresh: 0,
        }
    }
}

impl Link {
    /// Takes all there is. Begins anew if the service domain is another one.
    pub fn hear(&mut self) -> News {
        let mut news = News::default();
        let epoch = channel::header().epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            self.begin(epoch, &mut news);
        }
        if self.epoch == 0 {
            return news;
        }
        let ring = channel::answers().ring();
        // A broken ring says nothing any more; the service domain that broke it will be replaced.
        // Nor does it keep the caller here by saying more and more: what else it has said is for the next look.
        for _ in 0..ENTRIES {
            let Ok(Some(entry)) = self.answers.pop(&ring) else { break };
            match Answer::decode(&entry) {
                Ok(Answer::Done { ticket, error, .. }) => {
                    news.done.extend(self.tickets.complete(ticket).map(|p| (p, error)));
                }
                Ok(Answer::Accepted { listener, socket, peer, .. }) => {
                    news.accepted.push((listener, socket, peer));
                }
                Err(_) => {}
            }
        }
        let room = self.answers.release(&ring);
        channel::to_guest().take(|i| news.marked.push(i));
        if self.flush() | room {
            channel::ring_service();
        }
        news
    }

    /// Forgets whose rings these are: the channel is another.
    pub fn restart(&mut self) {
        self.again |= self.epoch != 0;
        self.epoch = 0;
    }

    /// Asks to be told of the next news in this way (`sleeps`); true if there are some now.
    pub fn sleep(&mut self, how: u32) -> bool {
        let header = channel::header();
        header.guest_sleeps.store(how, Ordering::Relaxed);
        core::sync::atomic::fence(Ordering::SeqCst);
        header.epoch.load(Ordering::Acquire) != self.epoch
            || (self.epoch != 0
                && (self.answers.waiting(&channel::answers().ring()).is_ok_and(|n| n > 0) || has_news()))
    }

    /// Begins an epoch: what was under way is not, and will never be.
    fn begin(&mut self, epoch: u32, news: &mut News) {
        news.anew = self.epoch != 0 || self.again;
        let kind = if news.anew { Kind::NetworkLost } else { Kind::NetworkBegins };
        record(kind, [u64::from(epoch), 0, 0]);
        self.again = false;
        self.epoch = epoch;
        // What the service is asked for before it is there is asked for now; the rest is lost with the sockets.
        if news.anew {
            self.tickets.begin(epoch as u16);
            self.queued.clear();
        }
        self.requests = Producer::default();
        self.answers = Consumer::default();
        channel::requests().header.reset();
        channel::answers().header.reset();
        for bells in [channel::to_guest(), channel::to_service()] {
            bells.take(|_| {});
        }
        channel::header().guest_epoch.store(epoch, Ordering::Release);
        channel::ring_service();
    }

    /// Queues a request. The caller rings the doorbell.
    pub fn ask(&mut self, pending: Pending, request: Request) {
        match self.tickets.issue(pending) {
            Ok(ticket) => self.queued.push_back((request, ticket)),
            // 65,536 are under way: the service does not answer, and will be replaced.
            Err(_) => return,
        }
        self.flush();
    }

    /// Puts queued requests into the ring; true if there were some.
    fn flush(&mut self) -> bool {
        if self.epoch == 0 {
            return false;
        }
        let ring = channel::requests().ring();
        let mut some = false;
        while let Some((request, ticket)) = self.queued.front() {
            if self.requests.push(&ring, &request.encode(*ticket)) != Ok(true) {
                break;
            }
            self.queued.pop_front();
            some = true;
        }
        // The doorbell has a word of its own.
        let _ = self.requests.publish(&ring);
        some
    }

    /// A number nobody uses.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            self.fresh += u32::from(self.fresh < ACCEPTED);
            (self.fresh < ACCEPTED).then(|| self.fresh - 1)
        })
    }

    /// This number is used no more.
    pub fn give_back(&mut self, n: u32) {
        if n < ACCEPTED {
            self.free.push(n);
        }
    }

    /// These numbers are used, and no others.
    pub fn only(&mut self, used: &[u32]) {
        self.free = (0..self.fresh).filter(|n| !used.contains(n)).collect();
    }
}
