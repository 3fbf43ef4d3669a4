//! What a filter of a socket sees: a packet from the header of its protocol on, and what Linux knows beside it.

use super::Data;

/// Offsets that count from the header of the network (SKF_NET_OFF), and from that of the link (SKF_LL_OFF).
const NETWORK: i32 = -0x10_0000;
const LINK: i32 = -0x20_0000;

/// What a packet came by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// Protocol of the link (ETH_P_IP).
    pub protocol: u16,
    /// The interface: its number and its type (ARPHRD_LOOPBACK). 0: there is none.
    pub interface: u32,
    /// See `interface`.
    pub hardware: u32,
    /// SO_MARK of who sent it.
    pub mark: u32,
    /// The processor that the program runs on.
    pub cpu: u32,
    /// A random number.
    pub random: u32,
}

/// A packet: headers of the network, then from `start` on what the socket's protocol reads.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Everything.
    pub bytes: &'a [u8],
    /// Where the socket's part begins.
    pub start: usize,
    /// What it came by.
    pub kind: Kind,
}

impl Data for Packet<'_> {
    fn len(&self) -> u32 {
        u32::try_from(self.bytes.len().saturating_sub(self.start)).unwrap_or(u32::MAX)
    }

    fn load(&self, at: i32, size: u8) -> Option<u32> {
        let start = match at {
            0.. => self.start.checked_add(usize::try_from(at).ok()?)?,
            // There is no header of the link.
            NETWORK.. => usize::try_from(at.wrapping_sub(NETWORK)).ok()?,
            LINK.. => usize::try_from(at.wrapping_sub(LINK)).ok()?,
            _ => return None,
        };
        let bytes = self.bytes.get(start..start.checked_add(size.into())?)?;
        Some(bytes.iter().fold(0, |v, b| v << 8 | u32::from(*b)))
    }

    fn extension(&self, number: u32, a: u32, x: u32) -> Option<u32> {
        let k = &self.kind;
        let by_interface = |v| if k.interface == 0 { None } else { Some(v) };
        match number {
            0 => Some(k.protocol.into()),
            8 => by_interface(k.interface),
            20 => Some(k.mark),
            28 => by_interface(k.hardware),
            36 => Some(k.cpu),
            40 => Some(a ^ x),
            56 => Some(k.random),
            // Kind of packet (to this host), queue, hash, virtual LANs; no netlink attributes, no offset of a payload.
            _ => Some(0),
        }
    }
}
