//! The keeper's network service: one for all domains that want a network, started with the first of them.

use std::io;

use doppel_domain::NetworkLink;
use doppel_net::{Attachment, Manager, Wanted};

use super::Keeper;
use super::protocol::{Fault, Said};
use super::serve::refused;

impl Keeper {
    /// Gives a domain its part in the network, or says why not.
    pub(super) fn attach(&mut self, wanted: Wanted) -> Result<Attachment, Said> {
        let manager = match &self.network {
            Some(manager) => manager,
            None => {
                let manager = Manager::of_this_program()
                    .map_err(|e| refused(Fault::Host, format!("cannot start a network service: {e}")))?;
                self.network.insert(manager)
            }
        };
        manager.attach(wanted).map_err(|e| refused(fault(&e), e.to_string()))
    }
}

fn fault(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable | io::ErrorKind::PermissionDenied => {
            Fault::Port
        }
        io::ErrorKind::InvalidInput => Fault::Request,
        _ => Fault::Host,
    }
}

/// What the domain is given of it; the same one that it had if it wakes.
pub(super) fn link(a: &Attachment, same: bool) -> NetworkLink {
    NetworkLink { memory: a.memory.clone(), doorbell: a.doorbell.clone(), ip4: a.ip4, ip6: a.ip6, same }
}
