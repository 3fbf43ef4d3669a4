//! A domain's addresses out of subnets, as its own kernel is told of them: in its channel.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use doppel_abi_service::net::OwnAddress;
use doppel_abi_service::net::address::{BITS4, BITS6, HOST4, HOST6};

use crate::flow::address;
use crate::manager::EndpointSpec;
use crate::manager::shard::{ip4, ip6};
use crate::names::membership::Membership;

fn own(ip: IpAddr, gateway: IpAddr, bits: u8) -> OwnAddress {
    OwnAddress { ip: address::bytes(ip), gateway: address::bytes(gateway), bits }
}

/// All addresses of a domain with this key; none if none is out of a subnet.
pub(crate) fn table(wanted: &EndpointSpec, key: u64) -> Vec<OwnAddress> {
    let networks = wanted.networks();
    let given = networks.iter().flat_map(Membership::addresses);
    let mut all: Vec<OwnAddress> =
        given.map(|(ip, space)| own(ip, space.gateway, space.subnet.bits())).collect();
    if all.is_empty() {
        return all;
    }
    // The other family's is the manager's.
    if !all.iter().any(OwnAddress::is_v4) {
        all.push(own(ip4(key).into(), HOST4.into(), BITS4));
    }
    if all.iter().all(OwnAddress::is_v4) {
        all.push(own(ip6(key).into(), HOST6.into(), BITS6));
    }
    all
}

/// Writes them down. Who reads meanwhile sees that they are being written, and reads again.
pub(crate) fn write(channel: &Arc<OwnedFd>, all: &[OwnAddress]) -> io::Result<()> {
    let file = File::from(channel.try_clone()?);
    let mut head = [0; OwnAddress::HEAD];
    file.read_exact_at(&mut head, OwnAddress::PLACE)?;
    let [a, b, c, d, count @ ..] = head;
    // A channel that never had any stays as sparse as it is.
    if all.is_empty() && count == [0; 4] {
        return Ok(());
    }
    // The domain may have written anything; it would deceive itself.
    let before = u32::from_le_bytes([a, b, c, d]) & !1;
    let number = |n: u32| file.write_all_at(&n.to_le_bytes(), OwnAddress::PLACE);
    number(before.wrapping_add(1))?;
    let all = &all[..all.len().min(OwnAddress::MOST)];
    let count = u32::try_from(all.len()).unwrap_or_default();
    let mut bytes = count.to_le_bytes().to_vec();
    all.iter().for_each(|own| bytes.extend(own.encode()));
    file.write_all_at(&bytes, OwnAddress::PLACE + 4)?;
    number(before.wrapping_add(2))
}
