//! Options at TCP level (`tcp(7)`). Most only matter on a wire and are kept to be shown again.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use doppel_abi_service::net::{Congestion, Measure};

use super::{State, Tcp, told};
use crate::core::time;
use crate::objects::net::consts::SOMAXCONN;
use crate::objects::net::options::int;
use crate::objects::net::outside::{self, algorithms};
use crate::{Errno, Result};

const TCP_MAXSEG: i32 = 2;
const TCP_CORK: i32 = 3;
const TCP_LINGER2: i32 = 8;
const TCP_DEFER_ACCEPT: i32 = 9;
const TCP_WINDOW_CLAMP: i32 = 10;
const TCP_INFO: i32 = 11;
const TCP_CONGESTION: i32 = 13;
const TCP_THIN_DUPACK: i32 = 17;
const TCP_REPAIR: i32 = 19;
const TCP_REPAIR_QUEUE: i32 = 20;
const TCP_QUEUE_SEQ: i32 = 21;
const TCP_REPAIR_OPTIONS: i32 = 22;
const TCP_FASTOPEN: i32 = 23;
const TCP_TIMESTAMP: i32 = 24;
const TCP_CC_INFO: i32 = 26;
const TCP_SAVED_SYN: i32 = 28;
const TCP_REPAIR_WINDOW: i32 = 29;
const TCP_ULP: i32 = 31;
const TCP_IS_MPTCP: i32 = 43;
/// Largest segment of the loopback interface.
const LOOPBACK_MSS: i32 = 65_483;
/// Largest segment before there is a connection.
const DEFAULT_MSS: i32 = 536;
/// Where `struct tcp_info` has the largest segment.
const SND_MSS: usize = 16;
/// Longest packet to the outside.
const OUTSIDE_MTU: u32 = 1500;
/// Longest time TCP_LINGER2 takes, and what it is by default (`net.ipv4.tcp_fin_timeout`), in seconds.
const MOST_LINGER: i32 = 120;
const FIN_TIMEOUT: i32 = 60;
/// Least window that TCP_WINDOW_CLAMP takes: half the least receive buffer.
const LEAST_WINDOW: i32 = 1152;
/// Longest name of an algorithm.
const CONGESTION_NAME: usize = Congestion::NAME;

/// Options that are plain numbers: name, default, least and greatest value taken.
const NUMBERS: [(i32, i32, i32, i32); 22] = [
    (1, 0, i32::MIN, i32::MAX), // NODELAY
    (TCP_MAXSEG, DEFAULT_MSS, 0, 32_767),
    (TCP_CORK, 0, i32::MIN, i32::MAX),
    (4, 7200, 1, 32_767), // KEEPIDLE
    (5, 75, 1, 32_767),   // KEEPINTVL
    (6, 9, 1, 127),       // KEEPCNT
    (7, 6, 1, 127),       // SYNCNT
    (TCP_LINGER2, FIN_TIMEOUT, i32::MIN, i32::MAX),
    (TCP_DEFER_ACCEPT, 0, i32::MIN, i32::MAX),
    (TCP_WINDOW_CLAMP, 0, i32::MIN, i32::MAX),
    (12, 1, i32::MIN, i32::MAX), // QUICKACK
    (16, 0, 0, 1),               // THIN_LINEAR_TIMEOUTS
    (TCP_THIN_DUPACK, 0, 0, 1),
    (18, 0, 0, i32::MAX), // USER_TIMEOUT
    (TCP_FASTOPEN, 0, 0, i32::MAX),
    (25, 0, i32::MIN, i32::MAX), // NOTSENT_LOWAT
    (27, 0, 0, 2),               // SAVE_SYN
    (30, 0, 0, 1),               // FASTOPEN_CONNECT
    (34, 0, 0, 1),               // FASTOPEN_NO_COOKIE
    (36, 0, 0, 1),               // INQ
    (37, 0, 0, i32::MAX - 1),    // TX_DELAY
    (TCP_IS_MPTCP, 0, 0, -1),
];
/// On/off options: anything but 0 is 1.
const SWITCHES: [i32; 3] = [1, 3, 12];

/// Values set.
#[derive(Clone, Default)]
pub(crate) struct TcpOptions {
    set: BTreeMap<i32, i32>,
    /// Name of the algorithm.
    congestion: Option<Box<[u8]>>,
}

impl TcpOptions {
    /// For how long, in seconds, an end in FIN_WAIT_2 without a descriptor is kept; `None` not at all.
    pub(super) fn lingers(&self) -> Option<u64> {
        u64::try_from(self.set.get(&TCP_LINGER2).copied().unwrap_or(FIN_TIMEOUT)).ok()
    }

    /// What was set, by name.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (i32, i32)> {
        self.set.iter().map(|(name, v)| (*name, *v))
    }

    /// The algorithm that was chosen (TCP_CONGESTION).
    pub(super) fn congestion(&self) -> Option<&[u8]> {
        self.congestion.as_deref()
    }

    /// Whether connections are only accepted once there are bytes (TCP_DEFER_ACCEPT), and the seconds after which they
    /// are without.
    pub(super) fn defers(&self) -> Option<u64> {
        self.set.get(&TCP_DEFER_ACCEPT).filter(|s| **s > 0).map(|s| u64::from(s.unsigned_abs()))
    }
}

/// Whether TCP_CORK is on.
pub(super) fn is_corked(s: &Tcp) -> bool {
    s.inner.lock().tcp.set.get(&TCP_CORK).is_some_and(|v| *v != 0)
}

/// TCP_DEFER_ACCEPT is counted in repetitions of a SYN, which come after 1, 2, 4 seconds and so on.
fn deferred(seconds: i32) -> i32 {
    const LONGEST: i32 = 120;
    const MOST: i32 = 255;
    let (mut times, mut timeout, mut period) = (1, 1, 1);
    if seconds <= 0 {
        return 0;
    }
    while seconds > period && times < MOST {
        times += 1;
        timeout = (timeout * 2).min(LONGEST);
        period += timeout;
    }
    period
}

/// setsockopt
pub(super) fn set(s: &Tcp, name: i32, value: &[u8]) -> Result<()> {
    if matches!(name, TCP_CONGESTION | TCP_ULP) {
        if value.is_empty() {
            return Err(Errno::EINVAL);
        }
        let value = &value[..value.len().min(CONGESTION_NAME - 1)];
        let asked = value.split(|b| *b == 0).next().unwrap_or_default();
        let known = name == TCP_CONGESTION && algorithms().names().any(|k| k == asked);
        if !known {
            return Err(Errno::ENOENT);
        }
        s.inner.lock().tcp.congestion = Some(asked.into());
        told::congestion(s);
        return Ok(());
    }
    let mut v = int(value)?;
    let known = NUMBERS.iter().find(|n| n.0 == name);
    let Some((_, _, least, most)) = known.filter(|n| n.0 != TCP_IS_MPTCP) else {
        return Err(match name {
            TCP_REPAIR | TCP_REPAIR_QUEUE | TCP_REPAIR_WINDOW | TCP_TIMESTAMP => Errno::EPERM,
            TCP_QUEUE_SEQ | TCP_REPAIR_OPTIONS => Errno::EINVAL,
            _ => Errno::ENOPROTOOPT,
        });
    };
    if SWITCHES.contains(&name) {
        v = i32::from(v != 0);
    } else if !(*least..=*most).contains(&v) {
        return Err(Errno::EINVAL);
    }
    let fresh = matches!(s.inner.lock().state, State::Closed | State::Listening);
    match name {
        TCP_MAXSEG if v != 0 && v < 88 => return Err(Errno::EINVAL),
        TCP_LINGER2 if v < 0 => v = -1,
        TCP_LINGER2 if v == 0 => v = FIN_TIMEOUT,
        TCP_LINGER2 => v = v.min(MOST_LINGER),
        TCP_DEFER_ACCEPT => v = deferred(v),
        TCP_WINDOW_CLAMP if v == 0 && !fresh => return Err(Errno::EINVAL),
        TCP_WINDOW_CLAMP if v != 0 => v = v.max(LEAST_WINDOW),
        TCP_THIN_DUPACK => v = 0,
        TCP_FASTOPEN if !fresh => return Err(Errno::EINVAL),
        TCP_FASTOPEN => v = v.min(SOMAXCONN as i32),
        _ => {}
    }
    s.inner.lock().tcp.set.insert(name, v);
    if name == TCP_CORK
        && let Some(far) = s.far()
    {
        far.cork(v != 0);
    }
    told::one(s, name, v);
    Ok(())
}

/// What the host knows of a connection to outside.
pub(super) fn measured(s: &Tcp) -> Option<Box<Measure>> {
    let far = s.far()?;
    // As for every call that uses one: what was held back goes before the thread waits.
    outside::used();
    outside::network()?.measure(far.number())
}

/// A word of `struct tcp_info`, if the host says it.
fn word_of(m: &Measure, at: usize) -> Option<u32> {
    let known = m.info.get(..m.len.into())?.get(at..at + 4)?;
    known.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// Largest segment of a connection.
fn current_mss(s: &Tcp) -> u32 {
    let said = measured(s).and_then(|m| word_of(&m, SND_MSS)).filter(|n| (1..=65_535).contains(n));
    said.unwrap_or_else(|| mss(s))
}

/// Largest segment where nobody says it: over Ethernet there are headers of 20 bytes each and a time stamp.
fn mss(s: &Tcp) -> u32 {
    if s.far().is_some() { OUTSIDE_MTU - 52 } else { LOOPBACK_MSS as u32 }
}

/// getsockopt
pub(super) fn get(s: &Tcp, name: i32) -> Result<Vec<u8>> {
    match name {
        TCP_CONGESTION => {
            let set = s.inner.lock().tcp.congestion.clone();
            let mut b =
                set.map_or_else(|| algorithms().names().next().unwrap_or_default().to_vec(), Vec::from);
            b.resize(CONGESTION_NAME, 0);
            Ok(b)
        }
        // In milliseconds.
        TCP_TIMESTAMP => Ok(((time::monotonic_ns() / 1_000_000) as u32).to_ne_bytes().to_vec()),
        TCP_REPAIR => Ok(0i32.to_ne_bytes().to_vec()),
        TCP_REPAIR_QUEUE | TCP_QUEUE_SEQ | TCP_REPAIR_WINDOW => Err(Errno::EINVAL),
        TCP_SAVED_SYN | TCP_ULP | TCP_CC_INFO => Ok(Vec::new()),
        TCP_INFO => {
            if let Some(m) = measured(s).filter(|m| usize::from(m.len) > SND_MSS) {
                let mut info = m.info[..m.len.into()].to_vec();
                // Of what was sent and ended the host may not know yet.
                info[0] = s.tcp_info_state();
                return Ok(info);
            }
            // struct tcp_info: the state, then what tools look at on an idle loopback connection.
            let mut info = alloc::vec![0u8; 104];
            info[0] = s.tcp_info_state();
            let mut word = |at: usize, v: u32| info[at..at + 4].copy_from_slice(&v.to_ne_bytes());
            word(8, 200_000); // rto
            word(12, 40_000); // ato
            word(SND_MSS, mss(s)); // snd_mss
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
            let (set, fresh) = {
                let i = s.inner.lock();
                let fresh = matches!(i.state, State::Closed | State::Listening | State::Connecting);
                (i.tcp.set.get(&name).copied(), fresh)
            };
            let v = match (name, set) {
                // The largest asked for, and then what fits the way.
                (TCP_MAXSEG, Some(v @ 1..)) if fresh => v,
                (TCP_MAXSEG, _) if fresh => known.1,
                (TCP_MAXSEG, Some(v @ 1..)) => v.min(current_mss(s) as i32),
                (TCP_MAXSEG, _) => current_mss(s) as i32,
                (_, set) => set.unwrap_or(known.1),
            };
            Ok(v.to_ne_bytes().to_vec())
        }
    }
}
