//! What the service domain tells of the host's sockets: measurements, when it is asked, and errors of datagrams.

use super::{BUFFER, DatagramHeader, End};

/// Where measurements are put that were asked for ([`super::Request::Measure`]), in [`MEASURES`] places of
/// [`Measure::SIZE`] bytes.
pub const MEASURED: u64 = 200 << 10;
/// Places for measurements: as many may be asked for at once.
pub const MEASURES: u16 = 32;

/// Where a measurement is.
///
/// # Panics
/// If there is no such place.
#[must_use]
pub const fn measure(place: u16) -> u64 {
    assert!(place < MEASURES, "no such place");
    MEASURED + place as u64 * Measure::SIZE as u64
}

/// What the host knows of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Longest packet on the way (IP_MTU, IPV6_MTU); 0: not known.
    pub mtu: u32,
    /// Bytes of [`Self::info`] that the host has filled.
    pub len: u16,
    /// Linux' `struct tcp_info`; zeros behind what there is.
    pub info: [u8; Self::INFO],
}

impl Measure {
    /// Its size in a channel in bytes.
    pub const SIZE: usize = 512;
    /// Room for `struct tcp_info`.
    pub const INFO: usize = 256;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        b[..4].copy_from_slice(&self.mtu.to_le_bytes());
        b[4..6].copy_from_slice(&self.len.to_le_bytes());
        b[8..8 + Self::INFO].copy_from_slice(&self.info);
        b
    }

    /// From bytes that the service domain wrote: all are some.
    #[must_use]
    pub fn decode(b: &[u8; Self::SIZE]) -> Self {
        let mut info = [0; Self::INFO];
        info.copy_from_slice(&b[8..8 + Self::INFO]);
        let len = u16::from_le_bytes([b[4], b[5]]).min(Self::INFO as u16);
        Self { mtu: u32::from_le_bytes([b[0], b[1], b[2], b[3]]), len, info }
    }
}

/// An error of a datagram that was sent, as `struct sock_extended_err` has it. Where they are wanted
/// ([`super::SocketOption::ReceiveErrors`]) it comes as a datagram ([`DatagramHeader::is_record`]), before what was sent as far as
/// the host tells it; its peer is where that went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorRecord {
    /// Linux' number of the error.
    pub errno: u32,
    /// Who tells of it: the host itself, or ICMP.
    pub origin: u8,
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// Longest packet, where one was too long.
    pub info: u32,
    /// Whose ICMP; [`End::default`]: nobody's.
    pub offender: [u8; 16],
}

impl ErrorRecord {
    /// Its size in a datagram in bytes.
    pub const SIZE: usize = 32;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        b[..4].copy_from_slice(&self.errno.to_le_bytes());
        (b[4], b[5], b[6]) = (self.origin, self.kind, self.code);
        b[8..12].copy_from_slice(&self.info.to_le_bytes());
        b[16..].copy_from_slice(&self.offender);
        b
    }

    /// From the datagram, and what follows; none if it is too short for one.
    #[must_use]
    pub fn decode(b: &[u8]) -> Option<(Self, &[u8])> {
        let (b, rest) = b.split_at_checked(Self::SIZE)?;
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let mut offender = [0; 16];
        offender.copy_from_slice(&b[16..]);
        Some((Self { errno: word(0), origin: b[4], kind: b[5], code: b[6], info: word(8), offender }, rest))
    }
}

/// The class of an [`ErrorRecord`], with no hops: no datagram comes so.
const RECORD: u8 = 0xff;

impl DatagramHeader {
    /// That of an [`ErrorRecord`] with so many bytes in all.
    #[must_use]
    pub fn record(peer: End, len: u16, port: u16) -> Self {
        Self { peer, len, hops: 0, class: RECORD, port }
    }

    /// Whether an [`ErrorRecord`] follows.
    #[must_use]
    pub fn is_record(&self) -> bool {
        self.hops == 0 && self.class == RECORD
    }
}

const _: () = assert!(ErrorRecord::SIZE < BUFFER as usize);
const _: () = assert!(Measure::INFO + 8 <= Measure::SIZE);
