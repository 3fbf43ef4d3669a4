//! Who holds which port of the domain.

use alloc::sync::Weak;
use alloc::vec::Vec;

use doppel_algo::net::ports::PortTable;
use doppel_machine::sync::SpinLock;

use super::tcp;
use super::udp;
use crate::core::part::Part;

/// Port tables of the domain.
#[derive(Default)]
pub struct Ports {
    /// TCP.
    pub tcp: SpinLock<PortTable<Weak<tcp::Tcp>>>,
    /// UDP.
    pub udp: SpinLock<PortTable<Weak<udp::Udp>>>,
    /// UDP-Lite.
    pub lite: SpinLock<PortTable<Weak<udp::Udp>>>,
    /// ICMP echo: by identifier.
    pub echo: SpinLock<PortTable<Weak<udp::Udp>>>,
}

/// The domain's.
pub static PORTS: Part<Ports> = Part::new();

/// Offers what is bound to the network that the domain has now.
pub fn offer_outside() {
    let ports = PORTS.get();
    let listeners: Vec<_> =
        ports.tcp.lock().iter().filter(|(_, b)| b.listening).filter_map(|(_, b)| b.what.upgrade()).collect();
    let bound: Vec<_> = ports.udp.lock().iter().filter_map(|(_, b)| b.what.upgrade()).collect();
    for tcp in listeners {
        tcp.listen_far();
    }
    for udp in bound {
        udp.bind_far();
    }
}
