//! The network of a paene domain, by the same network service and rules as a para domain's (docs/services.md).
//!
//! Its programs have the host's TCP/IP, in a network namespace with a device `eth0` of its own. Packets of that device
//! come to a helper process, which has nothing but them and the domain's channel to the network service: it plays the
//! guest kernel's part there. A connection that a program opens is answered in the far end's place once the service has
//! one there, and refused as the service refuses; so rules, names, ports, other domains and counters are all the service's.
//!
//! * `device`, `netlink`: `eth0`. `names`: `/etc/resolv.conf` and `/etc/hosts`. `process`: the helper.
//! * `tunnel`: packets in and out. `packet`: what they are. `stack`: whose they are. `stream`: a connection, with
//!   smoltcp as the far end's TCP. `grams`: datagrams. `channel`: the guest kernel's end of the channel.
//!
//! Boundary: the helper trusts neither packets nor channel. It has ids that own nothing, no capabilities and a filter of
//! some twenty calls, none of which opens anything. Packets whose source is not the domain's own address are dropped.

mod addresses;
mod channel;
mod device;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod grams;
pub(crate) mod names;
mod netlink;
mod packet;
pub(crate) mod process;
mod stack;
mod stream;
mod tunnel;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Pid;

use crate::program::helper;

pub(crate) use addresses::Addresses;

/// What a domain with a network is born with.
#[derive(Debug)]
pub(crate) struct Link {
    /// The channel's memory file.
    pub memory: OwnedFd,
    /// The service's doorbell.
    pub doorbell: OwnedFd,
    pub addresses: Addresses,
}

impl Link {
    /// Makes the device, in the calling thread's network namespace.
    pub fn device(&self) -> io::Result<OwnedFd> {
        device::make(&self.addresses)
    }

    /// Starts the helper, which moves the device's packets as this user.
    pub fn serve(&self, packets: &OwnedFd, user: u32) -> io::Result<Pid> {
        let wanted = process::HelperConfig { addresses: self.addresses.clone(), user };
        let descriptors = [packets.as_fd(), self.memory.as_fd(), self.doorbell.as_fd()];
        helper::start(process::VERB, &wanted.to_bytes(), &descriptors)
    }
}
