//! Options of sockets: which there are, what they may be, and how the host's have them.
//!
//! What is kept is bounded: each option once. A value is a domain's, and checked before it is kept or set.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use doppel_abi_service::net::{Congestion, Measure, SocketOption};
use doppel_sys::options as host;
use rustix::io::Errno;
use socket2::SockRef;

use crate::flow::address::errno;

/// Largest buffer that SO_SNDBUF and SO_RCVBUF may ask for, of which the host counts twice: as `net.core.rmem_max` has it
/// where nobody has changed it. The host may allow less.
const MOST_BUFFER: u32 = 212_992;
/// What the host's receive buffers are where nobody says otherwise, as SO_RCVBUF would ask for it (half of `tcp_rmem`'s second figure).
const USUAL_BUFFER: i32 = 65_536;
/// Connections that may wait for data of theirs (TCP_FASTOPEN).
const MOST_WAITING: u32 = 4096;

/// What a domain has set of a socket: each option once, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options(Vec<(SocketOption, u32)>);

/// Those of a listener that the host's listening socket needs, as connections have them when they are made: 0, not set.
pub(crate) type BeforeAccept = [u32; 4];

impl Options {
    /// Keeps a value that was checked.
    pub fn put(&mut self, option: SocketOption, value: u32) {
        match self.0.binary_search_by_key(&option, |(o, _)| *o) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (option, value)),
        }
    }

    pub fn get(&self, option: SocketOption) -> Option<u32> {
        let at = self.0.binary_search_by_key(&option, |(o, _)| *o).ok()?;
        Some(self.0[at].1)
    }

    /// Has a connection of the host have them. What the host does not take has no effect: there is nobody to be told.
    pub fn apply_connected(&self, socket: BorrowedFd<'_>) {
        if !self.0.is_empty() {
            self.apply(socket, is_v6(socket));
        }
    }

    /// The same of one that is not connected yet, or has no peer, and will have one of this family.
    pub fn apply(&self, socket: BorrowedFd<'_>, v6: bool) {
        for (option, value) in &self.0 {
            let _ = set(socket, v6, *option, *value);
        }
    }

    pub fn before_accept(&self) -> BeforeAccept {
        use SocketOption::{DeferAccept, FastOpen, MaxSegment, ReceiveBuffer};
        [MaxSegment, DeferAccept, FastOpen, ReceiveBuffer].map(|o| self.get(o).unwrap_or(0))
    }
}

/// Has a listening socket of the host, at which others may have listened before, have these.
pub(crate) fn prepare_listener(socket: BorrowedFd<'_>, [segment, defer, fast, buffer]: BeforeAccept) {
    use SocketOption::{DeferAccept, FastOpen, MaxSegment, ReceiveBuffer};
    // Whether the host has one or the other is its business: callers are accepted in any case.
    for (option, value) in [(MaxSegment, segment), (DeferAccept, defer), (FastOpen, fast)] {
        let _ = set(socket, false, option, value);
    }
    let locked = host::get(socket, host::SOL_SOCKET, host::SO_BUF_LOCK).unwrap_or(0);
    if buffer > 0 {
        let _ = set(socket, false, ReceiveBuffer, buffer);
    } else if locked & host::RCVBUF_LOCK != 0 {
        let _ = host::set(socket, host::SOL_SOCKET, host::SO_RCVBUF, USUAL_BUFFER);
        let _ = host::set(socket, host::SOL_SOCKET, host::SO_BUF_LOCK, locked & !host::RCVBUF_LOCK);
    }
}

/// The value to be kept or set for what a domain asks; EINVAL if there is no such value.
pub(crate) fn checked(option: SocketOption, value: u32) -> Result<u32, Errno> {
    let most = i32::MAX.cast_unsigned();
    let (least, most) = match option {
        SocketOption::NoDelay
        | SocketOption::KeepAlive
        | SocketOption::QuickAck
        | SocketOption::ReceiveMarks => return Ok(u32::from(value != 0)),
        SocketOption::SendBuffer | SocketOption::ReceiveBuffer => return Ok(value.min(MOST_BUFFER)),
        SocketOption::FastOpen => return Ok(value.min(MOST_WAITING)),
        SocketOption::NotSentLow => return Ok(value),
        // Any number below 0 is one meaning.
        SocketOption::Linger2 if value > most => return Ok(u32::MAX),
        SocketOption::KeepIdle | SocketOption::KeepInterval => (1, 32_767),
        SocketOption::KeepCount | SocketOption::SynCount => (1, 127),
        SocketOption::UserTimeout | SocketOption::WindowClamp => (0, most),
        SocketOption::TypeOfService | SocketOption::Hops => (0, 255),
        SocketOption::Congestion => (0, u32::try_from(algorithms().names().count()).unwrap_or(0).max(1) - 1),
        SocketOption::MaxSegment if value == 0 => return Ok(0),
        SocketOption::MaxSegment => (88, 32_767),
        SocketOption::DeferAccept => (0, 65_535),
        SocketOption::Linger2 => (0, 120),
        SocketOption::Priority => (0, 6),
        SocketOption::MtuDiscover | SocketOption::MtuDiscover6 => (0, 5),
        SocketOption::ReceiveErrors => (0, 3),
    };
    if (least..=most).contains(&value) { Ok(value) } else { Err(Errno::INVAL) }
}

/// Level and name of an option of the host's sockets; none: it is none, or none of this family.
fn place(option: SocketOption, v6: bool) -> Option<(i32, i32)> {
    let tcp = |name| Some((host::IPPROTO_TCP, name));
    let ip = |name, name6| Some(if v6 { (host::IPPROTO_IPV6, name6) } else { (host::IPPROTO_IP, name) });
    match option {
        SocketOption::NoDelay => tcp(host::TCP_NODELAY),
        SocketOption::KeepAlive => Some((host::SOL_SOCKET, host::SO_KEEPALIVE)),
        SocketOption::KeepIdle => tcp(host::TCP_KEEPIDLE),
        SocketOption::KeepInterval => tcp(host::TCP_KEEPINTVL),
        SocketOption::KeepCount => tcp(host::TCP_KEEPCNT),
        SocketOption::UserTimeout => tcp(host::TCP_USER_TIMEOUT),
        SocketOption::TypeOfService => ip(host::IP_TOS, host::IPV6_TCLASS),
        SocketOption::Hops => ip(host::IP_TTL, host::IPV6_UNICAST_HOPS),
        SocketOption::SendBuffer => Some((host::SOL_SOCKET, host::SO_SNDBUF)),
        SocketOption::ReceiveBuffer => Some((host::SOL_SOCKET, host::SO_RCVBUF)),
        SocketOption::MaxSegment => tcp(host::TCP_MAXSEG),
        SocketOption::DeferAccept => tcp(host::TCP_DEFER_ACCEPT),
        SocketOption::QuickAck => tcp(host::TCP_QUICKACK),
        SocketOption::NotSentLow => tcp(host::TCP_NOTSENT_LOWAT),
        SocketOption::Linger2 => tcp(host::TCP_LINGER2),
        SocketOption::SynCount => tcp(host::TCP_SYNCNT),
        SocketOption::WindowClamp => tcp(host::TCP_WINDOW_CLAMP),
        SocketOption::FastOpen => tcp(host::TCP_FASTOPEN),
        SocketOption::Priority => Some((host::SOL_SOCKET, host::SO_PRIORITY)),
        SocketOption::MtuDiscover if !v6 => Some((host::IPPROTO_IP, host::IP_MTU_DISCOVER)),
        SocketOption::MtuDiscover6 if v6 => Some((host::IPPROTO_IPV6, host::IPV6_MTU_DISCOVER)),
        SocketOption::ReceiveErrors => ip(host::IP_RECVERR, host::IPV6_RECVERR),
        // By name; or not the host's.
        SocketOption::Congestion
        | SocketOption::MtuDiscover
        | SocketOption::MtuDiscover6
        | SocketOption::ReceiveMarks => None,
    }
}

/// Sets an option of a socket of the host to a value that was checked.
pub(crate) fn set(socket: BorrowedFd<'_>, v6: bool, option: SocketOption, value: u32) -> Result<(), Errno> {
    let result = if option == SocketOption::Congestion {
        let name = usize::try_from(value).ok().and_then(|at| algorithms().names().nth(at));
        let name = name.ok_or(Errno::NOENT)?;
        host::set_bytes(socket, host::IPPROTO_TCP, host::TCP_CONGESTION, name)
    } else {
        let value = match option {
            SocketOption::ReceiveErrors => i32::from(value & (1 << u32::from(v6)) != 0),
            _ => value.cast_signed(),
        };
        place(option, v6).map_or(Ok(()), |(level, name)| host::set(socket, level, name, value))
    };
    // A connection within the host's virtual network is no TCP socket: what cannot be set there has no effect.
    match result.map_err(|e| errno(&e)) {
        Err(Errno::OPNOTSUPP | Errno::NOPROTOOPT) => Ok(()),
        r => r,
    }
}

/// The same of a connection, whatever it is made of.
pub(crate) fn set_connected(socket: BorrowedFd<'_>, option: SocketOption, value: u32) -> Result<(), Errno> {
    set(socket, is_v6(socket), option, value)
}

/// What the host knows of a connection; an error if that is within its virtual network.
pub(crate) fn measure_of(socket: BorrowedFd<'_>) -> Result<Measure, Errno> {
    let (level, name) =
        if is_v6(socket) { (host::IPPROTO_IPV6, host::IPV6_MTU) } else { (host::IPPROTO_IP, host::IP_MTU) };
    let mtu = host::get(socket, level, name).map_err(|e| errno(&e))?;
    let mut info = [0; Measure::INFO];
    // Of datagrams there is none.
    let len = host::get_bytes(socket, host::IPPROTO_TCP, host::TCP_INFO, &mut info).unwrap_or(0);
    Ok(Measure { mtu: u32::try_from(mtu).unwrap_or(0), len: u16::try_from(len).unwrap_or(0), info })
}

/// Whether packets of a connection are IPv6's: those of a socket for both may be IPv4's.
fn is_v6(socket: BorrowedFd<'_>) -> bool {
    SockRef::from(&socket)
        .local_addr()
        .ok()
        .and_then(|a| a.as_socket())
        .is_some_and(|a| a.ip().to_canonical().is_ipv6())
}

/// What the host has for congestion control, once and for all: a process that is confined can open no file.
pub(crate) fn algorithms() -> &'static Congestion {
    static FOUND: OnceLock<Congestion> = OnceLock::new();
    FOUND.get_or_init(|| {
        let text =
            |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        algorithms_of(&text("tcp_congestion_control"), &text("tcp_allowed_congestion_control"))
    })
}

/// The default first, then the others that programs without rights may choose.
fn algorithms_of(default: &str, allowed: &str) -> Congestion {
    let mut found = Congestion([0; Congestion::SIZE]);
    let mut end = 0;
    let mut known: Vec<&str> = Vec::new();
    for name in default.split_whitespace().chain(allowed.split_whitespace()) {
        // The last byte stays 0.
        let fits = name.len() < Congestion::NAME && end + 1 + name.len() < Congestion::SIZE;
        if known.contains(&name) || !fits {
            continue;
        }
        if end > 0 {
            found.0[end] = b' ';
            end += 1;
        }
        found.0[end..end + name.len()].copy_from_slice(name.as_bytes());
        end += name.len();
        known.push(name);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_kept_once() {
        let mut o = Options::default();
        for round in 0..3 {
            for option in SocketOption::ALL {
                o.put(option, round);
            }
        }
        assert_eq!(o.0.len(), SocketOption::ALL.len());
        assert_eq!(o.get(SocketOption::MaxSegment), Some(2));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for (option, value) in [
            (SocketOption::KeepIdle, 0),
            (SocketOption::KeepCount, 128),
            (SocketOption::MaxSegment, 87),
            (SocketOption::MaxSegment, u32::MAX),
            (SocketOption::Congestion, 1 << 20),
            (SocketOption::Priority, 7),
            (SocketOption::MtuDiscover, 6),
            (SocketOption::Hops, 256),
        ] {
            assert_eq!(checked(option, value), Err(Errno::INVAL), "{option:?}");
        }
        assert_eq!(checked(SocketOption::ReceiveBuffer, u32::MAX), Ok(MOST_BUFFER));
        assert_eq!(checked(SocketOption::MaxSegment, 1000), Ok(1000));
    }

    #[test]
    fn algorithms_are_told_with_the_default_first() {
        let names =
            |c: Congestion| c.names().map(|n| String::from_utf8_lossy(n).into_owned()).collect::<Vec<_>>();
        assert_eq!(names(algorithms_of("bbr\n", "reno cubic bbr\n")), ["bbr", "reno", "cubic"]);
        assert_eq!(names(algorithms_of("", "")), [""; 0]);
        let many = (0..100).map(|i| format!("name{i}")).collect::<Vec<_>>().join(" ");
        let found = names(algorithms_of("cubic", &many));
        assert!(found.len() < 60 && found.iter().all(|n| n == "cubic" || many.contains(n.as_str())));
    }
}
