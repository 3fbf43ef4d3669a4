//! /proc/net: the domain has the loopback interface only.

use alloc::vec::Vec;

use super::super::synthetic::{Node, dir, fixed};

/// The net directory of a process.
pub fn dir_node() -> Node {
    let entries: Vec<(&'static str, fn() -> Node)> = alloc::vec![
        ("arp", || fixed("IP address       HW type     Flags       HW address            Mask     Device\n")),
        ("dev", || fixed(DEV)),
        ("if_inet6", || fixed("00000000000000000000000000000001 01 80 10 80       lo\n")),
        ("igmp", || fixed("")),
        ("ipv6_route", || fixed("")),
        ("netlink", || fixed(
            "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
        )),
        ("packet", || fixed("sk       RefCnt Type Proto  Iface R Rmem   User   Inode\n")),
        ("protocols", || fixed("")),
        ("psched", || fixed("000003e8 00000040 000f4240 3b9aca00\n")),
        ("raw", || fixed(SOCKET_HEAD)),
        ("route", || fixed(
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        )),
        ("sockstat", || fixed(
            "sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\nUDP: inuse 0 mem 0\n"
        )),
        ("tcp", || fixed(SOCKET_HEAD)),
        ("tcp6", || fixed(SOCKET_HEAD)),
        ("udp", || fixed(SOCKET_HEAD)),
        ("udp6", || fixed(SOCKET_HEAD)),
        ("unix", || fixed("Num       RefCount Protocol Flags    Type St Inode Path\n")),
    ];
    dir(entries)
}

const DEV: &str = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n";
const SOCKET_HEAD: &str =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
