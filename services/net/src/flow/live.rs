//! Flows that are there now, as they are told to who asks: bounded in number and work at a time.

use std::net::SocketAddr;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::channel::client::callers::Ends;
use crate::channel::client::{Client, Entity};
use crate::flow::address;
use crate::flow::stream::Stream;
use crate::rules::policy::Flow;
use crate::rules::{Direction, Protocol};
use doppel_abi_service::OBJECTS;

/// Most flows told at once.
pub const FLOWS: usize = 128;
/// Numbers of sockets looked at for that.
const LOOKS: u32 = 1024;
/// Most peers of one datagram socket that are told.
pub(crate) const PEERS: usize = 64;

/// How far a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowState {
    /// It is being connected, or has yet to be taken.
    Connecting,
    /// Both sides may send.
    Established,
    /// One side has ended.
    HalfClosed,
    /// Both have, or it was closed and what is left is sent.
    Closing,
    /// Of datagrams: something was sent or came.
    Active,
}

/// A connection, or a pair of addresses that exchange datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveFlow {
    /// The socket's number, for who wants to go on behind it.
    pub socket: u32,
    /// Of which protocol.
    pub protocol: Protocol,
    /// Who began: the domain (out), or the other end.
    pub direction: Direction,
    /// The domain's address and port.
    pub local: SocketAddr,
    /// The other end's, as the domain knows it.
    pub peer: SocketAddr,
    /// The published port through which it came, as it was called.
    pub through: Option<SocketAddr>,
    /// The host's address and port from which it leaves; none of what stays within the network.
    pub host: Option<SocketAddr>,
    /// How far it is.
    pub state: FlowState,
    /// Bytes of programs' data that the domain has sent.
    pub sent: u64,
    /// Bytes it has received.
    pub received: u64,
    /// Since when, in milliseconds.
    pub age_ms: u64,
}

/// Some of a domain's flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowPage {
    /// By number of the domain's sockets.
    pub flows: Vec<LiveFlow>,
    /// Where to go on; none: there are no others.
    pub next: Option<u32>,
    /// Peers of datagram sockets that are not told: more than 64 of one.
    pub left_out: u64,
}

/// What two addresses have exchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub since: Instant,
    pub sent: u64,
    pub received: u64,
}

impl Exchange {
    pub fn begin() -> Self {
        Self { since: Instant::now(), sent: 0, received: 0 }
    }
}

/// For how long, in milliseconds.
pub(crate) fn age(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Client {
    /// Flows of sockets from this number on.
    pub fn flows(&self, from: u32) -> FlowPage {
        let mut page = FlowPage::default();
        let end = from.saturating_add(LOOKS).min(OBJECTS);
        for number in from..end {
            // The next may be a datagram socket with all its peers.
            if page.flows.len() + PEERS > FLOWS {
                page.next = Some(number);
                return page;
            }
            match self.sockets.get(&number) {
                Some(Entity::Stream(s)) => page.flows.push(self.of_stream(number, s)),
                Some(Entity::Connecting { to, from_port, since, socket, .. }) => {
                    let host = socket.local_addr().ok().and_then(|a| a.as_socket());
                    let call = self.of_call(number, (*from_port, *to), *since);
                    page.flows.push(LiveFlow { host, ..call });
                }
                Some(Entity::Joining { to, from_port, since, .. }) => {
                    page.flows.push(self.of_call(number, (*from_port, *to), *since));
                }
                Some(Entity::Datagrams(d)) => d.live(&self.settings, &mut page),
                Some(Entity::Listener(_)) | None => {}
            }
        }
        page.next = self.sockets.keys().copied().filter(|number| *number >= end).min();
        page
    }

    fn of_call(&self, socket: u32, (port, to): Ends, since: Instant) -> LiveFlow {
        LiveFlow {
            socket,
            protocol: Protocol::Tcp,
            direction: Direction::Out,
            local: SocketAddr::new(self.settings.own(to.ip()), port),
            peer: to,
            through: None,
            host: None,
            state: FlowState::Connecting,
            sent: 0,
            received: 0,
            age_ms: age(since),
        }
    }

    fn of_stream(&self, socket: u32, s: &Stream) -> LiveFlow {
        let host = address::own_of(s.link());
        let (direction, peer, port) = match s.flow {
            Flow::Out(to) => (Direction::Out, to, s.port),
            Flow::In(from, port) => (Direction::In, from, port),
        };
        LiveFlow {
            socket,
            protocol: Protocol::Tcp,
            direction,
            local: SocketAddr::new(self.settings.own(peer.ip()), port),
            peer,
            through: host.filter(|_| direction == Direction::In),
            host: host.filter(|_| direction == Direction::Out),
            state: s.state(),
            sent: s.sent,
            received: s.received,
            age_ms: age(s.since),
        }
    }
}
