//! Addresses that a domain has out of subnets of its networks. Whoever attaches it writes them down in its channel, before it
//! begins and when its networks change; without any it has the two that its start information names.

/// An address of the domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address; IPv4 in its v4-mapped form.
    pub ip: [u8; 16],
    /// The host, as the address' network has it, in the same form.
    pub gateway: [u8; 16],
    /// Bits that the network's addresses have in common, of 32 of IPv4.
    pub bits: u8,
}

const V4: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl OwnAddress {
    /// Where they are in a channel: how often they have been written (4 bytes; odd while they are), how many there are (4 bytes),
    /// then those, [`Self::SIZE`] bytes each.
    pub const PLACE: u64 = 220 << 10;
    /// Bytes before the first of them.
    pub const HEAD: usize = 8;
    /// Most of them: the first of each family comes before the others of that family.
    pub const MOST: usize = 128;
    /// The size of one in bytes.
    pub const SIZE: usize = 40;

    /// Whether it is one of IPv4.
    #[must_use]
    pub fn is_v4(&self) -> bool {
        self.ip[..12] == V4
    }

    /// Whether an address, of IPv4 in its v4-mapped form, is of the same network.
    #[must_use]
    pub fn is_beside(&self, ip: &[u8; 16]) -> bool {
        let bits = u32::from(self.bits) + if self.is_v4() { 96 } else { 0 };
        let differences = u128::from_be_bytes(self.ip) ^ u128::from_be_bytes(*ip);
        differences.leading_zeros() >= bits
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        b[..16].copy_from_slice(&self.ip);
        b[16..32].copy_from_slice(&self.gateway);
        b[32] = self.bits;
        b
    }

    /// From bytes: all are some.
    #[must_use]
    pub fn decode(b: &[u8; Self::SIZE]) -> Self {
        let (mut ip, mut gateway) = ([0; 16], [0; 16]);
        ip.copy_from_slice(&b[..16]);
        gateway.copy_from_slice(&b[16..32]);
        let mut own = Self { ip, gateway, bits: 0 };
        own.bits = b[32].min(if own.is_v4() { 32 } else { 128 });
        own
    }
}

const _: () = {
    assert!(OwnAddress::PLACE >= super::measure(super::MEASURES - 1) + super::Measure::SIZE as u64);
    let end = OwnAddress::PLACE + (OwnAddress::HEAD + OwnAddress::MOST * OwnAddress::SIZE) as u64;
    assert!(end <= super::SOCKETS);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(a: [u8; 4]) -> [u8; 16] {
        core::net::Ipv4Addr::from(a).to_ipv6_mapped().octets()
    }

    #[test]
    fn what_is_written_is_read() {
        let own = OwnAddress { ip: v4([172, 20, 0, 2]), gateway: v4([172, 20, 0, 1]), bits: 16 };
        assert_eq!(OwnAddress::decode(&own.encode()), own);
        assert_eq!(OwnAddress::decode(&OwnAddress { bits: 200, ..own }.encode()).bits, 32);
        let six = OwnAddress { ip: [0xfd; 16], gateway: [1; 16], bits: 200 };
        assert_eq!(OwnAddress::decode(&six.encode()).bits, 128);
    }

    #[test]
    fn those_beside_have_the_networks_bits() {
        let own = OwnAddress { ip: v4([172, 20, 4, 2]), gateway: v4([172, 20, 4, 1]), bits: 22 };
        assert!(own.is_v4() && own.is_beside(&v4([172, 20, 7, 255])) && !own.is_beside(&v4([172, 20, 8, 0])));
        let mut other = own.ip;
        other[0] = 0xfd;
        assert!(!own.is_beside(&other));
        let six = OwnAddress { ip: [0xfd; 16], gateway: [0; 16], bits: 128 };
        assert!(!six.is_v4() && six.is_beside(&[0xfd; 16]) && !six.is_beside(&own.ip));
        assert!(OwnAddress { bits: 0, ..six }.is_beside(&own.ip));
    }
}
