//! What carries the bytes of a connection.
//!
//! Key type: [`Transport`]. An endpoint whose other end is in the domain puts bytes into that end's queue ([`super::inside`]);
//! those of any other go through a stream that the network service executes ([`super::outside`]).

use super::inside::Inside;
use super::{Inner, Tcp};
use crate::Result;
use crate::core::sched::PollEvents;
use crate::objects::net::consts::{MsgFlags, Shutdown};
use crate::objects::net::outside::Far;
use crate::objects::net::socket::{Received, SendMsg};
use crate::objects::vfs::{Input, Output};

/// The way from one end of a connection to the other.
pub(super) trait Transport {
    /// Sends all of `input`. Waits for room unless MSG_DONTWAIT is set.
    fn send(&self, s: &Tcp, input: &mut Input<'_>, msg: &SendMsg) -> Result<usize>;

    /// Receives up to what `out` takes, which is not nothing.
    fn receive(&self, s: &Tcp, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received>;

    /// Receives the urgent byte (MSG_OOB).
    fn receive_urgent(&self, s: &Tcp, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received>;

    /// Events that hold, but for an error.
    fn events(&self, s: &Tcp, i: &Inner) -> PollEvents;

    /// Bytes that can be read now (FIONREAD).
    fn readable_bytes(&self, s: &Tcp, i: &Inner) -> usize;

    /// Bytes that were sent and not taken yet (SIOCOUTQ).
    fn unsent_bytes(&self) -> usize;

    /// How many bytes come before the urgent one, if there is one.
    fn bytes_before_mark(&self, i: &Inner) -> Option<usize>;

    /// Whether the other end has said that nothing more comes.
    fn ended(&self, i: &Inner) -> bool;

    /// Tells the way itself of a shutdown: the sides that are meant.
    fn shut(&self, how: Shutdown);
}

/// That of an endpoint with this stream outside, or none.
#[inline]
pub(super) fn of(far: Option<&Far>) -> &dyn Transport {
    match far {
        Some(far) => far,
        None => &Inside,
    }
}
