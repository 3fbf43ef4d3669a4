//! The domain's network device, `eth0`: packets of it are ours to move.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use super::addresses::Addresses;
use super::netlink::Netlink;

/// Its name.
const NAME: &str = "eth0";
/// Longest packet: the longest there is, so that a stream takes few.
pub(super) const MTU: usize = 65_535;
/// How much of an address those of the virtual networks have in common.
const BITS4: u8 = 16;
const BITS6: u8 = 48;

/// Makes it in the calling thread's network namespace.
pub(super) fn make(addresses: Addresses) -> io::Result<OwnedFd> {
    let packets = doppel_sys::tunnel::open(NAME)?;
    let index = rustix::net::netdevice::name_to_index(
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?,
        NAME,
    )?;
    // An address that the host's kernel would make of its own would be nobody's. It may know no IPv6.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{NAME}/addr_gen_mode"), "1");
    let netlink = Netlink::open()?;
    netlink.up(index, u32::try_from(MTU).expect("a short"))?;
    let ip4 = IpAddr::V4(addresses.ip4);
    netlink.address(index, ip4, BITS4)?;
    netlink.default_route(index, ip4)?;
    let ip6 = IpAddr::V6(addresses.ip6);
    match netlink.address(index, ip6, BITS6).and_then(|()| netlink.default_route(index, ip6)) {
        // No IPv6 on this host, or none by its administrator's wish.
        Err(e) if matches!(e.raw_os_error(), Some(95 | 97 | 13)) => {}
        result => result?,
    }
    Ok(packets)
}
