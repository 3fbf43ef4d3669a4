//! setsockopt and getsockopt: what they copy in and out.

use alloc::vec::Vec;

use crate::objects::net::consts as c;
use crate::objects::net::socket::SocketOps;
use crate::objects::net::{filter, options};
use crate::personality::Args;
use crate::personality::args::RawFd;
use crate::personality::net::sockets::sock;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// Longest option value taken.
const OPTION_MAX: i32 = 4096;

/// `setsockopt(2)`
pub(super) fn setsockopt(
    a: &Args,
    RawFd(fd): RawFd,
    level: i32,
    name: i32,
    value: UserPtr,
    len: i32,
) -> Result<u64> {
    let s = sock(a, fd)?;
    let len = usize::try_from(len.min(OPTION_MAX)).map_err(|_| Errno::EINVAL)?;
    let mut v: Vec<u8> = Vec::with_capacity(len);
    if value.read_append(&mut v, len)? < len {
        return Err(Errno::EFAULT);
    }
    options::set(&*s.ops, level, name, &v)?;
    Ok(0)
}

/// The options that say by their argument what is asked for (lists of sources of a group).
fn asked(s: &dyn SocketOps, level: i32, name: i32, value: UserPtr, room: usize) -> Result<Option<Vec<u8>>> {
    const IP_MSFILTER: i32 = 41;
    const MCAST_MSFILTER: i32 = 48;
    if !matches!((level, name), (c::SOL_IP, IP_MSFILTER) | (c::SOL_IP | c::SOL_IPV6, MCAST_MSFILTER)) {
        return Ok(None);
    }
    let len = room.min(OPTION_MAX as usize);
    let mut v: Vec<u8> = Vec::with_capacity(len);
    if value.read_append(&mut v, len)? < len {
        return Err(Errno::EFAULT);
    }
    s.ask_option(level, name, &v).transpose()
}

/// `getsockopt(2)`
pub(super) fn getsockopt(
    a: &Args,
    RawFd(fd): RawFd,
    level: i32,
    name: i32,
    value: UserPtr,
    user_len: UserPtr,
) -> Result<u64> {
    let s = sock(a, fd)?;
    let room: i32 = user_len.read()?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    if (level, name) == (c::SOL_SOCKET, c::SO_ATTACH_FILTER) {
        let n = filter::show(s.ops.common(), value, room)?;
        user_len.write(&(n as i32))?;
        return Ok(0);
    }
    let v = match asked(&*s.ops, level, name, value, room)? {
        Some(v) => v,
        None => options::get(&*s.ops, level, name)?,
    };
    let n = v.len().min(room);
    if n < v.len() && (level, name) == (c::SOL_SOCKET, c::SO_PEERGROUPS) {
        user_len.write(&(v.len() as i32))?;
        return Err(Errno::ERANGE);
    }
    value.write_bytes(&v[..n])?;
    user_len.write(&(n as i32))?;
    Ok(0)
}
