//! The domain's addresses in its networks: out of their subnets where those have some, which may change while it runs, or the two
//! that it began with.

use alloc::vec::Vec;

use doppel_abi_service::net::address::{BITS4, BITS6, HOST4, HOST6};
use doppel_algo::net::ports::{ANY4, ANY6, Ip, mapped, unmapped};
use doppel_machine::{boot, network};

pub use doppel_abi_service::net::OwnAddress;

/// They are being written for no longer than that many looks take, or by somebody who has died meanwhile.
const LOOKS: usize = 1000;

/// Looks at all of them, the first of each family before others; at none without a network.
fn look<R>(at: impl FnOnce(&[OwnAddress]) -> R) -> R {
    if !network::is_there() {
        return at(&[]);
    }
    for _ in 0..LOOKS {
        match network::own_addresses() {
            (all, true) if !all.is_empty() => return at(&all),
            (_, true) => break,
            (_, false) => core::hint::spin_loop(),
        }
    }
    at(&first())
}

/// All of them, likewise.
pub fn all() -> Vec<OwnAddress> {
    look(<[_]>::to_vec)
}

/// Those that the domain began with.
fn first() -> [OwnAddress; 2] {
    let info = boot::start_info();
    let mut gateway6 = [0; 16];
    for (to, word) in gateway6.chunks_exact_mut(2).zip(HOST6) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    [
        OwnAddress { ip: mapped(info.ip4), gateway: mapped(HOST4), bits: BITS4 },
        OwnAddress { ip: info.ip6, gateway: gateway6, bits: BITS6 },
    ]
}

/// Whether it is one of them.
pub fn is_own(ip: &Ip) -> bool {
    look(|all| all.iter().any(|own| own.ip == *ip))
}

/// The address with which the domain talks to another one: of the same network if it has one there.
pub fn towards(to: &Ip) -> Ip {
    let v4 = unmapped(to).is_some();
    look(|all| {
        let beside = all.iter().find(|own| own.is_beside(to));
        let found = beside.or_else(|| all.iter().find(|own| own.is_v4() == v4));
        found.map_or_else(|| if v4 { ANY4 } else { ANY6 }, |own| own.ip)
    })
}
