//! Options at TCP level (`tcp(7)`). Most only matter on a wire and are kept to be shown again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use doppel_abi_service::net::SocketOption;
use doppel_algo::net::ports::unmapped;

use super::tcp::Tcp;
use crate::net::consts::SO_KEEPALIVE;
use crate::net::options::int;
use crate::net::remote::{self, Far, Network};
use crate::net::socket::Marks;
use crate::{Errno, Result};

const TCP_MAXSEG: i32 = 2;
const TCP_CORK: i32 = 3;
const TCP_INFO: i32 = 11;
const TCP_CONGESTION: i32 = 13;
const TCP_REPAIR: i32 = 19;
/// Largest segment of the loopback interface.
const LOOPBACK_MSS: i32 = 65_483;
/// Longest packet to the outside.
const OUTSIDE_MTU: u32 = 1500;

/// Options that are plain numbers: name, default, least and greatest value taken.
const NUMBERS: [(i32, i32, i32, i32); 22] = [
    (1, 0, i32::MIN, i32::MAX), // NODELAY
    (TCP_MAXSEG, LOOPBACK_MSS, 88, 32_767),
    (TCP_CORK, 0, i32::MIN, i32::MAX),
    (4, 7200, 1, 32_767),        // KEEPIDLE
    (5, 75, 1, 32_767),          // KEEPINTVL
    (6, 9, 1, 127),              // KEEPCNT
    (7, 6, 1, 127),              // SYNCNT
    (8, 60, i32::MIN, i32::MAX), // LINGER2
    (9, 0, i32::MIN, i32::MAX),  // DEFER_ACCEPT
    (10, 0, 0, i32::MAX),        // WINDOW_CLAMP
    (12, 1, i32::MIN, i32::MAX), // QUICKACK
    (16, 0, 0, 1),               // THIN_LINEAR_TIMEOUTS
    (17, 0, 0, 1),               // THIN_DUPACK
    (18, 0, 0, i32::MAX),        // USER_TIMEOUT
    (23, 0, 0, i32::MAX),        // FASTOPEN
    (24, 0, i32::MIN, i32::MAX), // TIMESTAMP
    (25, 0, i32::MIN, i32::MAX), // NOTSENT_LOWAT
    (27, 0, 0, 2),               // SAVE_SYN
    (30, 0, 0, 1),               // FASTOPEN_CONNECT
    (34, 0, 0, 1),               // FASTOPEN_NO_COOKIE
    (36, 0, 0, 1),               // INQ
    (37, 0, 0, i32::MAX),        // TX_DELAY
];
/// On/off options: anything but 0 is 1.
const SWITCHES: [i32; 3] = [1, 3, 12];

/// Values set.
#[derive(Clone, Default)]
pub(super) struct TcpOptions {
    set: BTreeMap<i32, i32>,
}

/// setsockopt
pub(super) fn set(s: &Tcp, name: i32, value: &[u8]) -> Result<()> {
    if name == TCP_CONGESTION {
        let algorithm = value.split(|b| *b == 0).next().unwrap_or_default();
        return if [&b"cubic"[..], b"reno"].contains(&algorithm) { Ok(()) } else { Err(Errno::ENOENT) };
    }
    if name == TCP_REPAIR {
        return Err(Errno::EPERM);
    }
    let Some((_, _, least, most)) = NUMBERS.iter().find(|n| n.0 == name) else {
        return Err(Errno::ENOPROTOOPT);
    };
    let mut v = int(value)?;
    if SWITCHES.contains(&name) {
        v = i32::from(v != 0);
    } else if !(*least..=*most).contains(&v) {
        return Err(Errno::EINVAL);
    }
    s.inner.lock().tcp.set.insert(name, v);
    if let (Some(far), Some(network)) = (s.far(), remote::network()) {
        tell_one(&network, &far, name, v);
    }
    Ok(())
}

/// Tells the network service what was set of a connection before it had it.
pub(super) fn tell(s: &Tcp, network: &Network, far: &Far) {
    let set = s.inner.lock().tcp.set.clone();
    for (name, v) in set {
        tell_one(network, far, name, v);
    }
    if s.common.on(SO_KEEPALIVE) {
        network.set(far.number(), SocketOption::KeepAlive, 1);
    }
    tell_marks(s);
}

/// The same of SO_KEEPALIVE, which was changed.
pub(super) fn tell_keepalive(s: &Tcp) {
    if let (Some(far), Some(network)) = (s.far(), remote::network()) {
        network.set(far.number(), SocketOption::KeepAlive, s.common.on(SO_KEEPALIVE).into());
    }
}

/// The same of hops and class of its packets.
pub(super) fn tell_marks(s: &Tcp) {
    let (far, marks) = {
        let i = s.inner.lock();
        let v6 = unmapped(&i.remote.ip).is_none();
        (i.far.clone(), i.ip.has_marks().then(|| i.ip.marks(v6, Marks::default())))
    };
    if let (Some(far), Some(marks), Some(network)) = (far, marks, remote::network()) {
        network.set(far.number(), SocketOption::Hops, marks.hops.unsigned_abs());
        network.set(far.number(), SocketOption::TypeOfService, marks.class.unsigned_abs());
    }
}

fn tell_one(network: &Network, far: &Far, name: i32, v: i32) {
    let option = match name {
        1 => SocketOption::NoDelay,
        TCP_CORK => return far.cork(v != 0),
        4 => SocketOption::KeepIdle,
        5 => SocketOption::KeepInterval,
        6 => SocketOption::KeepCount,
        18 => SocketOption::UserTimeout,
        // The rest stays here, to be shown again.
        _ => return,
    };
    network.set(far.number(), option, v.unsigned_abs());
}

/// Largest segment: over Ethernet there are headers of 20 bytes each and a time stamp.
fn mss(s: &Tcp) -> u32 {
    if s.far().is_some() { OUTSIDE_MTU - 52 } else { LOOPBACK_MSS as u32 }
}

/// getsockopt
pub(super) fn get(s: &Tcp, name: i32) -> Result<Vec<u8>> {
    match name {
        TCP_CONGESTION => Ok(b"cubic\0\0\0\0\0\0\0\0\0\0\0".to_vec()),
        TCP_INFO => {
            // struct tcp_info: the state, then what tools look at on an idle loopback connection.
            let mut info = alloc::vec![0u8; 104];
            info[0] = s.tcp_info_state();
            let mut word = |at: usize, v: u32| info[at..at + 4].copy_from_slice(&v.to_ne_bytes());
            word(8, 200_000); // rto
            word(12, 40_000); // ato
            word(16, mss(s)); // snd_mss
            word(20, mss(s)); // rcv_mss
            word(60, if s.far().is_some() { OUTSIDE_MTU } else { 65_535 }); // pmtu
            word(68, 20); // rtt
            word(72, 10); // rttvar
            word(76, i32::MAX as u32); // snd_ssthresh
            word(80, 10); // snd_cwnd
            word(84, mss(s)); // advmss
            word(88, 3); // reordering
            Ok(info)
        }
        _ => {
            let known = NUMBERS.iter().find(|n| n.0 == name).ok_or(Errno::ENOPROTOOPT)?;
            let set = s.inner.lock().tcp.set.get(&name).copied();
            let v = match name {
                TCP_MAXSEG => set.filter(|_| s.far().is_none()).unwrap_or(mss(s) as i32),
                _ => set.unwrap_or(known.1),
            };
            Ok(v.to_ne_bytes().to_vec())
        }
    }
}
