//! Who answers the host's questions about names.

use std::net::{IpAddr, SocketAddr};

/// The first name server in the text of `/etc/resolv.conf`.
pub(crate) fn first(text: &str) -> Option<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<IpAddr>().ok()).flatten()
    };
    text.lines().find_map(server).map(|ip| SocketAddr::new(ip, 53))
}

/// The host's; none if it has none.
pub(crate) fn of_host() -> Option<SocketAddr> {
    std::fs::read_to_string("/etc/resolv.conf").ok().and_then(|text| first(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_server_of_resolv_conf() {
        let text = "# nameserver 192.0.2.9\nsearch example.org\nnameserver fe80::1%eth0\nnameserver\t127.0.0.53 # local\nnameserver 192.0.2.2\n";
        assert_eq!(first(text), Some(([127, 0, 0, 53], 53).into()));
        assert_eq!(first("nameserver 2001:db8::1"), Some("[2001:db8::1]:53".parse().unwrap()));
        assert_eq!(first("search example.org\n"), None);
    }
}
