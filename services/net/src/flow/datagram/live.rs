//! With whom a datagram socket exchanges datagrams now.

use std::net::SocketAddr;

use super::Datagrams;
use crate::channel::client::Settings;
use crate::flow::address;
use crate::flow::live::{Exchange, FlowPage, FlowState, LiveFlow, PEERS, age};
use crate::rules::Direction;

impl Datagrams {
    /// Adds those with whom it exchanges something to a page: callers, then whom it has called, the latest first.
    pub fn live(&self, settings: &Settings, page: &mut FlowPage) {
        let all = self.callers.len() + self.flows.len() + self.peers.len();
        let callers = self.callers.iter().map(|(from, ((published, _), exchange))| {
            let socket = settings.published.get(*published).map(|p| &p.socket);
            let through = socket.and_then(address::own_of);
            (Direction::In, *from, through, None, exchange)
        });
        let flows = self.flows.iter().map(|(real, (to, exchange))| {
            let host = self.descriptor(real.is_ipv6()).and_then(address::own_of);
            (Direction::Out, *to, None, host, exchange)
        });
        let peers = self.peers.iter().map(|(to, exchange)| (Direction::Out, *to, None, None, exchange));
        let before = page.flows.len();
        for (direction, peer, through, host, exchange) in callers.chain(flows).chain(peers).take(PEERS) {
            page.flows.push(self.one(settings, (direction, peer, through, host), exchange));
        }
        page.left_out += (all - (page.flows.len() - before)) as u64;
    }

    fn one(
        &self,
        settings: &Settings,
        (direction, peer, through, host): (Direction, SocketAddr, Option<SocketAddr>, Option<SocketAddr>),
        exchange: &Exchange,
    ) -> LiveFlow {
        LiveFlow {
            socket: self.number,
            protocol: self.protocol,
            direction,
            local: SocketAddr::new(settings.own(peer.ip()), self.at.port),
            peer,
            through,
            host,
            state: FlowState::Active,
            sent: exchange.sent,
            received: exchange.received,
            age_ms: age(exchange.since),
        }
    }
}
