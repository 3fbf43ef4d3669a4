//! The rings of the channel, and the numbers of sockets.

use core::sync::atomic::Ordering;

use doppel_abi_service::ENTRIES;
use doppel_abi_service::net::{ACCEPTED, Answer, Request};
use doppel_machine::network as channel;
use doppel_ring::{ClientEnd, Numbers};

use super::{News, Pending};
use crate::core::events::{Kind, record};

/// Whether the service may have said something, without a lock.
pub(super) fn has_news() -> bool {
    channel::to_guest().any()
}

/// Private side of the rings.
pub(super) struct Link {
    end: ClientEnd<Pending>,
    /// There were others before.
    again: bool,
    numbers: Numbers,
}

impl Default for Link {
    fn default() -> Self {
        Self { end: ClientEnd::default(), again: false, numbers: Numbers::new(ACCEPTED) }
    }
}

impl Link {
    /// Takes all there is. Begins anew if the service domain is another one.
    pub fn hear(&mut self) -> News {
        let mut news = News::default();
        let epoch = channel::header().epoch.load(Ordering::Acquire);
        if epoch != self.end.epoch() {
            self.begin(epoch, &mut news);
        }
        if self.end.epoch() == 0 {
            return news;
        }
        let room =
            self.end.hear(&channel::answers().ring(), ENTRIES, |end, entry| match Answer::decode(entry) {
                Ok(Answer::Done { ticket, error, .. }) => {
                    news.done.extend(end.complete(ticket).map(|p| (p, error)));
                }
                Ok(Answer::Accepted { listener, socket, peer, .. }) => {
                    news.accepted.push((listener, socket, peer));
                }
                Err(_) => {}
            });
        channel::to_guest().take(|i| news.marked.push(i));
        if self.end.flush(&channel::requests().ring()) | room {
            channel::ring_service();
        }
        news
    }

    /// Forgets whose rings these are: the channel is another.
    pub fn restart(&mut self) {
        self.again |= self.end.epoch() != 0;
        self.end.leave();
    }

    /// Asks to be told of the next news in this way (`sleeps`); true if there are some now.
    pub fn sleep(&mut self, how: u32) -> bool {
        let header = channel::header();
        header.guest_sleeps.store(how, Ordering::Relaxed);
        core::sync::atomic::fence(Ordering::SeqCst);
        let epoch = self.end.epoch();
        header.epoch.load(Ordering::Acquire) != epoch
            || (epoch != 0 && (self.end.has_answers(&channel::answers().ring()) || has_news()))
    }

    /// Begins an epoch.
    fn begin(&mut self, epoch: u32, news: &mut News) {
        news.anew = self.end.epoch() != 0 || self.again;
        let kind = if news.anew { Kind::NetworkLost } else { Kind::NetworkBegins };
        record(kind, [u64::from(epoch), 0, 0]);
        self.again = false;
        // What the service is asked for before it is there is asked for now; the rest is lost with the sockets.
        self.end.begin(epoch, news.anew);
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
        self.end.ask(&channel::requests().ring(), pending, |ticket| request.encode(ticket));
    }

    /// A number nobody uses.
    pub fn take(&mut self) -> Option<u32> {
        self.numbers.take()
    }

    /// This number is used no more.
    pub fn give_back(&mut self, n: u32) {
        self.numbers.give_back(n);
    }

    /// These numbers are used, and no others.
    pub fn only(&mut self, used: &[u32]) {
        self.numbers.only(used);
    }
}
