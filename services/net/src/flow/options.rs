//! Options of connections.

use doppel_abi_service::net::SocketOption;
use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};

use crate::flow::address::errno;

fn is_v6(socket: &SockRef<'_>) -> bool {
    socket.local_addr().is_ok_and(|a| a.is_ipv6())
}

/// Sets an option of a connection.
pub(crate) fn set(socket: SockRef<'_>, option: SocketOption, value: u32) -> Result<(), Errno> {
    use std::time::Duration;
    let seconds = Duration::from_secs(u64::from(value));
    let result = match option {
        SocketOption::NoDelay => socket.set_tcp_nodelay(value != 0),
        SocketOption::KeepAlive => socket.set_keepalive(value != 0),
        SocketOption::KeepIdle => socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(seconds)),
        SocketOption::KeepInterval => socket.set_tcp_keepalive(&TcpKeepalive::new().with_interval(seconds)),
        SocketOption::KeepCount => socket.set_tcp_keepalive(&TcpKeepalive::new().with_retries(value)),
        SocketOption::UserTimeout => {
            socket.set_tcp_user_timeout(Some(Duration::from_millis(u64::from(value))))
        }
        SocketOption::TypeOfService if is_v6(&socket) => socket.set_tclass_v6(value),
        SocketOption::TypeOfService => socket.set_tos_v4(value),
        SocketOption::Hops if is_v6(&socket) => socket.set_unicast_hops_v6(value),
        SocketOption::Hops => socket.set_ttl_v4(value),
        // Of datagrams.
        SocketOption::ReceiveMarks => Ok(()),
    };
    // A connection within the host's virtual network is no TCP socket: what cannot be set there has no effect.
    match result.map_err(|e| errno(&e)) {
        Err(Errno::OPNOTSUPP | Errno::NOPROTOOPT) => Ok(()),
        r => r,
    }
}
