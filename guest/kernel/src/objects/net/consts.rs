//! Numbers of the socket interface (`socket(2)`, `send(2)`, `socket(7)`, `tcp(7)`, `ip(7)`).
#![allow(missing_docs)]

pub const SOCK_STREAM: u32 = 1;
pub const SOCK_DGRAM: u32 = 2;
pub const SOCK_RAW: u32 = 3;
pub const SOCK_SEQPACKET: u32 = 5;
pub const SOCK_PACKET: u32 = 10;
pub const SOCK_MAX: u32 = 11;

bitflags::bitflags! {
    /// `MSG_` flags of the calls that send and receive; unknown ones are kept and overlooked.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MsgFlags: u32 {
        const OOB = 0x1;
        const PEEK = 0x2;
        const CTRUNC = 0x8;
        const TRUNC = 0x20;
        const DONTWAIT = 0x40;
        const EOR = 0x80;
        const WAITALL = 0x100;
        const ERRQUEUE = 0x2000;
        const NOSIGNAL = 0x4000;
        const MORE = 0x8000;
        const WAITFORONE = 0x10000;
        const ZEROCOPY = 0x400_0000;
        const CMSG_CLOEXEC = 0x4000_0000;
        /// Of the kernel alone: the caller of a receive wants the source address.
        const WANT_ADDR = 0x8000_0000;
    }
}

impl MsgFlags {
    /// `self` if `on`, else no flags.
    #[must_use]
    pub fn when(self, on: bool) -> Self {
        if on { self } else { Self::empty() }
    }
}

pub const SOL_IP: i32 = 0;
pub const SOL_SOCKET: i32 = 1;
pub const IPPROTO_ICMP: i32 = 1;
pub const SOL_TCP: i32 = 6;
pub const SOL_UDP: i32 = 17;
pub const SOL_UDPLITE: i32 = 136;
pub const SOL_IPV6: i32 = 41;
pub const IPPROTO_ICMPV6: i32 = 58;
/// Type of service, as an option and as a control message.
pub const IP_TOS: i32 = 1;
/// Time to live, likewise.
pub const IP_TTL: i32 = 2;
/// Control message: hop limit.
pub const IPV6_HOPLIMIT: i32 = 52;
/// Traffic class, as an option and as a control message.
pub const IPV6_TCLASS: i32 = 67;
pub const SOL_NETLINK: i32 = 270;

pub const SCM_RIGHTS: i32 = 1;
pub const SCM_CREDENTIALS: i32 = 2;
pub const SCM_PIDFD: i32 = 4;

pub const SO_DEBUG: i32 = 1;
pub const SO_REUSEADDR: i32 = 2;
pub const SO_TYPE: i32 = 3;
pub const SO_ERROR: i32 = 4;
pub const SO_DONTROUTE: i32 = 5;
pub const SO_BROADCAST: i32 = 6;
pub const SO_SNDBUF: i32 = 7;
pub const SO_RCVBUF: i32 = 8;
pub const SO_KEEPALIVE: i32 = 9;
pub const SO_OOBINLINE: i32 = 10;
pub const SO_NO_CHECK: i32 = 11;
pub const SO_PRIORITY: i32 = 12;
pub const SO_LINGER: i32 = 13;
pub const SO_REUSEPORT: i32 = 15;
pub const SO_PASSCRED: i32 = 16;
pub const SO_PEERCRED: i32 = 17;
pub const SO_RCVLOWAT: i32 = 18;
pub const SO_SNDLOWAT: i32 = 19;
pub const SO_RCVTIMEO: i32 = 20;
pub const SO_SNDTIMEO: i32 = 21;
pub const SO_BINDTODEVICE: i32 = 25;
pub const SO_ATTACH_FILTER: i32 = 26;
pub const SO_DETACH_FILTER: i32 = 27;
pub const SO_PEERNAME: i32 = 28;
pub const SO_TIMESTAMP: i32 = 29;
pub const SO_ACCEPTCONN: i32 = 30;
pub const SO_PEERSEC: i32 = 31;
pub const SO_SNDBUFFORCE: i32 = 32;
pub const SO_RCVBUFFORCE: i32 = 33;
pub const SO_PASSSEC: i32 = 34;
pub const SO_TIMESTAMPNS: i32 = 35;
pub const SO_MARK: i32 = 36;
pub const SO_TIMESTAMPING: i32 = 37;
pub const SO_PROTOCOL: i32 = 38;
pub const SO_DOMAIN: i32 = 39;
pub const SO_RXQ_OVFL: i32 = 40;
pub const SO_PEEK_OFF: i32 = 42;
pub const SO_LOCK_FILTER: i32 = 44;
pub const SO_SELECT_ERR_QUEUE: i32 = 45;
pub const SO_BUSY_POLL: i32 = 46;
pub const SO_MAX_PACING_RATE: i32 = 47;
pub const SO_INCOMING_CPU: i32 = 49;
pub const SO_ATTACH_BPF: i32 = 50;
pub const SO_MEMINFO: i32 = 55;
pub const SO_INCOMING_NAPI_ID: i32 = 56;
pub const SO_COOKIE: i32 = 57;
pub const SO_PEERGROUPS: i32 = 59;
pub const SO_ZEROCOPY: i32 = 60;
pub const SO_RCVTIMEO_NEW: i32 = 66;
pub const SO_SNDTIMEO_NEW: i32 = 67;
pub const SO_DETACH_REUSEPORT_BPF: i32 = 68;
pub const SO_TIMESTAMP_NEW: i32 = 63;
pub const SO_TIMESTAMPNS_NEW: i32 = 64;
pub const SO_BSDCOMPAT: i32 = 14;
pub const SO_WIFI_STATUS: i32 = 41;
pub const SO_NOFCS: i32 = 43;
pub const SO_BPF_EXTENSIONS: i32 = 48;
pub const SO_TXTIME: i32 = 61;
pub const SO_BINDTOIFINDEX: i32 = 62;
pub const SO_TIMESTAMPING_NEW: i32 = 65;
pub const SO_PREFER_BUSY_POLL: i32 = 69;
pub const SO_BUSY_POLL_BUDGET: i32 = 70;
pub const SO_BUF_LOCK: i32 = 72;
pub const SO_TXREHASH: i32 = 74;
pub const SO_RCVMARK: i32 = 75;
pub const SO_PASSPIDFD: i32 = 76;
pub const SO_PEERPIDFD: i32 = 77;
/// SO_BUF_LOCK: somebody has set the size of the send buffer, of the receive buffer.
pub const SNDBUF_LOCK: u32 = 1;
/// See [`SNDBUF_LOCK`].
pub const RCVBUF_LOCK: u32 = 2;

pub const FIONREAD: u32 = 0x541b;
pub const SIOCOUTQ: u32 = 0x5411;
pub const FIONBIO: u32 = 0x5421;
pub const FIOASYNC: u32 = 0x5452;
pub const SIOCATMARK: u32 = 0x8905;
pub const FIOSETOWN: u32 = 0x8901;
pub const SIOCSPGRP: u32 = 0x8902;
pub const FIOGETOWN: u32 = 0x8903;
pub const SIOCGPGRP: u32 = 0x8904;

bitflags::bitflags! {
    /// The sides of a connection that were shut down.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Shutdown: u8 {
        const RECEIVE = 1;
        const SEND = 2;
    }
}

/// Default buffer size of a socket (`net.core.wmem_default`).
pub const DEFAULT_BUF: usize = 212_992;
/// Most that SO_SNDBUF and SO_RCVBUF accept before doubling (`net.core.wmem_max`).
pub const MAX_BUF: i32 = 212_992;
/// Most that TCP makes of a receive buffer (`net.ipv4.tcp_rmem`).
pub const TCP_MOST_RCVBUF: i32 = 6_291_456;
/// `net.core.somaxconn`
pub const SOMAXCONN: usize = 4096;
