//! ICMP echo. The virtual router answers for itself and for the domains of a network, none of which it wakes; what is
//! outside is asked through a socket of the host for it (`icmp(7)`), which needs no privilege.

use std::net::{IpAddr, SocketAddr};

use doppel_abi_service::echo;
use doppel_abi_service::net::DatagramHeader;
use doppel_service::{Broken, Channel};
use doppel_sys::datagram::Marks;
use rustix::io::Errno;

use super::{Datagrams, TurnContext};
use crate::channel::client::{EngineRequest, Settings};
use crate::channel::share::Share;
use crate::flow::address;
use crate::flow::route::Route;
use crate::rules::{Direction, Protocol};

/// What answers from within a network come with.
const FRESH: Marks = Marks { hops: 64, class: 0 };

/// Whether it is the virtual router itself.
fn is_router(ip: IpAddr, settings: &Settings) -> bool {
    echo::is_router(ip) || settings.is_gateway(ip)
}

impl Datagrams {
    /// Whether it is one of ICMP echo.
    pub fn is_echo(&self) -> bool {
        self.protocol == Protocol::Icmp
    }

    /// Where it gets with this address.
    pub(super) fn route(&self, to: SocketAddr, settings: &Settings) -> Route {
        if self.is_echo() && is_router(to.ip(), settings) { Route::Domain } else { settings.route(to) }
    }

    /// Asks for an echo with the message in `scratch`.
    pub(super) fn ask_echo(
        &mut self,
        head: &DatagramHeader,
        around: &mut TurnContext<'_>,
    ) -> Result<(), Errno> {
        let to = SocketAddr::new(address::socket_addr(&head.peer).ip(), 0);
        let len = usize::from(head.len);
        if !echo::is_request(&around.scratch[..len], &address::end(to).ip) {
            return Err(Errno::INVAL);
        }
        let new = self.is_new(to);
        let marks = Marks { hops: head.hops, class: head.class };
        if let Some(real) = self.allowed(to, len, around)? {
            return self.send_out(real, marks, len, around);
        }
        if is_router(to.ip(), around.settings) {
            let own = around.settings.own(to.ip());
            // A channel that is broken is found to be so by the next who looks.
            let _ = self.echoed(around.channel, around.share, own, to, &mut around.scratch[..len]);
        } else {
            let bytes = around.scratch[..len].into();
            around.wishes.push(EngineRequest::Echo { socket: self.number, to, new, bytes });
        }
        Ok(())
    }

    /// Gives the domain, which is `own`, the answer of `from` to this request; lost if there is no room.
    pub fn echoed(
        &mut self,
        channel: &mut Channel,
        share: &mut Share,
        own: IpAddr,
        from: SocketAddr,
        message: &mut [u8],
    ) -> Result<(), Broken> {
        if share.most(Direction::In) == 0 {
            self.counts.received().dropped();
            return Ok(());
        }
        share.passed(Direction::In, message.len());
        let own = SocketAddr::new(own, 0);
        echo::answer(message, &address::end(from).ip, &address::end(own).ip);
        self.put(channel, from, self.at.port, FRESH, message)
    }

    /// Makes what the host's socket heard from there the domain's; false if it is no answer.
    pub(super) fn takes_answer(&self, message: &mut [u8], from: SocketAddr, own: IpAddr) -> bool {
        let (from, own) = (address::end(from).ip, address::end(SocketAddr::new(own, 0)).ip);
        let answer = echo::is_answer(message, &from);
        if answer {
            echo::identify(message, self.at.port, &from, &own);
        }
        answer
    }
}
