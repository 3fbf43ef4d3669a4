//! AF_INET and AF_INET6 inside the domain: TCP, UDP and ICMP echo over loopback (`ip(7)`, `tcp(7)`, `udp(7)`, `icmp(7)`).
//!
//! There are no packets: a TCP connection is two endpoints that put bytes into each other's queue; a datagram
//! is put into the receiver's queue. Addresses are 127.0.0.0/8, ::1, the wildcards and the domain's own; all others are
//! outside, where the network service sends ([`super::outside`]), or ENETUNREACH in a domain without it. Key types:
//! [`tcp::Tcp`], [`udp::Udp`], [`Ports`].
//! Lock order: one socket's `inner` at a time; port table → nothing.

mod bind;
mod echo;
mod ends;
mod groups;
mod ipopts;
mod iprows;
mod msfilter;
mod table;
pub mod tcp;
pub mod udp;
mod udpfilter;
mod udpio;
mod udpopts;

use bind::{binding, check_bind, claim, share_anew};
pub use ends::{End, is_local, route, source_for};
use ends::{address_on, is_multicast, spread, to_loopback};
pub(crate) use ends::{is_own, own_address};
pub use table::{PORTS, Ports, offer_outside};
