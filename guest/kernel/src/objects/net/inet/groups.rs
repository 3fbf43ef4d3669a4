//! Multicast groups of a socket: membership, and whose datagrams are wanted (`ip(7)`, `ipv6(7)`).
//!
//! Key type: [`Groups`]. There is no router behind it: what is sent to a group goes to the members inside the domain.

use alloc::vec::Vec;

use doppel_algo::net::ports::{Ip, mapped, unmapped};

use super::{is_local, is_multicast};
use crate::objects::net::consts::{SOL_IP, SOL_IPV6};
use crate::objects::net::interfaces;
use crate::{Errno, Result};

/// Most groups of a socket (`net.ipv4.igmp_max_memberships`), and most sources of one (`igmp_max_msf`).
const MOST_GROUPS: usize = 20;
pub(super) const MOST_SOURCES: usize = 10;

/// One membership.
#[derive(Clone)]
pub(super) struct Member {
    group: Ip,
    index: u32,
    /// The sources are those not wanted, instead of those wanted.
    pub(super) exclude: bool,
    pub(super) sources: Vec<Ip>,
}

/// Memberships of a socket.
#[derive(Clone, Default)]
pub(super) struct Groups {
    members: Vec<Member>,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Join,
    Leave,
    Source { wanted: bool, add: bool },
}

/// The option as a change, and the form of its argument: with an interface's address, or with `sockaddr_storage`.
fn change(level: i32, name: i32) -> Option<(Change, bool)> {
    let source = |wanted, add| Change::Source { wanted, add };
    Some(match (level, name) {
        (SOL_IP, 35) | (SOL_IPV6, 20) => (Change::Join, false),
        (SOL_IP, 36) | (SOL_IPV6, 21) => (Change::Leave, false),
        (SOL_IP, 37) => (source(false, false), false), // UNBLOCK_SOURCE
        (SOL_IP, 38) => (source(false, true), false),  // BLOCK_SOURCE
        (SOL_IP, 39) => (source(true, true), false),   // ADD_SOURCE_MEMBERSHIP
        (SOL_IP, 40) => (source(true, false), false),  // DROP_SOURCE_MEMBERSHIP
        (_, 42) => (Change::Join, true),
        (_, 45) => (Change::Leave, true),
        (_, 43) => (source(false, true), true),
        (_, 44) => (source(false, false), true),
        (_, 46) => (source(true, true), true),
        (_, 47) => (source(true, false), true),
        _ => return None,
    })
}

/// The interface with an address of the domain; `None` where the address is nobody's.
pub(super) fn interface_of(ip: [u8; 4]) -> Option<u32> {
    let lo = ip[0] == 127;
    interfaces::all()
        .into_iter()
        .find(|i| if lo { i.index == 1 } else { i.ip4.iter().any(|own| own.0 == ip) })
        .map(|i| i.index)
}

/// The interface of this number.
pub(super) fn exists(index: u32) -> bool {
    interfaces::all().iter().any(|i| i.index == index)
}

/// Where groups are without an interface being named: on the way out.
pub(super) fn default_interface() -> Option<u32> {
    exists(2).then_some(2)
}

pub(super) fn word(v: &[u8], at: usize) -> Result<u32> {
    let b = v.get(at..at + 4).ok_or(Errno::EINVAL)?;
    Ok(u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

pub(super) fn v4(v: &[u8], at: usize) -> Result<[u8; 4]> {
    Ok(word(v, at)?.to_ne_bytes())
}

fn v6(v: &[u8], at: usize) -> Result<Ip> {
    v.get(at..at + 16).and_then(|b| b.try_into().ok()).ok_or(Errno::EINVAL)
}

/// An address in a `sockaddr_storage` at this place.
pub(super) fn stored(v: &[u8], at: usize) -> Result<Ip> {
    let family = v.get(at..at + 2).ok_or(Errno::EINVAL)?;
    match u16::from_ne_bytes([family[0], family[1]]) {
        2 => Ok(mapped(v4(v, at + 4)?)),
        10 => v6(v, at + 8),
        _ => Err(Errno::EADDRNOTAVAIL),
    }
}

/// The parts of an argument: group, interface, source.
fn parts(level: i32, what: Change, general: bool, v: &[u8]) -> Result<(Ip, u32, Ip)> {
    const STORAGE: usize = 128;
    let has_source = matches!(what, Change::Source { .. });
    let (group, index, source) = if general {
        if v.len() < 8 + STORAGE * (1 + usize::from(has_source)) {
            return Err(Errno::EINVAL);
        }
        let source = if has_source { stored(v, 8 + STORAGE)? } else { [0; 16] };
        (stored(v, 8)?, word(v, 0)?, source)
    } else if level == SOL_IPV6 {
        (v6(v, 0)?, word(v, 16)?, [0; 16])
    } else {
        let address = v4(v, 4)?;
        let (index, source) = match has_source {
            true => (0, mapped(v4(v, 8)?)),
            false => (if v.len() >= 12 { word(v, 8)? } else { 0 }, [0; 16]),
        };
        let (group, index) = which(level, mapped(v4(v, 0)?), index, address)?;
        return Ok((group, index, source));
    };
    let (group, index) = which(level, group, index, [0; 4])?;
    Ok((group, index, source))
}

/// The group, if it is one of this level, and the interface that is meant by a number or an address.
pub(super) fn which(level: i32, group: Ip, index: u32, address: [u8; 4]) -> Result<(Ip, u32)> {
    let fits = unmapped(&group).is_some() == (level == SOL_IP);
    if !fits || !is_multicast(&group) {
        return Err(Errno::EINVAL);
    }
    let index = match index {
        0 if address != [0; 4] => interface_of(address),
        0 => default_interface(),
        i => Some(i),
    };
    let index = index.filter(|i| exists(*i)).ok_or(Errno::ENODEV)?;
    Ok((group, index))
}

impl Groups {
    /// Serves setsockopt; `None` if the option is not of groups.
    pub(super) fn set(&mut self, stream: bool, level: i32, name: i32, v: &[u8]) -> Option<Result<()>> {
        let (what, general) = change(level, name)?;
        let plain = !general && !matches!(what, Change::Source { .. });
        if stream && plain && (level == SOL_IP || v.len() >= 20) {
            return Some(Err(Errno::EPROTO));
        }
        Some(parts(level, what, general, v).and_then(|(group, index, source)| match what {
            Change::Join => self.join(group, index, true),
            Change::Leave => self.leave(group, index),
            Change::Source { wanted, add } => self.source(group, index, source, wanted, add),
        }))
    }

    fn place(&self, group: &Ip, index: u32) -> Option<usize> {
        self.members.iter().position(|m| m.group == *group && m.index == index)
    }

    fn join(&mut self, group: Ip, index: u32, exclude: bool) -> Result<()> {
        if self.place(&group, index).is_some() {
            return Err(Errno::EADDRINUSE);
        }
        if self.members.len() >= MOST_GROUPS {
            return Err(Errno::ENOBUFS);
        }
        self.members.push(Member { group, index, exclude, sources: Vec::new() });
        Ok(())
    }

    /// A membership.
    pub(super) fn member(&mut self, group: &Ip, index: u32) -> Option<&mut Member> {
        self.place(group, index).map(|at| &mut self.members[at])
    }

    pub(super) fn leave(&mut self, group: Ip, index: u32) -> Result<()> {
        let at = self.place(&group, index).ok_or(Errno::EADDRNOTAVAIL)?;
        self.members.swap_remove(at);
        Ok(())
    }

    fn source(&mut self, group: Ip, index: u32, source: Ip, wanted: bool, add: bool) -> Result<()> {
        if wanted && add && self.place(&group, index).is_none() {
            self.join(group, index, false)?;
        }
        let at = self.place(&group, index).ok_or(Errno::EINVAL)?;
        let m = &mut self.members[at];
        if m.exclude == wanted {
            if !m.sources.is_empty() {
                return Err(Errno::EINVAL);
            }
            m.exclude = !wanted;
        }
        let known = m.sources.iter().position(|s| *s == source);
        match (add, known) {
            (true, Some(_)) | (false, None) => return Err(Errno::EADDRNOTAVAIL),
            (true, None) if m.sources.len() >= MOST_SOURCES => return Err(Errno::ENOBUFS),
            (true, None) => m.sources.push(source),
            (false, Some(k)) => {
                m.sources.swap_remove(k);
                if m.sources.is_empty() && wanted {
                    // Nobody is wanted any more: it has left.
                    self.members.swap_remove(at);
                }
            }
        }
        Ok(())
    }

    /// Whether this socket is in the group, whomever it wants to hear.
    pub(super) fn has(&self, group: &Ip, index: u32) -> bool {
        self.place(group, index).is_some()
    }

    /// Whether it takes what comes from a source to a group; `all` for groups that others have joined.
    pub(super) fn takes(&self, group: &Ip, index: u32, from: &Ip, all: bool) -> bool {
        match self.place(group, index) {
            None => all,
            Some(at) => self.members[at].sources.contains(from) != self.members[at].exclude,
        }
    }
}

/// Where a datagram to a group leaves, by what its socket has said: the interface asked for, or that of its address.
pub(super) fn way_out(asked: u32, device: u32, local: &Ip) -> Result<u32> {
    if asked != 0 {
        return Ok(asked);
    }
    if device != 0 {
        return Ok(device);
    }
    let of_source = unmapped(local).filter(|ip| *ip != [0; 4]).and_then(interface_of);
    let of_source = of_source.or_else(|| (is_local(local) && unmapped(local).is_none()).then_some(1));
    of_source.or_else(default_interface).ok_or(Errno::ENETUNREACH)
}
