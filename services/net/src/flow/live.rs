//! Flows that are there now, as they are told to who asks: bounded in number and work at a time.

use std::net::SocketAddr;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::rules::{Direction, Protocol};

/// Most flows told at once.
pub const FLOWS: usize = 128;
/// Numbers of sockets looked at for that.
pub(crate) const LOOKS: u32 = 1024;
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
