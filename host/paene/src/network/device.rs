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

/// Gives it addresses of one family; what is not beside one of them goes out with the first.
fn give(netlink: &Netlink, index: u32, addresses: &[(IpAddr, u8)]) -> io::Result<()> {
    for (ip, bits) in addresses {
        netlink.address(index, *ip, *bits)?;
    }
    addresses.first().map_or(Ok(()), |(first, _)| netlink.default_route(index, *first))
}

/// Makes it in the calling thread's network namespace.
pub(super) fn make(addresses: &Addresses) -> io::Result<OwnedFd> {
    let packets = doppel_sys::tunnel::open(NAME)?;
    let index = rustix::net::netdevice::name_to_index(
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?,
        NAME,
    )?;
    // An address that the host's kernel would make of its own would be nobody's. It may know no IPv6.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{NAME}/addr_gen_mode"), "1");
    let netlink = Netlink::open()?;
    netlink.up(index, u32::try_from(MTU).expect("a short"))?;
    let (four, six): (Vec<_>, Vec<_>) = addresses.all().partition(|(ip, _)| ip.is_ipv4());
    give(&netlink, index, &four)?;
    match give(&netlink, index, &six) {
        // No IPv6 on this host, or none by its administrator's wish.
        Err(e) if matches!(e.raw_os_error(), Some(95 | 97 | 13)) => {}
        result => result?,
    }
    Ok(packets)
}
