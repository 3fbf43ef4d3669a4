//! /proc/net: interfaces, routes and sockets of the domain.

use super::put::put;
use crate::objects::net::inet::PORTS;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use doppel_algo::net::ports::unmapped;
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6};

use crate::core::time;
use crate::objects::net::SocketOps;
use crate::objects::net::inet::End;
use crate::objects::net::inet::tcp::Tcp;
use crate::objects::net::inet::udp::Udp;
use crate::objects::net::interfaces::{self, Route, scope, table};
use crate::objects::net::unix::UnixSock;
use crate::objects::net::unix::names::names;
use crate::objects::vfs::synthetic::{Entries, Node, bytes, dir, fixed, text};

/// The net directory of a process.
pub fn dir_node() -> Node {
    let entries: Entries = alloc::vec![
        ("arp", || fixed("IP address       HW type     Flags       HW address            Mask     Device\n")),
        ("dev", || text(|| Ok(dev()))),
        ("if_inet6", || text(|| Ok(if_inet6()))),
        ("igmp", || fixed("")),
        ("ipv6_route", || text(|| Ok(ipv6_route()))),
        ("netlink", || fixed(
            "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
        )),
        ("packet", || fixed("sk       RefCnt Type Proto  Iface R Rmem   User   Inode\n")),
        ("protocols", || fixed("")),
        ("psched", || fixed("000003e8 00000040 000f4240 3b9aca00\n")),
        ("raw", || fixed(SOCKET_HEAD)),
        ("route", || text(|| Ok(route()))),
        ("snmp", || text(|| Ok(snmp()))),
        ("sockstat", || text(|| Ok(sockstat()))),
        ("sockstat6", || text(|| Ok(sockstat6()))),
        ("tcp", || text(|| Ok(tcp(true)))),
        ("tcp6", || text(|| Ok(tcp(false)))),
        ("udp", || text(|| Ok(udp(true)))),
        ("udp6", || text(|| Ok(udp(false)))),
        ("unix", || bytes(0o444, || Ok(unix()))),
    ];
    dir(entries)
}

const SOCKET_HEAD: &str =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
const SOCKET_HEAD6: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
const UDP_HEAD: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n";

fn dev() -> String {
    let mut s = String::from(concat!(
        "Inter-|   Receive                                                |  Transmit\n",
        " face |bytes    packets errs drop fifo frame compressed multicast",
        "|bytes    packets errs drop fifo colls carrier compressed\n"
    ));
    for i in interfaces::all() {
        put(
            &mut s,
            format_args!(
                "{:>6}: {:7} {:7} {:4} {:4} {:4} {:5} {:10} {:9} {:8} {:7} {:4} {:4} {:4} {:5} {:7} {:10}\n",
                i.name, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
            ),
        );
    }
    s
}

fn put_hex(s: &mut String, ip: &[u8]) {
    for b in ip {
        put(s, format_args!("{b:02x}"));
    }
}

fn if_inet6() -> String {
    const PERMANENT: u8 = 0x80;
    let mut s = String::new();
    for i in interfaces::all() {
        // IPV6_ADDR_LOOPBACK, or global.
        let scope = if i.scope == scope::HOST { 0x10 } else { 0 };
        for (ip, bits) in &i.ip6 {
            put_hex(&mut s, ip);
            put(
                &mut s,
                format_args!(" {:02x} {bits:02x} {scope:02x} {PERMANENT:02x} {:>8}\n", i.index, i.name),
            );
        }
    }
    s
}

/// Routes of this family with the names of their interfaces, as both tables show them.
fn shown(family: u16, each: &mut dyn FnMut(&Route, &str, u32)) {
    const RTF_UP: u32 = 1;
    const RTF_GATEWAY: u32 = 2;
    let all = interfaces::all();
    for r in interfaces::routes().iter().filter(|r| r.family == family) {
        let name = all.iter().find(|i| i.index == r.interface).map_or("", |i| i.name);
        each(r, name, RTF_UP | if r.gateway.is_some() { RTF_GATEWAY } else { 0 });
    }
}

fn route() -> String {
    const WIDTH: usize = 127;
    let mut s = String::new();
    let mut line = |text: String| put(&mut s, format_args!("{text:WIDTH$}\n"));
    line("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT".into());
    let word = |ip: &[u8]| ip.try_into().map_or(0, u32::from_ne_bytes);
    shown(AF_INET, &mut |r, name, flags| {
        if r.table == table::MAIN {
            let (to, through) = (word(&r.to), r.gateway.as_deref().map_or(0, word));
            let mask = word(&interfaces::mask(r.bits));
            line(alloc::format!(
                "{name}\t{to:08X}\t{through:08X}\t{flags:04X}\t0\t0\t0\t{mask:08X}\t0\t0\t0"
            ));
        }
    });
    s
}

fn ipv6_route() -> String {
    const RTF_LOCAL: u32 = 0x8000_0000;
    const METRIC: u32 = 1024;
    let mut s = String::new();
    shown(AF_INET6, &mut |r, name, flags| {
        let local = r.table == table::LOCAL;
        put_hex(&mut s, &r.to);
        put(&mut s, format_args!(" {:02x} {:032x} 00 ", r.bits, 0));
        put_hex(&mut s, r.gateway.as_deref().unwrap_or(&[0; 16]));
        let (metric, flags) = if local { (0, flags | RTF_LOCAL) } else { (METRIC, flags) };
        put(&mut s, format_args!(" {metric:08x} 00000001 00000000 {flags:08x} {name:>8}\n"));
    });
    s
}

/// All TCP sockets that hold a port, by inode number.
fn tcp_sockets() -> Vec<Arc<Tcp>> {
    let ports = PORTS.get();
    let mut v: Vec<_> = ports.tcp.lock().iter().filter_map(|(_, b)| b.what.upgrade()).collect();
    v.sort_by_key(|s| s.common().ino);
    v
}

/// All UDP sockets that hold a port.
fn udp_sockets() -> Vec<Arc<Udp>> {
    let ports = PORTS.get();
    let mut v: Vec<_> = ports.udp.lock().iter().filter_map(|(_, b)| b.what.upgrade()).collect();
    v.sort_by_key(|s| s.common().ino);
    v
}

/// An address as the tables show it: words in host order.
fn put_end(s: &mut String, e: &End, v4: bool) {
    match unmapped(&e.ip).filter(|_| v4) {
        Some(ip) => put(s, format_args!("{:08X}:{:04X}", u32::from_ne_bytes(ip), e.port)),
        None => {
            for w in e.ip.chunks_exact(4) {
                put(s, format_args!("{:08X}", u32::from_ne_bytes([w[0], w[1], w[2], w[3]])));
            }
            put(s, format_args!(":{:04X}", e.port));
        }
    }
}

fn tcp(v4: bool) -> String {
    let mut s = String::from(if v4 { SOCKET_HEAD } else { SOCKET_HEAD6 });
    let mut n = 0;
    for t in tcp_sockets().iter().filter(|t| (t.common().domain == AF_INET) == v4) {
        let (local, remote, state, tx, rx) = t.row();
        // Sockets that are only bound are not shown.
        if state == 7 && remote.port == 0 {
            continue;
        }
        put(&mut s, format_args!("{n:4}: "));
        put_end(&mut s, &local, v4);
        s.push(' ');
        put_end(&mut s, &remote, v4);
        let c = t.common();
        put(
            &mut s,
            format_args!(
                " {state:02X} {tx:08X}:{rx:08X} 00:00000000 00000000 {:5}        0 {} 1 0000000000000000 100 0 0 10 0\n",
                c.uid, c.ino
            ),
        );
        n += 1;
    }
    // Ends of connections that are over have no socket, and time left in ticks.
    let now = time::monotonic_ns();
    let ports = PORTS.get();
    let table = ports.tcp.lock();
    let waiting = table.waiting(now).filter(|(_, w)| unmapped(&w.local).is_some() == v4);
    for (n, (port, w)) in (n..).zip(waiting) {
        put(&mut s, format_args!("{n:4}: "));
        put_end(&mut s, &End { ip: w.local, port }, v4);
        s.push(' ');
        put_end(&mut s, &End { ip: w.remote.0, port: w.remote.1 }, v4);
        let (state, ticks) = (if w.half { 5 } else { 6 }, (w.until - now) / 10_000_000);
        put(
            &mut s,
            format_args!(
                " {state:02X} 00000000:00000000 03:{ticks:08X} 00000000     0        0 0 3 0000000000000000\n"
            ),
        );
    }
    s
}

fn udp(v4: bool) -> String {
    let mut s = String::from(if v4 { UDP_HEAD } else { SOCKET_HEAD6 });
    for (n, u) in udp_sockets().iter().filter(|u| (u.common().domain == AF_INET) == v4).enumerate() {
        let (local, remote, state, rx) = u.row();
        put(&mut s, format_args!("{n:5}: "));
        put_end(&mut s, &local, v4);
        s.push(' ');
        put_end(&mut s, &remote, v4);
        let c = u.common();
        put(
            &mut s,
            format_args!(
                " {state:02X} 00000000:{rx:08X} 00:00000000 00000000 {:5}        0 {} 2 0000000000000000 0\n",
                c.uid, c.ino
            ),
        );
    }
    s
}

fn unix() -> Vec<u8> {
    let mut out = b"Num       RefCount Protocol Flags    Type St Inode Path\n".to_vec();
    let all: Vec<Arc<UnixSock>> = names().all.lock().values().filter_map(Weak::upgrade).collect();
    for u in all {
        let (flags, state, name) = u.row();
        let c = u.common();
        let mut s = String::new();
        put(
            &mut s,
            format_args!(
                "0000000000000000: 00000002 00000000 {flags:08X} {:04X} {state:02X} {:5}",
                c.kind, c.ino
            ),
        );
        out.extend(s.into_bytes());
        if !name.is_empty() {
            out.push(b' ');
            out.extend(name);
        }
        out.push(b'\n');
    }
    out
}

/// Sockets of (IPv4 TCP, IPv6 TCP, IPv4 UDP, IPv6 UDP, AF_UNIX).
fn counts() -> [usize; 5] {
    let (tcp, udp) = (tcp_sockets(), udp_sockets());
    let tcp4 = tcp.iter().filter(|t| t.common().domain == AF_INET).count();
    let udp4 = udp.iter().filter(|u| u.common().domain == AF_INET).count();
    [tcp4, tcp.len() - tcp4, udp4, udp.len() - udp4, names().all.lock().len()]
}

fn sockstat() -> String {
    let [t4, t6, u4, u6, unix] = counts();
    let ports = PORTS.get();
    let tw: u64 = ports.tcp.lock().waiting(time::monotonic_ns()).map(|(_, w)| u64::from(w.count)).sum();
    alloc::format!(
        "sockets: used {}\nTCP: inuse {t4} orphan 0 tw {tw} alloc {} mem 0\nUDP: inuse {u4} mem 0\nUDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n",
        t4 + t6 + u4 + u6 + unix,
        t4 + t6,
    )
}

fn sockstat6() -> String {
    let [_, t6, _, u6, _] = counts();
    alloc::format!(
        "TCP6: inuse {t6}\nUDP6: inuse {u6}\nUDPLITE6: inuse 0\nRAW6: inuse 0\nFRAG6: inuse 0 memory 0\n"
    )
}

/// Counters of a wire there is none of; programs look up columns by name.
fn snmp() -> String {
    let established = tcp_sockets().iter().filter(|t| matches!(t.row().2, 1 | 8)).count();
    alloc::format!(
        "Ip: Forwarding DefaultTTL InReceives InHdrErrors\nIp: 2 64 0 0\nTcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors\nTcp: 1 200 120000 -1 0 0 0 0 {established} 0 0 0 0 0 0\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\nUdp: 0 0 0 0 0 0 0\n"
    )
}
