//! Answers to NETLINK_ROUTE requests: links, their addresses, routes and the rules of their tables.

use alloc::vec::Vec;

use doppel_algo::net::ports::{mapped, unmapped};
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6};

use crate::objects::net::inet::source_for;
use crate::objects::net::interfaces::{self, IFF_LOWER_UP, Interface, QUEUE, Route, table};
use crate::{Errno, Result};

const HDR: usize = 16;
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWRULE: u16 = 32;
const RTM_GETRULE: u16 = 34;
/// IFA_F_PERMANENT
const PERMANENT: u8 = 0x80;
/// Most bytes of one datagram of a dump: what the smallest buffers of programs take.
const DATAGRAM: usize = 4096;

/// What identifies the requester in every answer.
#[derive(Clone, Copy)]
struct To {
    seq: u32,
    pid: u32,
}

fn message(to: To, kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut m = Vec::with_capacity(HDR + body.len());
    m.extend(((HDR + body.len()) as u32).to_ne_bytes());
    m.extend(kind.to_ne_bytes());
    m.extend(flags.to_ne_bytes());
    m.extend(to.seq.to_ne_bytes());
    m.extend(to.pid.to_ne_bytes());
    m.extend(body);
    m.resize(m.len().next_multiple_of(4), 0);
    m
}

fn attr(body: &mut Vec<u8>, kind: u16, data: &[u8]) {
    body.extend(((4 + data.len()) as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn link(i: &Interface) -> Vec<u8> {
    let mut b = Vec::new();
    // struct ifinfomsg
    b.extend([0, 0]);
    b.extend(i.hardware.to_ne_bytes());
    b.extend(i.index.to_ne_bytes());
    b.extend((i.flags | IFF_LOWER_UP).to_ne_bytes());
    b.extend(0u32.to_ne_bytes());
    let number = |b: &mut Vec<u8>, kind, v: u32| attr(b, kind, &v.to_ne_bytes());
    attr(&mut b, 3, &[i.name.as_bytes(), b"\0"].concat());
    number(&mut b, 13, QUEUE);
    attr(&mut b, 16, &[i.state.0]); // OPERSTATE
    attr(&mut b, 17, &[0]); // LINKMODE
    number(&mut b, 4, i.mtu);
    number(&mut b, 27, 0); // GROUP
    number(&mut b, 30, 0); // PROMISCUITY
    number(&mut b, 31, 1); // NUM_TX_QUEUES
    number(&mut b, 32, 1); // NUM_RX_QUEUES
    attr(&mut b, 33, &[1]); // CARRIER
    attr(&mut b, 6, b"noqueue\0");
    attr(&mut b, 1, &i.mac);
    attr(&mut b, 2, &i.all);
    attr(&mut b, 23, &[0; 192]); // STATS64
    attr(&mut b, 7, &[0; 96]); // STATS
    b
}

/// `struct ifaddrmsg` with attributes. The address is the first of them: Go takes that whatever it is.
fn address(i: &Interface, family: u16, bits: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut b = alloc::vec![family as u8, bits, PERMANENT, i.scope];
    b.extend(i.index.to_ne_bytes());
    for (kind, data) in attributes {
        attr(&mut b, *kind, data);
    }
    attr(&mut b, 8, &u32::from(PERMANENT).to_ne_bytes());
    // It never expires.
    let mut times = [0xff; 16];
    times[8..].fill(0);
    attr(&mut b, 6, &times);
    b
}

fn addr4(i: &Interface, (ip, bits): ([u8; 4], u8)) -> Vec<u8> {
    let name = [i.name.as_bytes(), b"\0"].concat();
    let all = i.broadcast((ip, bits));
    let mut attributes: Vec<(u16, &[u8])> = alloc::vec![(1, &ip), (2, &ip)];
    if let Some(all) = &all {
        attributes.push((4, all));
    }
    attributes.push((3, &name));
    address(i, AF_INET, bits, &attributes)
}

fn addr6(i: &Interface, (ip, bits): ([u8; 16], u8)) -> Vec<u8> {
    address(i, AF_INET6, bits, &[(1, &ip)])
}

/// `struct rtmsg`
fn route(r: &Route) -> Vec<u8> {
    let mut b = alloc::vec![r.family as u8, r.bits, 0, 0, r.table, r.origin, r.scope, r.kind, 0, 0, 0, 0];
    attr(&mut b, 15, &u32::from(r.table).to_ne_bytes());
    if r.bits > 0 {
        attr(&mut b, 1, &r.to);
    }
    if let Some(g) = &r.gateway {
        attr(&mut b, 5, g);
    }
    if let Some(s) = &r.source {
        attr(&mut b, 7, s);
    }
    attr(&mut b, 4, &r.interface.to_ne_bytes());
    b
}

/// The answer to `ip route get`: how to reach the address in the request; none if it is none.
fn route_asked(body: &[u8]) -> Result<Vec<u8>> {
    const RTM_F_CLONED: u16 = 0x200;
    const RTMSG: usize = 12;
    let to = find(body, RTMSG, 1).ok_or(Errno::EINVAL)?;
    let family = u16::from(*body.first().ok_or(Errno::EINVAL)?);
    if !matches!((family, to.len()), (AF_INET, 4) | (AF_INET6, 16)) {
        return Err(Errno::EINVAL);
    }
    let mut r = interfaces::route_to(to).ok_or(Errno::ENETUNREACH)?;
    r.source = Some(source(to));
    (r.to, r.bits) = (to.to_vec(), (to.len() * 8) as u8);
    let mut b = route(&r);
    b[8..10].copy_from_slice(&RTM_F_CLONED.to_ne_bytes());
    Ok(b)
}

/// The domain's address (4 or 16 bytes) with which it talks to this one.
fn source(to: &[u8]) -> Vec<u8> {
    match (<[u8; 4]>::try_from(to), <[u8; 16]>::try_from(to)) {
        (Ok(v4), _) => unmapped(&source_for(&mapped(v4))).unwrap_or_default().to_vec(),
        (_, Ok(v6)) => source_for(&v6).to_vec(),
        _ => Vec::new(),
    }
}

/// `struct fib_rule_hdr` of the rules every Linux begins with: which table is asked when.
fn rules(family: u16) -> Vec<Vec<u8>> {
    const TO_TABLE: u8 = 1;
    const DEFAULT: u8 = 253;
    let of = |family: u16| {
        let all = [(0u32, table::LOCAL), (32_766, table::MAIN), (32_767, DEFAULT)];
        // IPv6 has no table of defaults.
        all.into_iter().take(if family == AF_INET { 3 } else { 2 }).map(move |(priority, table)| {
            let mut b = alloc::vec![family as u8, 0, 0, 0, table, 0, 0, TO_TABLE, 0, 0, 0, 0];
            attr(&mut b, 15, &u32::from(table).to_ne_bytes());
            if priority > 0 {
                attr(&mut b, 6, &priority.to_ne_bytes());
            }
            b
        })
    };
    [AF_INET, AF_INET6].into_iter().filter(|f| family == 0 || *f == family).flat_map(of).collect()
}

fn error(to: To, e: Option<Errno>, request: &[u8]) -> Vec<u8> {
    let code = e.map_or(0, |e| -i32::from(e.0));
    let mut b = code.to_ne_bytes().to_vec();
    // An acknowledgement carries the header only, an error the whole request.
    b.extend(if e.is_some() { request } else { &request[..HDR] });
    message(to, NLMSG_ERROR, 0, &b)
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([b[at], b[at + 1]])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// An attribute of a message, whose attributes begin at `at`.
fn find(body: &[u8], mut at: usize, kind: u16) -> Option<&[u8]> {
    while at + 4 <= body.len() {
        let len = usize::from(u16_at(body, at));
        if len < 4 || at + len > body.len() {
            return None;
        }
        if u16_at(body, at + 2) == kind {
            return Some(&body[at + 4..at + len]);
        }
        at += len.next_multiple_of(4);
    }
    None
}

/// The link a RTM_GETLINK asks for: by index, or by name (IFLA_IFNAME).
fn link_asked(body: &[u8]) -> Result<Vec<u8>> {
    const IFINFOMSG: usize = 16;
    if body.len() < IFINFOMSG {
        return Err(Errno::EINVAL);
    }
    let index = u32_at(body, 4);
    let name = find(body, IFINFOMSG, 3).map(|n| n.split(|b| *b == 0).next().unwrap_or_default());
    let found = interfaces::all()
        .into_iter()
        .find(|i| if index > 0 { i.index == index } else { name.is_some_and(|n| n == i.name.as_bytes()) });
    Ok(link(&found.ok_or(Errno::ENODEV)?))
}

/// What a dump of this kind of objects has: the kind of its messages, and their bodies.
fn dump(kind: u16, family: u16) -> Result<(u16, Vec<Vec<u8>>)> {
    let all = interfaces::all();
    Ok(match kind {
        RTM_GETLINK => (RTM_NEWLINK, all.iter().map(link).collect()),
        RTM_GETADDR => {
            let of4 = |i: &Interface| i.ip4.iter().map(|own| addr4(i, *own)).collect::<Vec<_>>();
            let of6 = |i: &Interface| i.ip6.iter().map(|own| addr6(i, *own)).collect::<Vec<_>>();
            let v4 = all.iter().filter(|_| family != AF_INET6).flat_map(of4);
            let v6 = all.iter().filter(|_| family != AF_INET).flat_map(of6);
            (RTM_NEWADDR, v4.chain(v6).collect())
        }
        RTM_GETROUTE => {
            let wanted = |r: &&Route| family == 0 || r.family == family;
            (RTM_NEWROUTE, interfaces::routes().iter().filter(wanted).map(route).collect())
        }
        RTM_GETRULE => (RTM_NEWRULE, rules(family)),
        // Every other kind of object: neighbours, queueing disciplines. There are none.
        _ => (0, Vec::new()),
    })
}

fn serve(to: To, kind: u16, flags: u16, request: &[u8], out: &mut Vec<Vec<u8>>) -> Result<()> {
    let body = &request[HDR..];
    let family = u16::from(body.first().copied().unwrap_or(0));
    // Kinds that ask are 2 modulo 4.
    let asks = kind >= RTM_NEWLINK && kind % 4 == 2;
    if asks && flags & NLM_F_DUMP != 0 {
        let (reply, items) = dump(kind, family)?;
        let mut datagram = Vec::new();
        for item in items {
            let m = message(to, reply, NLM_F_MULTI, &item);
            if datagram.len() + m.len() > DATAGRAM {
                out.push(core::mem::take(&mut datagram));
            }
            datagram.extend(m);
        }
        if !datagram.is_empty() {
            out.push(datagram);
        }
        out.push(message(to, NLMSG_DONE, NLM_F_MULTI, &0i32.to_ne_bytes()));
        return Ok(());
    }
    let (reply, item) = match kind {
        RTM_GETLINK => (RTM_NEWLINK, link_asked(body)?),
        RTM_GETROUTE => (RTM_NEWROUTE, route_asked(body)?),
        k if k >= RTM_NEWLINK && !asks => return Err(Errno::EPERM),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    out.push(message(to, reply, 0, &item));
    if flags & NLM_F_ACK != 0 {
        out.push(error(to, None, request));
    }
    Ok(())
}

/// The datagrams that answer a request (which may hold several messages).
pub(super) fn answer(request: &[u8], pid: u32) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = request;
    while rest.len() >= HDR {
        let len = u32_at(rest, 0) as usize;
        if len < HDR || len > rest.len() {
            break;
        }
        let (kind, flags) = (u16_at(rest, 4), u16_at(rest, 6));
        let to = To { seq: u32_at(rest, 8), pid };
        if kind > NLMSG_NOOP
            && flags & 1 != 0
            && let Err(e) = serve(to, kind, flags, &rest[..len], &mut out)
        {
            out.push(error(to, Some(e), &rest[..len]));
        }
        let next = len.next_multiple_of(4).min(rest.len());
        rest = &rest[next..];
    }
    out
}
