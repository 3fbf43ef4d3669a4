//! What of a socket can be set, and which algorithms the host has for that.

/// What of a socket can be set; values as `setsockopt` has them: an `int`, durations in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum SocketOption {
    /// TCP_NODELAY.
    NoDelay = 1,
    /// SO_KEEPALIVE.
    KeepAlive = 2,
    /// TCP_KEEPIDLE.
    KeepIdle = 3,
    /// TCP_KEEPINTVL.
    KeepInterval = 4,
    /// TCP_KEEPCNT.
    KeepCount = 5,
    /// TCP_USER_TIMEOUT in milliseconds.
    UserTimeout = 7,
    /// IP_TOS and IPV6_TCLASS.
    TypeOfService = 8,
    /// IP_TTL and IPV6_UNICAST_HOPS.
    Hops = 9,
    /// Of a datagram socket: say with how many hops and which class datagrams came.
    ReceiveMarks = 10,
    /// SO_SNDBUF.
    SendBuffer = 11,
    /// SO_RCVBUF.
    ReceiveBuffer = 12,
    /// TCP_CONGESTION: a place in [`Congestion`].
    Congestion = 13,
    /// TCP_MAXSEG.
    MaxSegment = 14,
    /// TCP_DEFER_ACCEPT, of a listener.
    DeferAccept = 15,
    /// TCP_QUICKACK.
    QuickAck = 16,
    /// TCP_NOTSENT_LOWAT.
    NotSentLow = 17,
    /// TCP_LINGER2.
    Linger2 = 18,
    /// TCP_SYNCNT.
    SynCount = 19,
    /// TCP_WINDOW_CLAMP.
    WindowClamp = 20,
    /// TCP_FASTOPEN, of a listener.
    FastOpen = 21,
    /// SO_PRIORITY.
    Priority = 22,
    /// IP_MTU_DISCOVER.
    MtuDiscover = 23,
    /// IPV6_MTU_DISCOVER.
    MtuDiscover6 = 24,
    /// Of a datagram socket: tell errors by records ([`super::DatagramHeader::is_record`]). 1: of IPv4 (IP_RECVERR),
    /// 2: of IPv6 (IPV6_RECVERR).
    ReceiveErrors = 25,
}

impl SocketOption {
    /// All there are.
    pub const ALL: [Self; 24] = [
        Self::NoDelay,
        Self::KeepAlive,
        Self::KeepIdle,
        Self::KeepInterval,
        Self::KeepCount,
        Self::UserTimeout,
        Self::TypeOfService,
        Self::Hops,
        Self::ReceiveMarks,
        Self::SendBuffer,
        Self::ReceiveBuffer,
        Self::Congestion,
        Self::MaxSegment,
        Self::DeferAccept,
        Self::QuickAck,
        Self::NotSentLow,
        Self::Linger2,
        Self::SynCount,
        Self::WindowClamp,
        Self::FastOpen,
        Self::Priority,
        Self::MtuDiscover,
        Self::MtuDiscover6,
        Self::ReceiveErrors,
    ];

    /// The one of this number.
    #[must_use]
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|o| *o as u16 == number)
    }
}

/// What a service domain says of the host's congestion control when it begins to serve: at [`Self::PLACE`] of the channel, names
/// with a space between two, the default first, then zeros. There are those that programs without rights may choose.
#[derive(Clone, Copy, Debug)]
pub struct Congestion(pub [u8; Self::SIZE]);

impl Congestion {
    /// Where it is in a channel.
    pub const PLACE: u64 = 192 << 10;
    /// Its size in bytes.
    pub const SIZE: usize = 256;
    /// Longest name.
    pub const NAME: usize = 16;

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let text = self.0.split(|b| *b == 0).next().unwrap_or_default();
        text.split(|b| *b == b' ').filter(|name| !name.is_empty() && name.len() < Self::NAME)
    }

    /// The place of a name.
    #[must_use]
    pub fn place(&self, name: &[u8]) -> Option<u32> {
        self.names().position(|n| n == name).and_then(|n| u32::try_from(n).ok())
    }
}
