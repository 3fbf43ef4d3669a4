//! What clients had that are no more, given back a little at a time.
//!
//! To close a socket with megabytes in it, or to free a channel's memory in one go, may take longer than any other step of
//! work, and all other domains would wait meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doppel_abi_service::OBJECTS;
use doppel_abi_service::net::{BUFFER, up_buffer};
use doppel_service::Channel;

use doppel_sys::shared;

use crate::channel::client::Entity;
use crate::channel::quota::Account;
use crate::service::burden::{Burden, LEFT};

/// How long a turn may give back: about what one client's turn may take, also while others wait for answers.
const TIME: Duration = Duration::from_micros(100);
const BRIEF: Duration = Duration::from_micros(25);
/// Sockets whose buffers are freed at once, at most: of most that ended the buffers were never used, and there it costs the same
/// whether one or many are looked at. Those of one that takes longer are freed one by one.
const MOST_AT_ONCE: u32 = 64;
const LONG: Duration = Duration::from_micros(10);

/// Of one client.
#[derive(Debug)]
struct PendingReclaim {
    sockets: Vec<Entity>,
    channel: Channel,
    /// Counts its memory until that is free.
    _account: Arc<Account>,
    /// Sockets of the channel whose buffers are given back already.
    freed: u32,
    /// How many go next.
    at_once: u32,
}

impl PendingReclaim {
    /// Frees the buffers of some sockets.
    fn free_some(&mut self) {
        let n = self.at_once.min(OBJECTS - self.freed);
        let begun = Instant::now();
        // The rest is small, and may be in use: a domain that broke the protocol goes on without a network. What cannot be freed
        // now is freed with the channel.
        let length = 2 * BUFFER as usize * n as usize;
        let _ = self.channel.memory().free(shared::offset(up_buffer(self.freed)), length);
        self.freed += n;
        self.at_once = if begun.elapsed() < LONG { (2 * n).min(MOST_AT_ONCE) } else { 1 };
    }
}

/// Of all of them.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Those with sockets, by turns: peers of one that had few do not wait for one that had thousands.
    open: VecDeque<PendingReclaim>,
    closed: VecDeque<PendingReclaim>,
    burden: Burden,
}

impl Ended {
    /// Of nobody yet.
    pub fn new(now: Instant) -> Self {
        Self { open: VecDeque::new(), closed: VecDeque::new(), burden: Burden::new(LEFT, now) }
    }

    /// One more client is no more.
    pub fn add(&mut self, sockets: Vec<Entity>, channel: Channel, account: Arc<Account>) {
        self.open.push_back(PendingReclaim { sockets, channel, _account: account, freed: 0, at_once: 1 });
    }

    /// Gives back what can be in a short time, one piece at least, unless that must wait because others would notice: when to go
    /// on, if anything is left. `brief`: others wait for answers.
    pub fn give_back(
        &mut self,
        now: Instant,
        brief: bool,
        strained: impl FnOnce() -> bool,
    ) -> Option<Instant> {
        if self.open.is_empty() && self.closed.is_empty() {
            return None;
        }
        if !self.burden.may(now, strained) {
            return self.burden.waits();
        }
        let most = if brief { BRIEF } else { TIME };
        while self.step() {
            if now.elapsed() >= most {
                self.burden.used(now.elapsed());
                return Some(now);
            }
        }
        self.burden.used(now.elapsed());
        None
    }

    /// Gives one piece back; false if nothing is left.
    fn step(&mut self) -> bool {
        if let Some(mut one) = self.open.pop_front() {
            match one.sockets.pop() {
                Some(_) => self.open.push_back(one),
                None => self.closed.push_back(one),
            }
            return true;
        }
        let Some(one) = self.closed.front_mut() else { return false };
        if one.freed == OBJECTS {
            self.closed.pop_front();
        } else {
            one.free_some();
        }
        true
    }
}
