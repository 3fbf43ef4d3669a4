//! Whole lists of sources of a multicast group at once: IP_MSFILTER and MCAST_MSFILTER, set and read (`ip(7)`).
//!
//! Their arguments say which group and interface is meant, also when they are read: the form with addresses of IPv4 alone, and
//! the general one with `sockaddr_storage`.

use alloc::vec::Vec;

use doppel_algo::net::ports::{Ip, mapped, unmapped};

use super::groups::{Groups, MOST_SOURCES, Member, stored, v4, which, word};
use crate::objects::net::consts::{SOL_IP, SOL_IPV6};
use crate::{Errno, Result};

const IP_MSFILTER: i32 = 41;
const MCAST_MSFILTER: i32 = 48;
const EXCLUDE: u32 = 0;
const INCLUDE: u32 = 1;
/// Bytes of a `sockaddr_storage`.
const STORAGE: usize = 128;

/// Whether it is one of these options, and which form it has.
fn form(level: i32, name: i32) -> Option<Form> {
    match (level, name) {
        (SOL_IP, IP_MSFILTER) => Some(Form::V4),
        (SOL_IP | SOL_IPV6, MCAST_MSFILTER) => Some(Form::General),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `struct ip_msfilter`
    V4,
    /// `struct group_filter`
    General,
}

impl Form {
    /// Where the mode is; the number of sources follows it, and then they.
    fn mode(self) -> usize {
        if self == Self::V4 { 8 } else { 8 + STORAGE }
    }

    fn source_size(self) -> usize {
        if self == Self::V4 { 4 } else { STORAGE }
    }

    /// The group and the interface.
    fn group(self, level: i32, v: &[u8]) -> Result<(Ip, u32)> {
        match self {
            Self::V4 => which(level, mapped(v4(v, 0)?), 0, v4(v, 4)?),
            Self::General => which(level, stored(v, 8)?, word(v, 0)?, [0; 4]),
        }
    }

    fn source(self, v: &[u8], at: usize) -> Result<Ip> {
        if self == Self::V4 { Ok(mapped(v4(v, at)?)) } else { stored(v, at) }
    }

    fn put(self, out: &mut Vec<u8>, source: &Ip) {
        let start = out.len();
        match unmapped(source) {
            Some(ip) if self == Self::V4 => out.extend_from_slice(&ip),
            Some(ip) => {
                out.extend_from_slice(&[2, 0, 0, 0]);
                out.extend_from_slice(&ip);
            }
            None => {
                out.extend_from_slice(&[10, 0, 0, 0, 0, 0, 0, 0]);
                out.extend_from_slice(source);
            }
        }
        out.resize(start + self.source_size(), 0);
    }
}

impl Groups {
    /// Serves setsockopt; `None` if the option is none of these.
    pub(super) fn set_filter(&mut self, level: i32, name: i32, v: &[u8]) -> Option<Result<()>> {
        form(level, name).map(|f| self.replace(f, level, v))
    }

    fn replace(&mut self, f: Form, level: i32, v: &[u8]) -> Result<()> {
        let (mode_at, size) = (f.mode(), f.source_size());
        if v.len() < mode_at + 8 {
            return Err(Errno::EINVAL);
        }
        let (mode, count) = (word(v, mode_at)?, word(v, mode_at + 4)? as usize);
        if count > MOST_SOURCES {
            return Err(Errno::ENOBUFS);
        }
        if v.len() < mode_at + 8 + count * size {
            return Err(Errno::EINVAL);
        }
        if !matches!(mode, EXCLUDE | INCLUDE) {
            return Err(Errno::EINVAL);
        }
        let (group, index) = f.group(level, v)?;
        let sources: Vec<Ip> =
            (0..count).map(|k| f.source(v, mode_at + 8 + k * size)).collect::<Result<_>>()?;
        if mode == INCLUDE && sources.is_empty() {
            // Nobody is wanted: it leaves.
            return self.leave(group, index);
        }
        let m = self.member(&group, index).ok_or(Errno::EINVAL)?;
        (m.exclude, m.sources) = (mode == EXCLUDE, sources);
        Ok(())
    }

    /// Serves getsockopt, by the argument that is there; `None` if the option is none of these.
    pub(super) fn get_filter(&mut self, level: i32, name: i32, asked: &[u8]) -> Option<Result<Vec<u8>>> {
        form(level, name).map(|f| self.read(f, level, asked))
    }

    fn read(&mut self, f: Form, level: i32, asked: &[u8]) -> Result<Vec<u8>> {
        let mode_at = f.mode();
        let head = asked.get(..mode_at).filter(|_| asked.len() >= mode_at + 8).ok_or(Errno::EINVAL)?;
        let room = word(asked, mode_at + 4)? as usize;
        let (group, index) = f.group(level, asked)?;
        let Member { exclude, sources, .. } = self.member(&group, index).ok_or(Errno::EADDRNOTAVAIL)?;
        let mut out = head.to_vec();
        let mode = if *exclude { EXCLUDE } else { INCLUDE };
        out.extend_from_slice(&mode.to_ne_bytes());
        out.extend_from_slice(&(sources.len() as u32).to_ne_bytes());
        sources.iter().take(room).for_each(|s| f.put(&mut out, s));
        Ok(out)
    }
}
