//! Options at UDP and UDP-Lite level (`udp(7)`, `udplite(7)`).

use alloc::vec::Vec;

use crate::objects::net::options::int;
use crate::{Errno, Result};

const UDP_CORK: i32 = 1;
const UDPLITE_SEND_CSCOV: i32 = 10;
const UDPLITE_RECV_CSCOV: i32 = 11;
const UDP_ENCAP: i32 = 100;
const UDP_NO_CHECK6_TX: i32 = 101;
const UDP_NO_CHECK6_RX: i32 = 102;
const UDP_SEGMENT: i32 = 103;
/// As an option and as a control message.
pub(super) const UDP_GRO: i32 = 104;
/// Bytes of a header, which a checksum covers at least.
const HEADER: i32 = 8;

/// Values set.
#[derive(Clone, Default)]
pub(super) struct UdpOptions {
    /// UDP_CORK
    pub(super) cork: bool,
    /// UDP_SEGMENT: bytes of each datagram that a longer send is cut into, 0 for none.
    pub(super) segment: u16,
    /// UDP_GRO: takes what was cut in one piece.
    pub(super) whole: bool,
    /// UDP_ENCAP, 0 for none.
    encap: i32,
    no_check6: [bool; 2],
    /// Bytes that the checksum of UDP-Lite covers, of what is sent and at least of what is taken; 0 is all.
    pub(super) coverage: [u16; 2],
}

/// Bytes covered: 0 is all, and less than a header is a header.
fn coverage(v: i32) -> u16 {
    match v {
        0 => 0,
        v => v.clamp(HEADER, u16::MAX.into()) as u16,
    }
}

impl UdpOptions {
    /// setsockopt; true if what was begun is to be sent now.
    pub(super) fn set(&mut self, lite: bool, name: i32, value: &[u8]) -> Result<bool> {
        // Espintcp's predecessors: no key exchange of IPsec is there to encapsulate.
        const ENCAPS: [i32; 2] = [0, 2];
        let v = int(value)?;
        match name {
            UDP_CORK => {
                self.cork = v != 0;
                return Ok(v == 0);
            }
            UDP_ENCAP if ENCAPS.contains(&v) => self.encap = v,
            UDP_NO_CHECK6_TX => self.no_check6[0] = v != 0,
            UDP_NO_CHECK6_RX => self.no_check6[1] = v != 0,
            UDP_SEGMENT => self.segment = u16::try_from(v).map_err(|_| Errno::EINVAL)?,
            UDP_GRO => self.whole = v != 0,
            UDPLITE_SEND_CSCOV if lite => self.coverage[0] = coverage(v),
            UDPLITE_RECV_CSCOV if lite => self.coverage[1] = coverage(v),
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(false)
    }

    /// getsockopt
    pub(super) fn get(&self, lite: bool, name: i32) -> Result<Vec<u8>> {
        let v = match name {
            UDP_CORK => i32::from(self.cork),
            UDP_ENCAP => self.encap,
            UDP_NO_CHECK6_TX => i32::from(self.no_check6[0]),
            UDP_NO_CHECK6_RX => i32::from(self.no_check6[1]),
            UDP_SEGMENT => i32::from(self.segment),
            UDP_GRO => i32::from(self.whole),
            UDPLITE_SEND_CSCOV if lite => i32::from(self.coverage[0]),
            UDPLITE_RECV_CSCOV if lite => i32::from(self.coverage[1]),
            UDPLITE_SEND_CSCOV | UDPLITE_RECV_CSCOV => 0,
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(v.to_ne_bytes().to_vec())
    }
}
