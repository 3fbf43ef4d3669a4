//! setsockopt and getsockopt at SOL_SOCKET level (`socket(7)`); other levels go to the protocol.

use crate::core::subject::subject;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_machine::user::bytes_of;

use super::Common;
use super::consts::{self as c};
use super::filter;
use super::interfaces;
use super::socket::SocketOps;
use super::unix::scm::Ucred;
use crate::{Errno, Result};

/// Options that are on or off.
const SWITCHES: [i32; 19] = [
    c::SO_DEBUG,
    c::SO_REUSEADDR,
    c::SO_DONTROUTE,
    c::SO_BROADCAST,
    c::SO_KEEPALIVE,
    c::SO_OOBINLINE,
    c::SO_NO_CHECK,
    c::SO_REUSEPORT,
    c::SO_PASSCRED,
    c::SO_PASSSEC,
    c::SO_RXQ_OVFL,
    c::SO_WIFI_STATUS,
    c::SO_NOFCS,
    c::SO_LOCK_FILTER,
    c::SO_SELECT_ERR_QUEUE,
    c::SO_ZEROCOPY,
    c::SO_PREFER_BUSY_POLL,
    c::SO_RCVMARK,
    c::SO_PASSPIDFD,
];
/// Options that are kept to be shown again: what they are before, and of how many bytes.
const KEPT: [(i32, u64, usize); 5] = [
    (c::SO_TIMESTAMPING, 0, 8),
    (c::SO_BUSY_POLL, 0, 4),
    (c::SO_MAX_PACING_RATE, u64::MAX, 8),
    (c::SO_INCOMING_CPU, u32::MAX as u64, 4),
    (c::SO_TXTIME, 0, 8),
];
const CAP_NET_ADMIN: u32 = 12;
/// Least buffers that SO_SNDBUF and SO_RCVBUF give.
const LEAST_SNDBUF: i32 = 4608;
/// See [`LEAST_SNDBUF`].
const LEAST_RCVBUF: i32 = 2304;

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
    // Negative and absurd times mean "do not wait" and "for ever".
    const FOR_EVER: i64 = i64::MAX / 1_000_000_000;
    match sec {
        i64::MIN..0 => Ok(1),
        FOR_EVER.. => Ok(0),
        _ => Ok(sec as u64 * 1_000_000_000 + usec as u64 * 1000),
    }
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
    let n = int(v)?;
    let inet = o.domain != doppel_algo::net::sockaddr::AF_UNIX;
    match name {
        c::SO_DETACH_REUSEPORT_BPF => return Err(Errno::ENOPROTOOPT),
        c::SO_LOCK_FILTER if n == 0 && o.on(name) => return Err(Errno::EPERM),
        c::SO_TYPE | c::SO_PROTOCOL | c::SO_DOMAIN | c::SO_ERROR | c::SO_ACCEPTCONN | c::SO_PEERCRED => {
            return Err(Errno::ENOPROTOOPT);
        }
        c::SO_ATTACH_FILTER | c::SO_ATTACH_BPF | c::SO_DETACH_FILTER => return set_filter(o, name, v, n),
        c::SO_SNDBUF
        | c::SO_RCVBUF
        | c::SO_SNDBUFFORCE
        | c::SO_RCVBUFFORCE
        | c::SO_BUF_LOCK
        | c::SO_RCVLOWAT => {
            return set_size(s, name, n);
        }
        c::SO_PRIORITY | c::SO_MARK => return set_class(s, name, n),
        c::SO_TIMESTAMP | c::SO_TIMESTAMPNS | c::SO_TIMESTAMP_NEW | c::SO_TIMESTAMPNS_NEW => {
            switch_timestamps(o, name, n != 0);
        }
        c::SO_TIMESTAMPING | c::SO_TIMESTAMPING_NEW => {
            check_timestamping(s, n)?;
            o.keep(c::SO_TIMESTAMPING, u64::from(n as u32));
            o.switch(c::SO_TIMESTAMPING, n != 0);
            o.switch(c::SO_TIMESTAMP_NEW, name == c::SO_TIMESTAMPING_NEW);
        }
        c::SO_BUSY_POLL
        | c::SO_INCOMING_CPU
        | c::SO_BUSY_POLL_BUDGET
        | c::SO_MAX_PACING_RATE
        | c::SO_TXTIME
        | c::SO_TXREHASH => return set_pace(o, name, n, v),
        c::SO_LINGER => {
            if v.len() < 8 {
                return Err(Errno::EINVAL);
            }
            let time = if n != 0 { int(&v[4..])? as u32 } else { o.linger().1 };
            o.set_linger(n != 0, time);
        }
        c::SO_SNDLOWAT => return Err(Errno::ENOPROTOOPT),
        c::SO_RCVTIMEO | c::SO_RCVTIMEO_NEW => o.rcvtimeo.store(timeval(v)?, Ordering::Relaxed),
        c::SO_SNDTIMEO | c::SO_SNDTIMEO_NEW => o.sndtimeo.store(timeval(v)?, Ordering::Relaxed),
        c::SO_PEEK_OFF => {
            if matches!(o.protocol, c::IPPROTO_ICMP | c::IPPROTO_ICMPV6) {
                return Err(Errno::EOPNOTSUPP);
            }
            o.peek_off.store(n, Ordering::Relaxed);
        }
        c::SO_BSDCOMPAT => {}
        c::SO_ZEROCOPY if !inet || !matches!(o.protocol, c::SOL_TCP | c::SOL_UDP) => {
            return Err(Errno::EOPNOTSUPP);
        }
        c::SO_ZEROCOPY if !(0..=1).contains(&n) => return Err(Errno::EINVAL),
        c::SO_BINDTOIFINDEX => {
            o.device.store(u32::try_from(n).map_err(|_| Errno::EINVAL)?, Ordering::Relaxed)
        }
        c::SO_PASSPIDFD if inet => return Err(Errno::EOPNOTSUPP),
        _ if SWITCHES.contains(&name) => {
            o.switch(name, n != 0);
            s.switched(name);
        }
        _ => return s.set_option(level, name, v),
    }
    Ok(())
}

/// Options of the filter of what is received.
fn set_filter(o: &Common, name: i32, v: &[u8], n: i32) -> Result<()> {
    match name {
        c::SO_ATTACH_FILTER => filter::attach(o, v),
        c::SO_ATTACH_BPF if v.len() != 4 => Err(Errno::EINVAL),
        c::SO_ATTACH_BPF => filter::attach_descriptor(o, n),
        c::SO_DETACH_FILTER => filter::detach(o),
        _ => Err(Errno::ENOPROTOOPT),
    }
}

/// Sizes of buffers, and how much must be there.
fn set_size(s: &dyn SocketOps, name: i32, n: i32) -> Result<()> {
    let o = s.common();
    match name {
        c::SO_SNDBUF | c::SO_RCVBUF => {
            // A negative number is a huge one.
            let size = if n < 0 { c::MAX_BUF } else { n.min(c::MAX_BUF) };
            set_buffer(o, name == c::SO_SNDBUF, size);
            s.switched(name);
        }
        c::SO_SNDBUFFORCE | c::SO_RCVBUFFORCE => {
            if !subject().cred().capable(CAP_NET_ADMIN) {
                return Err(Errno::EPERM);
            }
            set_buffer(o, name == c::SO_SNDBUFFORCE, n.max(0));
            s.switched(if name == c::SO_SNDBUFFORCE { c::SO_SNDBUF } else { c::SO_RCVBUF });
        }
        c::SO_BUF_LOCK => {
            if !(0..=3).contains(&n) {
                return Err(Errno::EINVAL);
            }
            o.buf_lock.store(n as u32, Ordering::Relaxed);
        }
        c::SO_RCVLOWAT => {
            let n = if n < 0 { i32::MAX } else { n.max(1) };
            let most = match o.protocol {
                c::SOL_TCP if o.buf_lock.load(Ordering::Relaxed) & c::RCVBUF_LOCK != 0 => {
                    (o.rcvbuf.load(Ordering::Relaxed) / 2) as i32
                }
                c::SOL_TCP => c::TCP_MOST_RCVBUF / 2,
                _ => i32::MAX,
            };
            o.rcvlowat.store(n.min(most), Ordering::Relaxed);
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// SO_PRIORITY and SO_MARK.
fn set_class(s: &dyn SocketOps, name: i32, n: i32) -> Result<()> {
    let o = s.common();
    let admin = subject().cred().capable(CAP_NET_ADMIN);
    match name {
        c::SO_PRIORITY => {
            // TC_PRIO_INTERACTIVE is the most that everybody may ask for.
            if !(0..=6).contains(&n) && !admin {
                return Err(Errno::EPERM);
            }
            o.priority.store(n as u32, Ordering::Relaxed);
            s.switched(name);
        }
        c::SO_MARK => {
            if !admin {
                return Err(Errno::EPERM);
            }
            o.mark.store(n as u32, Ordering::Relaxed);
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// One way of telling the time at once.
fn switch_timestamps(o: &Common, name: i32, on: bool) {
    o.switch(c::SO_TIMESTAMP, on && matches!(name, c::SO_TIMESTAMP | c::SO_TIMESTAMP_NEW));
    o.switch(c::SO_TIMESTAMPNS, on && matches!(name, c::SO_TIMESTAMPNS | c::SO_TIMESTAMPNS_NEW));
    if on {
        o.switch(c::SO_TIMESTAMP_NEW, matches!(name, c::SO_TIMESTAMP_NEW | c::SO_TIMESTAMPNS_NEW));
    }
}

/// How packets would go out: kept to be shown again.
fn set_pace(o: &Common, name: i32, n: i32, v: &[u8]) -> Result<()> {
    match name {
        c::SO_BUSY_POLL if n < 0 => return Err(Errno::EINVAL),
        c::SO_BUSY_POLL | c::SO_INCOMING_CPU => o.keep(name, u64::from(n as u32)),
        c::SO_BUSY_POLL_BUDGET => {
            if !(0..=i32::from(u16::MAX)).contains(&n) {
                return Err(Errno::EINVAL);
            }
        }
        c::SO_MAX_PACING_RATE => {
            let rate = match v.first_chunk() {
                Some(b) => u64::from_ne_bytes(*b),
                None if n == -1 => u64::MAX,
                None => u64::from(n as u32),
            };
            o.keep(name, rate);
        }
        c::SO_TXTIME => {
            let time: &[u8; 8] = v.try_into().map_err(|_| Errno::EINVAL)?;
            const FLAGS: u32 = 3;
            if int(&v[4..])? as u32 & !FLAGS != 0 {
                return Err(Errno::EINVAL);
            }
            o.keep(name, u64::from_ne_bytes(*time));
        }
        c::SO_TXREHASH => {
            if o.protocol != c::SOL_TCP {
                return Err(Errno::EOPNOTSUPP);
            }
            if !(-1..=1).contains(&n) {
                return Err(Errno::EINVAL);
            }
            o.keep(name, u64::from(n != 0));
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// SO_SNDBUF and SO_RCVBUF count twice what is asked, which then stays as it is.
fn set_buffer(o: &Common, send: bool, asked: i32) {
    let (buf, least, lock) = if send {
        (&o.sndbuf, LEAST_SNDBUF, c::SNDBUF_LOCK)
    } else {
        (&o.rcvbuf, LEAST_RCVBUF, c::RCVBUF_LOCK)
    };
    let size = asked.min(i32::MAX / 2) * 2;
    buf.store(size.max(least) as usize, Ordering::Relaxed);
    o.buf_lock.fetch_or(lock, Ordering::Relaxed);
}

/// SO_TIMESTAMPING: whether the flags are known, and go together.
fn check_timestamping(s: &dyn SocketOps, flags: i32) -> Result<()> {
    const OPT_ID: i32 = 1 << 7;
    const BIND_PHC: i32 = 1 << 15;
    const OPT_ID_TCP: i32 = 1 << 16;
    const ALL: i32 = (1 << 17) - 1;
    if flags & !ALL != 0 || flags & OPT_ID_TCP != 0 && flags & OPT_ID == 0 {
        return Err(Errno::EINVAL);
    }
    if flags & OPT_ID != 0 && s.common().protocol == c::SOL_TCP && s.remote().is_err() {
        return Err(Errno::EINVAL);
    }
    // There is no clock of hardware.
    if flags & BIND_PHC != 0 { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
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
        c::SO_BUF_LOCK => o.buf_lock.load(Ordering::Relaxed) as i32,
        c::SO_BSDCOMPAT | c::SO_INCOMING_NAPI_ID => 0,
        // Classic filters know this many of Linux' extensions.
        c::SO_BPF_EXTENSIONS => 64,
        c::SO_TIMESTAMP | c::SO_TIMESTAMPNS => i32::from(o.on(name) && !o.on(c::SO_TIMESTAMP_NEW)),
        c::SO_TIMESTAMP_NEW => i32::from(o.on(c::SO_TIMESTAMP) && o.on(name)),
        c::SO_TIMESTAMPNS_NEW => i32::from(o.on(c::SO_TIMESTAMPNS) && o.on(c::SO_TIMESTAMP_NEW)),
        c::SO_TIMESTAMPING_NEW => return Ok(o.kept(c::SO_TIMESTAMPING).unwrap_or(0).to_ne_bytes().to_vec()),
        c::SO_BINDTOIFINDEX => o.device.load(Ordering::Relaxed) as i32,
        c::SO_TXREHASH if o.protocol == c::SOL_TCP => o.kept(name).unwrap_or(1) as i32,
        c::SO_TXREHASH => return Err(Errno::EOPNOTSUPP),
        c::SO_PASSPIDFD if o.domain != doppel_algo::net::sockaddr::AF_UNIX => return Err(Errno::EOPNOTSUPP),
        c::SO_LINGER => {
            let (on, time) = o.linger();
            return Ok(bytes_of(&[u32::from(on), time]).to_vec());
        }
        c::SO_RCVTIMEO | c::SO_RCVTIMEO_NEW => return Ok(to_timeval(o.rcvtimeo.load(Ordering::Relaxed))),
        c::SO_SNDTIMEO | c::SO_SNDTIMEO_NEW => return Ok(to_timeval(o.sndtimeo.load(Ordering::Relaxed))),
        c::SO_PEERCRED => {
            let none = Ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
            return Ok(bytes_of(&s.peer_cred().map_or(none, Ucred::shown)).to_vec());
        }
        c::SO_PEERNAME => {
            let mut b = [0; doppel_algo::net::sockaddr::MAX];
            let n = s.remote()?.encode(&mut b);
            return Ok(b[..n].to_vec());
        }
        c::SO_COOKIE => return Ok(o.ino.to_ne_bytes().to_vec()),
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
        _ if let Some((_, default, size)) = KEPT.iter().find(|k| k.0 == name) => {
            return Ok(o.kept(name).unwrap_or(*default).to_ne_bytes()[..*size].to_vec());
        }
        c::SO_PEERGROUPS | c::SO_PEERPIDFD if o.domain != doppel_algo::net::sockaddr::AF_UNIX => {
            return Err(Errno::ENODATA);
        }
        _ => return s.get_option(level, name),
    };
    Ok(n.to_ne_bytes().to_vec())
}
