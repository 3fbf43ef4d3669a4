//! One domain's channel: requests in, answers out.

use std::collections::VecDeque;

use doppel_abi_service::storage::{Answer, Request};
use doppel_ring::Broken;
use doppel_service::Channel;

use crate::files::perform;
use crate::nodes::Nodes;

/// Requests of one turn: the others of this process wait no longer than these take.
const TURN: usize = 8;

/// A domain that is served.
#[derive(Debug)]
pub(crate) struct Client {
    pub channel: Channel,
    nodes: Nodes,
    /// Answers for which there is no room in the ring.
    waiting: VecDeque<Answer>,
}

impl Client {
    pub fn new(channel: Channel, nodes: Nodes) -> Self {
        Self { channel, nodes, waiting: VecDeque::new() }
    }

    /// Works on what is asked for, as much as a turn is. True: there may be more.
    ///
    /// # Errors
    /// The guest kernel broke the protocol.
    pub fn turn(&mut self) -> Result<bool, Broken> {
        // Nobody is heard who does not take answers, so these cannot become more and more.
        let mut more = false;
        if self.flush()? {
            let requests = self.channel.hear(TURN)?;
            more = requests.len() == TURN;
            for entry in requests {
                let request = Request::decode(&entry).map_err(|_| Broken)?;
                let answer = perform(&self.channel, &mut self.nodes, &request);
                self.waiting.extend(answer);
                // One at a time: who waits for the first does not wait for the last.
                self.flush()?;
            }
        }
        self.channel.wake();
        Ok(more)
    }

    /// Puts answers into the ring; false if it is full.
    fn flush(&mut self) -> Result<bool, Broken> {
        while let Some(answer) = self.waiting.front() {
            if !self.channel.answer(&answer.encode(), true)? {
                return Ok(false);
            }
            self.waiting.pop_front();
            self.channel.wake();
        }
        Ok(true)
    }
}
