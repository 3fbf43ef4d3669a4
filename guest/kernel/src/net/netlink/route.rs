//! Answers to NETLINK_ROUTE requests: one link, its addresses, its routes.

use alloc::vec::Vec;

use crate::Errno;
use crate::net::ioctl::{LO_FLAGS, LO_MTU};

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
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

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

fn link() -> Vec<u8> {
    let mut b = Vec::new();
    // struct ifinfomsg: AF_UNSPEC, ARPHRD_LOOPBACK, index 1.
    b.extend([0, 0]);
    b.extend(772u16.to_ne_bytes());
    b.extend(1u32.to_ne_bytes());
    b.extend((LO_FLAGS | 0x1_0000).to_ne_bytes());
    b.extend(0u32.to_ne_bytes());
    attr(&mut b, 3, b"lo\0");
    attr(&mut b, 13, &1000u32.to_ne_bytes()); // TXQLEN
    attr(&mut b, 16, &[0]); // OPERSTATE unknown
    attr(&mut b, 17, &[0]); // LINKMODE
    attr(&mut b, 4, &LO_MTU.to_ne_bytes());
    attr(&mut b, 27, &0u32.to_ne_bytes()); // GROUP
    attr(&mut b, 30, &0u32.to_ne_bytes()); // PROMISCUITY
    attr(&mut b, 6, b"noqueue\0");
    attr(&mut b, 1, &[0; 6]);
    attr(&mut b, 2, &[0; 6]);
    attr(&mut b, 23, &[0; 192]); // STATS64
    attr(&mut b, 7, &[0; 96]); // STATS
    b
}

fn addr4() -> Vec<u8> {
    // struct ifaddrmsg: /8, permanent, host scope.
    let mut b = alloc::vec![AF_INET, 8, 0x80, 254, 1, 0, 0, 0];
    attr(&mut b, 1, &[127, 0, 0, 1]);
    attr(&mut b, 2, &[127, 0, 0, 1]);
    attr(&mut b, 3, b"lo\0");
    attr(&mut b, 8, &0x80u32.to_ne_bytes());
    attr(&mut b, 6, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    b
}

fn addr6() -> Vec<u8> {
    let mut b = alloc::vec![AF_INET6, 128, 0x80, 254, 1, 0, 0, 0];
    attr(&mut b, 1, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    attr(&mut b, 6, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    attr(&mut b, 8, &0x80u32.to_ne_bytes());
    b
}

/// `struct rtmsg` of the local table with destination and source.
fn route(family: u8, bits: u8, kind: u8, dst: &[u8], src: Option<&[u8]>) -> Vec<u8> {
    let mut b = alloc::vec![family, bits, 0, 0, 255, 2, 254, kind, 0, 0, 0, 0];
    attr(&mut b, 15, &255u32.to_ne_bytes());
    attr(&mut b, 1, dst);
    if let Some(s) = src {
        attr(&mut b, 7, s);
    }
    attr(&mut b, 4, &1u32.to_ne_bytes());
    b
}

fn routes(family: u8) -> Vec<Vec<u8>> {
    let mut v = Vec::new();
    let lo = [127, 0, 0, 1];
    if family != AF_INET6 {
        v.push(route(AF_INET, 8, 2, &[127, 0, 0, 0], Some(&lo)));
        v.push(route(AF_INET, 32, 2, &lo, Some(&lo)));
        v.push(route(AF_INET, 32, 3, &[127, 255, 255, 255], Some(&lo)));
    }
    if family != AF_INET {
        v.push(route(AF_INET6, 128, 2, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], None));
    }
    v
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

/// Whether a RTM_GETLINK for one link asks for `lo`: by index, or by name (IFLA_IFNAME).
fn wants_lo(body: &[u8]) -> bool {
    if body.len() >= 8 && u32_at(body, 4) == 1 {
        return true;
    }
    let mut at = 16;
    while at + 4 <= body.len() {
        let len = usize::from(u16_at(body, at));
        if len < 4 || at + len > body.len() {
            return false;
        }
        if u16_at(body, at + 2) == 3 {
            return body[at + 4..at + len].starts_with(b"lo\0");
        }
        at += len.next_multiple_of(4);
    }
    false
}

fn serve(to: To, kind: u16, flags: u16, request: &[u8], out: &mut Vec<Vec<u8>>) {
    let body = &request[HDR..];
    let family = body.first().copied().unwrap_or(0);
    let dump = flags & NLM_F_DUMP != 0;
    let (reply, items) = match kind {
        RTM_GETLINK if dump => (RTM_NEWLINK, alloc::vec![link()]),
        RTM_GETLINK if wants_lo(body) => (RTM_NEWLINK, alloc::vec![link()]),
        RTM_GETLINK => return out.push(error(to, Some(Errno::ENODEV), request)),
        RTM_GETADDR if dump => {
            let mut v = Vec::new();
            if family != AF_INET6 {
                v.push(addr4());
            }
            if family != AF_INET {
                v.push(addr6());
            }
            (RTM_NEWADDR, v)
        }
        RTM_GETROUTE if dump => (RTM_NEWROUTE, routes(family)),
        RTM_GETROUTE => return out.push(error(to, Some(Errno::ENETUNREACH), request)),
        // Every other kind of object: rules, neighbours, queueing disciplines. GET kinds are 2 modulo 4.
        k if k >= RTM_NEWLINK && k % 4 == 2 && dump => (0, Vec::new()),
        k if k >= RTM_NEWLINK && k % 4 != 2 => return out.push(error(to, Some(Errno::EPERM), request)),
        _ => return out.push(error(to, Some(Errno::EOPNOTSUPP), request)),
    };
    if dump {
        let all: Vec<u8> = items.iter().flat_map(|b| message(to, reply, NLM_F_MULTI, b)).collect();
        if !all.is_empty() {
            out.push(all);
        }
        out.push(message(to, NLMSG_DONE, NLM_F_MULTI, &0i32.to_ne_bytes()));
    } else {
        out.extend(items.iter().map(|b| message(to, reply, 0, b)));
        if flags & NLM_F_ACK != 0 {
            out.push(error(to, None, request));
        }
    }
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
        if kind > NLMSG_NOOP && flags & 1 != 0 {
            serve(to, kind, flags, &rest[..len], &mut out);
        }
        let next = len.next_multiple_of(4).min(rest.len());
        rest = &rest[next..];
    }
    out
}
