//! The options at IP and IPv6 level that are numbers, as data: what is taken, what is answered by default.

use crate::Errno;
use crate::objects::net::consts::{IP_TOS, IP_TTL, IPV6_TCLASS};

pub(super) const IPV6_UNICAST_HOPS: i32 = 16;
pub(super) const IPV6_MULTICAST_IF: i32 = 17;
pub(super) const IPV6_MULTICAST_HOPS: i32 = 18;
pub(super) const IPV6_MULTICAST_LOOP: i32 = 19;
pub(super) const IPV6_MTU_DISCOVER: i32 = 23;
pub(super) const IPV6_MTU: i32 = 24;
pub(super) const IPV6_RECVERR: i32 = 25;
pub(super) const IPV6_V6ONLY: i32 = 26;
pub(super) const IPV6_MULTICAST_ALL: i32 = 29;
pub(super) const IPV6_2292PKTINFO: i32 = 2;
pub(super) const IPV6_2292HOPLIMIT: i32 = 8;
pub(super) const IPV6_RECVPKTINFO: i32 = 49;
pub(super) const IPV6_PKTINFO: i32 = 50;
pub(super) const IPV6_RECVHOPLIMIT: i32 = 51;
pub(super) const IPV6_RECVTCLASS: i32 = 66;
pub(super) const IPV6_ADDR_PREFERENCES: i32 = 72;
pub(super) const IPV6_MINHOPCOUNT: i32 = 73;
pub(super) const IPV6_ORIGDSTADDR: i32 = 74;
pub(super) const IPV6_TRANSPARENT: i32 = 75;
pub(super) const IPV6_UNICAST_IF: i32 = 76;
pub(super) const IPV6_FREEBIND: i32 = 78;
pub(super) const IP_OPTIONS: i32 = 4;
pub(super) const IP_PKTINFO: i32 = 8;
pub(super) const IP_MTU_DISCOVER: i32 = 10;
pub(super) const IP_RECVERR: i32 = 11;
pub(super) const IP_RECVTTL: i32 = 12;
pub(super) const IP_RECVTOS: i32 = 13;
pub(super) const IP_MTU: i32 = 14;
pub(super) const IP_FREEBIND: i32 = 15;
pub(super) const IP_TRANSPARENT: i32 = 19;
pub(super) const IP_ORIGDSTADDR: i32 = 20;
pub(super) const IP_MINTTL: i32 = 21;
pub(super) const IP_BIND_ADDRESS_NO_PORT: i32 = 24;
pub(super) const IP_MULTICAST_IF: i32 = 32;
pub(super) const IP_MULTICAST_TTL: i32 = 33;
pub(super) const IP_MULTICAST_LOOP: i32 = 34;
pub(super) const IP_MULTICAST_ALL: i32 = 49;
pub(super) const IP_UNICAST_IF: i32 = 50;
pub(super) const IP_LOCAL_PORT_RANGE: i32 = 51;

/// What a number may be.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Anything but 0 is 1.
    Switch,
    /// From one to another.
    Number(i32, i32),
    /// Likewise; -1 asks for the default again.
    OrDefault(i32, i32),
    /// Whatever; looked at elsewhere.
    Any,
    /// Can be read, and set only where there are raw packets: the answer elsewhere.
    Fixed(Errno),
}

/// How many bytes a value needs at least.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// None: an absent value is 0.
    Nothing,
    /// One byte is a number too.
    Byte,
    /// An `int`, or nothing is a 0.
    WordOrZero,
    /// An `int`.
    Word,
}

/// One option.
pub(super) struct Row {
    pub(super) name: i32,
    pub(super) default: i32,
    pub(super) kind: Kind,
    pub(super) length: Length,
    /// What setting it on a stream answers, where it is for datagrams only.
    pub(super) stream: Option<Errno>,
}

const fn row(name: i32, default: i32, kind: Kind, length: Length) -> Row {
    Row { name, default, kind, length, stream: None }
}

const fn datagrams(mut r: Row, error: Errno) -> Row {
    r.stream = Some(error);
    r
}

const fn switch(name: i32, default: i32) -> Row {
    row(name, default, Kind::Switch, Length::Nothing)
}

/// Options of IPv4.
pub(super) const IP: [Row; 28] = [
    row(IP_TOS, 0, Kind::Any, Length::Nothing),
    row(IP_TTL, 64, Kind::OrDefault(1, 255), Length::Byte),
    row(3, 0, Kind::Fixed(Errno::ENOPROTOOPT), Length::Nothing), // HDRINCL
    row(5, 0, Kind::Fixed(Errno::EINVAL), Length::Byte),         // ROUTER_ALERT
    switch(6, 0),                                                // RECVOPTS
    switch(7, 0),                                                // RETOPTS
    switch(IP_PKTINFO, 0),
    row(IP_MTU_DISCOVER, 1, Kind::Number(0, 5), Length::Nothing),
    switch(IP_RECVERR, 0),
    switch(IP_RECVTTL, 0),
    switch(IP_RECVTOS, 0),
    row(IP_FREEBIND, 0, Kind::Switch, Length::Byte),
    switch(18, 0), // PASSSEC
    row(IP_TRANSPARENT, 0, Kind::Switch, Length::Byte),
    switch(IP_ORIGDSTADDR, 0),
    row(IP_MINTTL, 0, Kind::Number(0, 255), Length::Byte),
    row(22, 0, Kind::Fixed(Errno::ENOPROTOOPT), Length::Nothing), // NODEFRAG
    switch(23, 0),                                                // CHECKSUM
    switch(IP_BIND_ADDRESS_NO_PORT, 0),
    datagrams(switch(25, 0), Errno::EINVAL),         // RECVFRAGSIZE
    row(26, 0, Kind::Number(0, 1), Length::Nothing), // RECVERR_RFC4884
    datagrams(row(IP_MULTICAST_TTL, 1, Kind::OrDefault(0, 255), Length::Byte), Errno::EINVAL),
    row(IP_MULTICAST_LOOP, 1, Kind::Switch, Length::Byte),
    row(IP_MULTICAST_ALL, 1, Kind::Number(0, 1), Length::Byte),
    row(IP_UNICAST_IF, 0, Kind::Any, Length::Word),
    row(IP_LOCAL_PORT_RANGE, 0, Kind::Any, Length::Word),
    datagrams(row(IP_MULTICAST_IF, 0, Kind::Any, Length::Word), Errno::EINVAL),
    row(IP_MTU, 0, Kind::Fixed(Errno::ENOPROTOOPT), Length::Nothing),
];

const fn v6(name: i32, default: i32, kind: Kind) -> Row {
    row(name, default, kind, Length::Word)
}

const fn switch6(name: i32, default: i32) -> Row {
    v6(name, default, Kind::Switch)
}

/// Options of IPv6.
pub(super) const IPV6: [Row; 35] = [
    switch6(IPV6_2292PKTINFO, 0),
    switch6(3, 0), // 2292HOPOPTS
    switch6(4, 0), // 2292DSTOPTS
    switch6(5, 0), // 2292RTHDR
    switch6(IPV6_2292HOPLIMIT, 0),
    switch6(11, 0), // FLOWINFO
    v6(IPV6_UNICAST_HOPS, 64, Kind::OrDefault(0, 255)),
    datagrams(v6(IPV6_MULTICAST_IF, 0, Kind::Any), Errno::ENOPROTOOPT),
    datagrams(v6(IPV6_MULTICAST_HOPS, 1, Kind::OrDefault(0, 255)), Errno::ENOPROTOOPT),
    v6(IPV6_MULTICAST_LOOP, 1, Kind::Number(0, 1)),
    v6(22, 0, Kind::Fixed(Errno::ENOPROTOOPT)), // ROUTER_ALERT
    v6(IPV6_MTU_DISCOVER, 1, Kind::Number(0, 5)),
    v6(IPV6_MTU, 0, Kind::Any),
    switch6(IPV6_RECVERR, 0),
    switch6(IPV6_MULTICAST_ALL, 1),
    switch6(30, 0),                // ROUTER_ALERT_ISOLATE
    v6(31, 0, Kind::Number(0, 1)), // RECVERR_RFC4884
    switch6(33, 0),                // FLOWINFO_SEND
    switch6(IPV6_RECVPKTINFO, 0),
    switch6(IPV6_RECVHOPLIMIT, 0),
    switch6(53, 0),                               // RECVHOPOPTS
    switch6(56, 0),                               // RECVRTHDR
    switch6(58, 0),                               // RECVDSTOPTS
    switch6(60, 0),                               // RECVPATHMTU
    row(62, 0, Kind::Switch, Length::WordOrZero), // DONTFRAG
    switch6(IPV6_RECVTCLASS, 0),
    v6(IPV6_TCLASS, 0, Kind::OrDefault(0, 255)),
    row(70, 1, Kind::Switch, Length::WordOrZero), // AUTOFLOWLABEL
    v6(IPV6_ADDR_PREFERENCES, 0x500, Kind::Any),
    v6(IPV6_MINHOPCOUNT, 0, Kind::Number(0, 255)),
    switch6(IPV6_ORIGDSTADDR, 0),
    switch6(IPV6_TRANSPARENT, 0),
    v6(IPV6_UNICAST_IF, 0, Kind::Any),
    row(77, 0, Kind::Switch, Length::WordOrZero), // RECVFRAGSIZE
    switch6(IPV6_FREEBIND, 0),
];
