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

use crate::client::Entity;
use crate::quota::Account;
use crate::stream::at;

/// How long a turn may give back: about what one client's turn may take.
const TIME: Duration = Duration::from_micros(100);

/// Of one client.
#[derive(Debug)]
struct Remains {
    sockets: Vec<Entity>,
    channel: Channel,
    /// Counts its memory until that is free.
    _account: Arc<Account>,
    /// Sockets of the channel whose buffers are given back already.
    freed: u32,
}

/// Of all of them.
#[derive(Debug, Default)]
pub(crate) struct Ended(VecDeque<Remains>);

impl Ended {
    /// One more client is no more.
    pub fn add(&mut self, sockets: Vec<Entity>, channel: Channel, account: Arc<Account>) {
        self.0.push_back(Remains { sockets, channel, _account: account, freed: 0 });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives back what can be in a short time, one piece at least.
    pub fn give_back(&mut self) {
        let begun = Instant::now();
        while let Some(one) = self.0.front_mut() {
            // Both buffers of a socket, half a megabyte at most. The rest is small, and may be in use: a domain that broke
            // the protocol goes on without a network. What cannot be freed now is freed with the channel.
            if one.sockets.pop().is_none() {
                if one.freed == OBJECTS {
                    self.0.pop_front();
                } else {
                    let _ = one.channel.memory().free(at(up_buffer(one.freed)), 2 * BUFFER as usize);
                    one.freed += 1;
                }
            }
            if begun.elapsed() >= TIME {
                return;
            }
        }
    }
}
