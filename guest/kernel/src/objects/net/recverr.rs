//! Receiving from the queue of errors (MSG_ERRQUEUE).

use super::common::Common;
use super::consts::{self as c, MsgFlags};
use super::socket::Received;
use crate::objects::vfs::Output;
use crate::{Errno, Result};
use doppel_algo::net::sockaddr::AF_INET;

impl Common {
    /// A receive with MSG_ERRQUEUE: the oldest of the queue; EAGAIN if there is none.
    pub fn receive_error(&self, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
        let (p, next) = self.errors.pop()?;
        if p.errno != 0 {
            // SO_ERROR is the next one's.
            self.replace_error(next.unwrap_or(0));
        }
        let n = p.payload.len().min(out.remaining());
        if n > 0 && out.write(&p.payload[..n])? < n {
            return Err(Errno::EFAULT);
        }
        let what = if self.domain == AF_INET { (c::SOL_IP, IP_RECVERR) } else { (c::SOL_IPV6, IPV6_RECVERR) };
        let mut r = Received { len: n, addr: p.to.clone(), flags: MsgFlags::ERRQUEUE, ..Received::default() };
        r.control.push((what.0, what.1, p.bytes(self.domain)));
        if n < p.payload.len() {
            r.flags |= MsgFlags::TRUNC;
            if flags.contains(MsgFlags::TRUNC) {
                r.len = p.payload.len();
            }
        }
        Ok(r)
    }
}

/// The control message of an error.
const IP_RECVERR: i32 = 11;
/// See [`IP_RECVERR`].
const IPV6_RECVERR: i32 = 25;
