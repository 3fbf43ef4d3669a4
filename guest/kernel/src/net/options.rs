//! setsockopt and getsockopt at SOL_SOCKET level (`socket(7)`); other levels go to the protocol.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_machine::user::bytes_of;

use super::consts::{self as c};
use super::interfaces;
use super::socket::SocketOps;
use super::unix::scm::Ucred;
use crate::task::current;
use crate::{Errno, Result};

/// Options that are on or off.
const SWITCHES: [i32; 15] = [
    c::SO_DEBUG,
    c::SO_REUSEADDR,
    c::SO_DONTROUTE,
    c::SO_BROADCAST,
    c::SO_KEEPALIVE,
    c::SO_OOBINLINE,
    c::SO_NO_CHECK,
    c::SO_REUSEPORT,
    c::SO_PASSCRED,
    c::SO_TIMESTAMP,
    c::SO_PASSSEC,
    c::SO_TIMESTAMPNS,
    c::SO_RXQ_OVFL,
    c::SO_SELECT_ERR_QUEUE,
    c::SO_ZEROCOPY,
];
const CAP_NET_ADMIN: u32 = 12;

/// An `int` argument.
pub fn int(v: &[u8]) -> Result<i32> {
    match v {
        [a, b, c, d, ..] => Ok(i32::from_ne_bytes([*a, *b, *c, *d])),
        _ => Err(Errno::EINVAL),
    }
}

fn timeval(v: &[u8]) -> Result<u64> {
    if v.len() < 16 {
        return Err(Errno::EINVAL);
    }
    let word = |o: usize| {
        let mut b = [0; 8];
        b.copy_from_slice(&v[o..o + 8]);
        i64::from_ne_bytes(b)
    };
    let (sec, usec) = (word(0), word(8));
    if !(0..1_000_000).contains(&usec) {
        return Err(Errno::EDOM);
    }
    // Negative or absurd times mean "do not wait" and "for ever".
    if sec < 0 {
        return Ok(1);
    }
    Ok((sec as u64).saturating_mul(1_000_000_000).saturating_add(usec as u64 * 1000))
}

fn to_timeval(ns: u64) -> Vec<u8> {
    bytes_of(&[ns / 1_000_000_000, ns % 1_000_000_000 / 1000]).to_vec()
}

/// `setsockopt(2)`
pub fn set(s: &dyn SocketOps, level: i32, name: i32, v: &[u8]) -> Result<()> {
    if level != c::SOL_SOCKET {
        return s.set_option(level, name, v);
    }
    let o = s.common();
    if name == c::SO_BINDTODEVICE {
        let name = v.split(|b| *b == 0).next().unwrap_or_default();
        let device = if name.is_empty() { 0 } else { interfaces::named(name).ok_or(Errno::ENODEV)?.index };
        o.device.store(device, Ordering::Relaxed);
        return Ok(());
    }
    if let c::SO_ATTACH_FILTER | c::SO_DETACH_FILTER | c::SO_LOCK_FILTER | c::SO_DETACH_REUSEPORT_BPF = name {
        return Err(Errno::ENOPROTOOPT);
    }
    let n = int(v)?;
    let cred = current().cred();
    match name {
        c::SO_TYPE | c::SO_PROTOCOL | c::SO_DOMAIN | c::SO_ERROR | c::SO_ACCEPTCONN | c::SO_PEERCRED => {
            return Err(Errno::ENOPROTOOPT);
        }
        c::SO_SNDBUF => o.sndbuf.store((n.clamp(2304, c::MAX_BUF) as usize) * 2, Ordering::Relaxed),
        c::SO_RCVBUF => o.rcvbuf.store((n.clamp(1152, c::MAX_BUF) as usize) * 2, Ordering::Relaxed),
        c::SO_SNDBUFFORCE | c::SO_RCVBUFFORCE => {
            if !cred.capable(CAP_NET_ADMIN) {
                return Err(Errno::EPERM);
            }
            // Bounded: the memory is the domain's own, but one socket must not take it all.
            let size = (n.clamp(2304, 16 << 20) as usize) * 2;
            let buf = if name == c::SO_SNDBUFFORCE { &o.sndbuf } else { &o.rcvbuf };
            buf.store(size, Ordering::Relaxed);
        }
        c::SO_PRIORITY => {
            // TC_PRIO_INTERACTIVE is the most that everybody may ask for.
            if !(0..=6).contains(&n) && !cred.capable(CAP_NET_ADMIN) {
                return Err(Errno::EPERM);
            }
            o.priority.store(n as u32, Ordering::Relaxed);
        }
        c::SO_MARK => {
            if !cred.capable(CAP_NET_ADMIN) {
                return Err(Errno::EPERM);
            }
            o.mark.store(n as u32, Ordering::Relaxed);
        }
        c::SO_LINGER => {
            if v.len() < 8 {
                return Err(Errno::EINVAL);
            }
            let secs = i64::from(int(&v[4..])?.max(0));
            o.linger.store(if n != 0 { secs } else { -1 }, Ordering::Relaxed);
        }
        c::SO_RCVLOWAT => {
            o.rcvlowat.store(if n < 0 { i32::MAX } else { n.max(1) }, Ordering::Relaxed);
        }
        c::SO_SNDLOWAT => return Err(Errno::ENOPROTOOPT),
        c::SO_RCVTIMEO | c::SO_RCVTIMEO_NEW => o.rcvtimeo.store(timeval(v)?, Ordering::Relaxed),
        c::SO_SNDTIMEO | c::SO_SNDTIMEO_NEW => o.sndtimeo.store(timeval(v)?, Ordering::Relaxed),
        c::SO_PEEK_OFF => {
            if o.domain != doppel_algo::net::sockaddr::AF_UNIX {
                return Err(Errno::EOPNOTSUPP);
            }
            o.peek_off.store(n, Ordering::Relaxed);
        }
        c::SO_TIMESTAMP_NEW => o.switch(c::SO_TIMESTAMP, n != 0),
        c::SO_TIMESTAMPNS_NEW => o.switch(c::SO_TIMESTAMPNS, n != 0),
        c::SO_BUSY_POLL | c::SO_MAX_PACING_RATE | c::SO_INCOMING_CPU | c::SO_TIMESTAMPING => {}
        _ if SWITCHES.contains(&name) => {
            o.switch(name, n != 0);
            s.switched(name);
        }
        _ => return s.set_option(level, name, v),
    }
    Ok(())
}

/// `getsockopt(2)`: the whole value; the caller cuts it to the room there is.
pub fn get(s: &dyn SocketOps, level: i32, name: i32) -> Result<Vec<u8>> {
    if level != c::SOL_SOCKET {
        return s.get_option(level, name);
    }
    let o = s.common();
    let n = match name {
        c::SO_TYPE => o.kind as i32,
        c::SO_DOMAIN => i32::from(o.domain),
        c::SO_PROTOCOL => o.protocol,
        c::SO_ERROR => o.take_error().map_or(0, |e| i32::from(e.0)),
        c::SO_ACCEPTCONN => i32::from(s.listening()),
        c::SO_SNDBUF => o.sndbuf.load(Ordering::Relaxed) as i32,
        c::SO_RCVBUF => o.rcvbuf.load(Ordering::Relaxed) as i32,
        c::SO_PRIORITY => o.priority.load(Ordering::Relaxed) as i32,
        c::SO_MARK => o.mark.load(Ordering::Relaxed) as i32,
        c::SO_RCVLOWAT => o.rcvlowat.load(Ordering::Relaxed),
        c::SO_SNDLOWAT => 1,
        c::SO_PEEK_OFF => o.peek_off.load(Ordering::Relaxed),
        c::SO_BUSY_POLL | c::SO_TIMESTAMPING | c::SO_INCOMING_NAPI_ID | c::SO_LOCK_FILTER => 0,
        c::SO_INCOMING_CPU => -1,
        c::SO_TIMESTAMP_NEW => i32::from(o.on(c::SO_TIMESTAMP)),
        c::SO_TIMESTAMPNS_NEW => i32::from(o.on(c::SO_TIMESTAMPNS)),
        c::SO_LINGER => {
            let l = o.linger.load(Ordering::Relaxed);
            return Ok(bytes_of(&[i32::from(l >= 0), l.max(0) as i32]).to_vec());
        }
        c::SO_RCVTIMEO | c::SO_RCVTIMEO_NEW => return Ok(to_timeval(o.rcvtimeo.load(Ordering::Relaxed))),
        c::SO_SNDTIMEO | c::SO_SNDTIMEO_NEW => return Ok(to_timeval(o.sndtimeo.load(Ordering::Relaxed))),
        c::SO_PEERCRED => {
            let none = Ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
            return Ok(bytes_of(&s.peer_cred().unwrap_or(none)).to_vec());
        }
        c::SO_PEERNAME => {
            let mut b = [0; doppel_algo::net::sockaddr::MAX];
            let n = s.remote()?.encode(&mut b);
            return Ok(b[..n].to_vec());
        }
        c::SO_COOKIE => return Ok(o.ino.to_ne_bytes().to_vec()),
        c::SO_MAX_PACING_RATE => -1,
        c::SO_BINDTODEVICE => {
            let device = o.device.load(Ordering::Relaxed);
            let found = interfaces::all().into_iter().find(|i| i.index == device);
            return Ok(found.map_or(Vec::new(), |i| [i.name.as_bytes(), b"\0"].concat()));
        }
        c::SO_MEMINFO => {
            let v = |n: usize| n as u32;
            let snd = o.sndbuf.load(Ordering::Relaxed);
            let m = [
                0,
                v(o.rcvbuf.load(Ordering::Relaxed)),
                v(o.wmem.load(Ordering::Relaxed)),
                v(snd),
                0,
                0,
                0,
                0,
                0u32,
            ];
            return Ok(bytes_of(&m).to_vec());
        }
        _ if SWITCHES.contains(&name) => i32::from(o.on(name)),
        _ => return s.get_option(level, name),
    };
    Ok(n.to_ne_bytes().to_vec())
}
