//! Messages of ICMP echo (RFC 792, RFC 4443 §4): what both sides do with them.
//!
//! A message has no IP header, as with Linux's sockets for it (`icmp(7)`). Everything is a message that is as long as
//! [`HEADER`]; what to make of one, [`is_request`] says.

use crate::net::address::{HOST4, HOST6, RESOLVER4, RESOLVER6};

/// Length of a header: type, code, checksum, identifier, sequence number.
pub const HEADER: usize = 8;

const REQUEST4: u8 = 8;
const REQUEST6: u8 = 128;
const ANSWER4: u8 = 0;
const ANSWER6: u8 = 129;
/// IPPROTO_ICMPV6
const ICMPV6: u8 = 58;

/// Whether an address, IPv4 in its v4-mapped form, is one of IPv6.
fn is_v6(ip: &[u8; 16]) -> bool {
    ip[..12] != [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
}

/// Whether this asks `to` for an echo.
#[must_use]
pub fn is_request(message: &[u8], to: &[u8; 16]) -> bool {
    message.len() >= HEADER && message[..2] == [if is_v6(to) { REQUEST6 } else { REQUEST4 }, 0]
}

/// Whether this is an echo of `from`.
#[must_use]
pub fn is_answer(message: &[u8], from: &[u8; 16]) -> bool {
    message.len() >= HEADER && message[..2] == [if is_v6(from) { ANSWER6 } else { ANSWER4 }, 0]
}

/// Makes a request to `to` the answer to `back`. It is as long as a header.
pub fn answer(message: &mut [u8], to: &[u8; 16], back: &[u8; 16]) {
    message[0] = if is_v6(to) { ANSWER6 } else { ANSWER4 };
    seal(message, to, back);
}

/// Gives a message from `from` to `to` an identifier. It is as long as a header.
pub fn identify(message: &mut [u8], id: u16, from: &[u8; 16], to: &[u8; 16]) {
    message[4..6].copy_from_slice(&id.to_be_bytes());
    seal(message, from, to);
}

/// Sets the checksum.
fn seal(message: &mut [u8], from: &[u8; 16], to: &[u8; 16]) {
    message[2..4].fill(0);
    let sum = checksum(message, from, to);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// The checksum of a message (RFC 1071), of IPv6 with its pseudo-header; 0 for one that has the right one.
fn checksum(message: &[u8], from: &[u8; 16], to: &[u8; 16]) -> u16 {
    let mut sum = words(message);
    if is_v6(to) {
        // The length of a datagram fits 32 bits.
        sum += words(from) + words(to) + message.len() as u64 + u64::from(ICMPV6);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn words(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|w| u64::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)]))).sum()
}

/// Whether this is an address of the virtual router itself.
#[must_use]
pub fn is_router(ip: core::net::IpAddr) -> bool {
    match ip {
        core::net::IpAddr::V4(ip) => [HOST4, RESOLVER4].contains(&ip.octets()),
        core::net::IpAddr::V6(ip) => [HOST6, RESOLVER6].contains(&ip.segments()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
    const LOOPBACK6: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    #[test]
    fn an_answer_is_the_request_with_another_type_and_its_checksum_is_right() {
        for (ip, kind) in [(LOOPBACK4, REQUEST4), (LOOPBACK6, REQUEST6)] {
            for len in [8, 9, 64, 65_535] {
                let mut m = std::vec![0xa5; len];
                m[..2].copy_from_slice(&[kind, 0]);
                assert!(is_request(&m, &ip) && !is_answer(&m, &ip));
                identify(&mut m, 0x1234, &ip, &ip);
                assert_eq!(checksum(&m, &ip, &ip), 0);
                let asked = m.clone();
                answer(&mut m, &ip, &ip);
                assert!(is_answer(&m, &ip) && !is_request(&m, &ip));
                assert_eq!(checksum(&m, &ip, &ip), 0);
                assert_eq!(m[4..], asked[4..]);
                assert_eq!(m[4..6], [0x12, 0x34]);
            }
        }
    }

    #[test]
    fn a_known_checksum() {
        // RFC 1071 §3's words after a header of their own.
        let mut m = [8, 0, 0, 0, 0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        seal(&mut m, &LOOPBACK4, &LOOPBACK4);
        assert_eq!(u16::from_be_bytes([m[2], m[3]]), !0xe5f2);
    }

    #[test]
    fn what_is_no_request() {
        assert!(!is_request(&[8, 0, 0, 0, 0, 0, 0], &LOOPBACK4));
        assert!(!is_request(&[8, 1, 0, 0, 0, 0, 0, 0], &LOOPBACK4));
        assert!(!is_request(&[8, 0, 0, 0, 0, 0, 0, 0], &LOOPBACK6));
        assert!(!is_request(&[128, 0, 0, 0, 0, 0, 0, 0], &LOOPBACK4));
    }
}
