//! Which flows a client has: a page of them, for who asks.

use std::net::SocketAddr;
use std::time::Instant;

use doppel_abi_service::OBJECTS;

use super::callers::Ends;
use super::{Client, Entity};
use crate::flow::address;
use crate::flow::live::{FLOWS, FlowPage, FlowState, LOOKS, LiveFlow, PEERS, age};
use crate::flow::stream::Stream;
use crate::rules::policy::Flow;
use crate::rules::{Direction, Protocol};

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
