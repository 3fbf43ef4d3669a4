//! setsockopt and getsockopt: what they copy in and out.

use alloc::vec::Vec;

use crate::objects::net::consts as c;
use crate::objects::net::socket::SocketOps;
use crate::objects::net::{filter, options};
use crate::personality::Args;
use crate::personality::net::sockets::sock;
use crate::{Errno, Result};

/// Longest option value taken.
const OPTION_MAX: i32 = 4096;

/// `setsockopt(2)`
pub(super) fn setsockopt(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    let len = usize::try_from(a.i32(4).min(OPTION_MAX)).map_err(|_| Errno::EINVAL)?;
    let mut v: Vec<u8> = Vec::with_capacity(len);
    if a.ptr(3).read_append(&mut v, len)? < len {
        return Err(Errno::EFAULT);
    }
    options::set(&*s.ops, a.i32(1), a.i32(2), &v)?;
    Ok(0)
}

/// The options that say by their argument what is asked for (lists of sources of a group).
fn asked(a: &Args, s: &dyn SocketOps, room: usize) -> Result<Option<Vec<u8>>> {
    const IP_MSFILTER: i32 = 41;
    const MCAST_MSFILTER: i32 = 48;
    if !matches!((a.i32(1), a.i32(2)), (c::SOL_IP, IP_MSFILTER) | (c::SOL_IP | c::SOL_IPV6, MCAST_MSFILTER)) {
        return Ok(None);
    }
    let len = room.min(OPTION_MAX as usize);
    let mut v: Vec<u8> = Vec::with_capacity(len);
    if a.ptr(3).read_append(&mut v, len)? < len {
        return Err(Errno::EFAULT);
    }
    s.ask_option(a.i32(1), a.i32(2), &v).transpose()
}

/// `getsockopt(2)`
pub(super) fn getsockopt(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    let room: i32 = a.ptr(4).read()?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    if (a.i32(1), a.i32(2)) == (c::SOL_SOCKET, c::SO_ATTACH_FILTER) {
        let n = filter::show(s.ops.common(), a.ptr(3), room)?;
        a.ptr(4).write(&(n as i32))?;
        return Ok(0);
    }
    let v = match asked(a, &*s.ops, room)? {
        Some(v) => v,
        None => options::get(&*s.ops, a.i32(1), a.i32(2))?,
    };
    let n = v.len().min(room);
    if n < v.len() && a.i32(2) == c::SO_PEERGROUPS && a.i32(1) == c::SOL_SOCKET {
        a.ptr(4).write(&(v.len() as i32))?;
        return Err(Errno::ERANGE);
    }
    a.ptr(3).write_bytes(&v[..n])?;
    a.ptr(4).write(&(n as i32))?;
    Ok(0)
}
