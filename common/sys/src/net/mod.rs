//! Sockets and devices of the network.

pub mod datagram;
pub mod netlink;
pub mod options;
pub mod packet;
pub mod stream;
pub mod tunnel;
