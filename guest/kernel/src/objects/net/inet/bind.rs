//! Binding sockets to ports.

use doppel_algo::net::ports::{Binding, Ip, PortTable, Scope};
use doppel_machine::sync::SpinLock;

use super::ends::{End, is_local, is_multicast};
use crate::core::random;
use crate::core::subject::subject;
use crate::core::time;
use crate::objects::net::Common;
use crate::objects::net::consts::{SO_REUSEADDR, SO_REUSEPORT, SOL_TCP, SOL_UDP, SOL_UDPLITE};
use crate::{Errno, Result};

/// Checks an address to bind to: it must be ours unless anything will do, and low ports need a capability.
pub(super) fn check_bind(common: &Common, at: &End, multicast: bool, free: bool) -> Result<()> {
    const CAP_NET_BIND_SERVICE: u32 = 10;
    let ours = free || at.is_any() || is_local(&at.ip) || multicast && is_multicast(&at.ip);
    if !ours {
        return Err(Errno::EADDRNOTAVAIL);
    }
    // The identifier of an echo is no port.
    let ports = matches!(common.protocol, SOL_TCP | SOL_UDP | SOL_UDPLITE);
    if ports && (1..1024).contains(&at.port) && !subject().cred().capable(CAP_NET_BIND_SERVICE) {
        return Err(Errno::EACCES);
    }
    Ok(())
}

/// A binding of a socket with its present options.
pub(super) fn binding<T>(common: &Common, ip: Ip, v6only: bool, what: T) -> Binding<T> {
    Binding {
        id: common.ino,
        scope: Scope::new(ip, v6only),
        reuse_addr: common.on(SO_REUSEADDR),
        reuse_port: common.on(SO_REUSEPORT).then(|| subject().cred().euid),
        listening: false,
        what,
    }
}

/// How a bound socket shares its port has changed.
pub(super) fn share_anew<T>(b: &mut Binding<T>, common: &Common) {
    b.reuse_addr = common.on(SO_REUSEADDR);
    let owner = b.reuse_port.unwrap_or_else(|| subject().cred().euid);
    b.reuse_port = common.on(SO_REUSEPORT).then_some(owner);
}

/// Binds `at` in `table`; port 0 chooses one of a range. Returns the port.
pub(super) fn claim<T: Clone>(
    table: &SpinLock<PortTable<T>>,
    at: &End,
    range: (u16, u16),
    connects: bool,
    b: Binding<T>,
) -> Result<u16> {
    let now = time::monotonic_ns();
    if at.port == 0 {
        let mut r = [0; 4];
        random::fill(&mut r);
        table.lock().bind_any(u32::from_ne_bytes(r), range, now, connects, b).map_err(|_| Errno::EADDRINUSE)
    } else {
        table.lock().bind(at.port, now, b).map(|()| at.port).map_err(|_| Errno::EADDRINUSE)
    }
}
