//! Socket addresses as programs pass them: `struct sockaddr_un`, `_in`, `_in6`, `_nl`.

use alloc::vec::Vec;

/// AF_UNSPEC
pub const AF_UNSPEC: u16 = 0;
/// AF_UNIX
pub const AF_UNIX: u16 = 1;
/// AF_INET
pub const AF_INET: u16 = 2;
/// AF_INET6
pub const AF_INET6: u16 = 10;
/// AF_NETLINK
pub const AF_NETLINK: u16 = 16;

/// Size of `sockaddr_storage`: no address is longer.
pub const MAX: usize = 128;
/// Size of `sun_path`.
pub const UNIX_PATH_MAX: usize = 108;

/// The name of an AF_UNIX socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnixName {
    /// None; as an argument of bind: choose one.
    Unnamed,
    /// A path.
    Path(Vec<u8>),
    /// A name in the abstract name space (without its leading NUL).
    Abstract(Vec<u8>),
}

/// A decoded address. Ports are in host byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addr {
    /// AF_UNSPEC: dissolves an association in connect.
    Unspec,
    /// AF_UNIX
    Unix(UnixName),
    /// AF_INET
    V4 {
        /// Address.
        ip: [u8; 4],
        /// Port.
        port: u16,
    },
    /// AF_INET6
    V6 {
        /// Address.
        ip: [u8; 16],
        /// Port.
        port: u16,
        /// Flow label.
        flow: u32,
        /// Scope.
        scope: u32,
    },
    /// AF_NETLINK
    Netlink {
        /// Port id.
        pid: u32,
        /// Multicast groups.
        groups: u32,
    },
    /// A family we do not know.
    Other(u16),
}

/// Why bytes are not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

fn be16(b: &[u8]) -> u16 {
    u16::from_be_bytes([b[0], b[1]])
}

fn ne32(b: &[u8]) -> u32 {
    u32::from_ne_bytes([b[0], b[1], b[2], b[3]])
}

/// Decodes an address of `b.len()` bytes.
pub fn parse(b: &[u8]) -> Result<Addr, Malformed> {
    if b.len() < 2 {
        return Err(Malformed);
    }
    let family = u16::from_ne_bytes([b[0], b[1]]);
    match family {
        AF_UNSPEC => Ok(Addr::Unspec),
        AF_UNIX => {
            let name = &b[2..];
            if name.len() > UNIX_PATH_MAX {
                return Err(Malformed);
            }
            Ok(Addr::Unix(match name.first() {
                None => UnixName::Unnamed,
                Some(0) => UnixName::Abstract(name[1..].to_vec()),
                Some(_) => {
                    let end = name.iter().position(|&c| c == 0).unwrap_or(name.len());
                    UnixName::Path(name[..end].to_vec())
                }
            }))
        }
        AF_INET if b.len() >= 16 => {
            let mut ip = [0; 4];
            ip.copy_from_slice(&b[4..8]);
            Ok(Addr::V4 { ip, port: be16(&b[2..]) })
        }
        AF_INET6 if b.len() >= 24 => {
            let mut ip = [0; 16];
            ip.copy_from_slice(&b[8..24]);
            let scope = if b.len() >= 28 { ne32(&b[24..]) } else { 0 };
            Ok(Addr::V6 { ip, port: be16(&b[2..]), flow: ne32(&b[4..]), scope })
        }
        AF_NETLINK if b.len() >= 12 => Ok(Addr::Netlink { pid: ne32(&b[4..]), groups: ne32(&b[8..]) }),
        AF_INET | AF_INET6 | AF_NETLINK => Err(Malformed),
        other => Ok(Addr::Other(other)),
    }
}

impl Addr {
    /// The family number.
    pub fn family(&self) -> u16 {
        match self {
            Self::Unspec => AF_UNSPEC,
            Self::Unix(_) => AF_UNIX,
            Self::V4 { .. } => AF_INET,
            Self::V6 { .. } => AF_INET6,
            Self::Netlink { .. } => AF_NETLINK,
            Self::Other(f) => *f,
        }
    }

    /// Encodes into `out`; returns the length, as getsockname gives it.
    pub fn encode(&self, out: &mut [u8; MAX]) -> usize {
        *out = [0; MAX];
        out[..2].copy_from_slice(&self.family().to_ne_bytes());
        match self {
            Self::Unspec | Self::Other(_) => 2,
            Self::Unix(UnixName::Unnamed) => 2,
            Self::Unix(UnixName::Path(p)) => {
                let n = p.len().min(UNIX_PATH_MAX);
                out[2..2 + n].copy_from_slice(&p[..n]);
                2 + n + 1
            }
            Self::Unix(UnixName::Abstract(a)) => {
                let n = a.len().min(UNIX_PATH_MAX - 1);
                out[3..3 + n].copy_from_slice(&a[..n]);
                3 + n
            }
            Self::V4 { ip, port } => {
                out[2..4].copy_from_slice(&port.to_be_bytes());
                out[4..8].copy_from_slice(ip);
                16
            }
            Self::V6 { ip, port, flow, scope } => {
                out[2..4].copy_from_slice(&port.to_be_bytes());
                out[4..8].copy_from_slice(&flow.to_ne_bytes());
                out[8..24].copy_from_slice(ip);
                out[24..28].copy_from_slice(&scope.to_ne_bytes());
                28
            }
            Self::Netlink { pid, groups } => {
                out[4..8].copy_from_slice(&pid.to_ne_bytes());
                out[8..12].copy_from_slice(&groups.to_ne_bytes());
                12
            }
        }
    }
}

#[cfg(test)]
mod tests;
