//! A domain's addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A domain's addresses in its virtual network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub ip4: Ipv4Addr,
    pub ip6: Ipv6Addr,
}
