//! Bytes and datagrams between channels and sockets of the host.

pub mod address;
pub mod address_cache;
pub mod datagram;
pub mod egress;
pub mod live;
pub mod options;
pub mod published;
pub mod route;
pub mod stream;
pub mod urgent;
