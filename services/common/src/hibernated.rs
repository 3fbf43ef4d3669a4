//! The supervisor's part in the channel of a domain that does not run: to be told when there is news for it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use doppel_abi_service::{ChannelHeader, layout, sleeps};
use doppel_sys::shared::SharedMap;

use crate::channel::at;

/// The supervisor's part in a channel whose domain is hibernated: its bell is rung at the next news.
#[derive(Debug)]
pub struct Hibernated(SharedMap);

impl Hibernated {
    /// The domain of this channel, made by [`crate::make`], does not run.
    ///
    /// # Errors
    /// What the host says.
    pub fn new(memory: &OwnedFd) -> io::Result<Self> {
        let channel = Self::again(memory)?;
        let header: &ChannelHeader = channel.0.get(at(layout::HEADER));
        header.guest_sleeps.store(sleeps::HIBERNATED, Ordering::SeqCst);
        Ok(channel)
    }

    /// The same of one whose domain was hibernated before, by another process.
    ///
    /// # Errors
    /// What the host says.
    pub fn again(memory: &OwnedFd) -> io::Result<Self> {
        Ok(Self(SharedMap::new(memory.as_fd(), at(layout::SERVICE))?))
    }

    /// Whether there is news for a program of the domain: some that it has not taken before it slept, or some since.
    #[must_use]
    pub fn has_news(&self) -> bool {
        fence(Ordering::SeqCst);
        let header: &ChannelHeader = self.0.get(at(layout::HEADER));
        header.guest_sleeps.load(Ordering::Relaxed) != sleeps::HIBERNATED
            || header.epoch.load(Ordering::Relaxed) != header.guest_epoch.load(Ordering::Relaxed)
            || header.is_called()
    }
}
