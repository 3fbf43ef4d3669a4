//! A thread that has waited for a device for a domain stays with that for a moment: who syncs or reads past the cache mostly asks for the
//! next thing at once, and the leader, which has gone to sleep meanwhile, would have to be woken for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Engine, Takes};
use crate::client::{Client, Next};
use crate::files::perform;

/// How long it looks whether something is asked.
const MOMENT: Duration = Duration::from_micros(20);
/// How long it stays at most: then the domain takes its turn with the others again.
const LONGEST: Duration = Duration::from_millis(10);
impl Engine {
    /// Does what a client asks for within a moment, and then within a moment of that, as long as a thread is free beside the one that stands
    /// by for the leader.
    pub(super) fn stay(&self, client: &Arc<Client>) {
        if !self.polls || self.crew.free() < 2 || !client.stays.pays() {
            return;
        }
        // The leader need not be woken for it.
        client.link().channel.stay_awake();
        let begun = Instant::now();
        let (mut since, mut of_use) = (begun, false);
        while since.elapsed() < MOMENT && begun.elapsed() < LONGEST {
            let now = Instant::now();
            match client.take(self.most(), now) {
                Next::Request(request) => {
                    // It may wait for a device: the leader looks after the others meanwhile.
                    self.watch(client);
                    let takes = Takes::of(&request);
                    self.answer(client, perform(client, &self.host, &request, true), (now, takes));
                    client.link().channel.stay_awake();
                    (since, of_use) = (Instant::now(), true);
                    if self.crew.free() < 2 {
                        break;
                    }
                }
                Next::Nothing => std::hint::spin_loop(),
                Next::Broken => {
                    client.breaks();
                    break;
                }
            }
        }
        client.stays.ended(of_use);
        self.watch(client);
    }

    /// Has the leader look after a client again, which may have gone to sleep.
    fn watch(&self, client: &Client) {
        if !client.sleeps(self.most()) {
            let _ = self.waker.wake();
        }
    }
}
