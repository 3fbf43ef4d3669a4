//! Further lines of `/etc/hosts`, as `--add-host` and `extra_hosts` give them (hosts(5)).

use std::net::{IpAddr, Ipv4Addr};

use doppel_abi_service::net::address::HOST4;

/// The address that stands for the host's own loopback, as Docker calls it.
const GATEWAY: &str = "host-gateway";
/// Longest name (RFC 1035).
const NAME_MAX: usize = 253;

/// The line of `NAME:ADDRESS` or `NAME=ADDRESS`.
///
/// # Errors
/// What is wrong with it.
pub fn host_line(entry: &str) -> Result<String, String> {
    let bad = || format!("{entry:?}: give NAME:ADDRESS, with an IPv4 or IPv6 address or {GATEWAY}");
    let (name, address) = entry.split_once(['=', ':']).ok_or_else(bad)?;
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    if name.len() > NAME_MAX || !name.split('.').all(is_part) {
        return Err(format!("{entry:?}: {name:?} is no host name"));
    }
    let address = match address {
        GATEWAY => IpAddr::V4(Ipv4Addr::from(HOST4)),
        text => text.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| bad())?,
    };
    Ok(format!("{address}\t{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_what_is_none() {
        let line = |entry| host_line(entry).unwrap();
        assert_eq!(line("db:10.0.0.7"), "10.0.0.7\tdb");
        assert_eq!(line("db.example.org=10.0.0.7"), "10.0.0.7\tdb.example.org");
        assert_eq!(line("six:fd00::1"), "fd00::1\tsix");
        assert_eq!(line("six:[fd00::1]"), "fd00::1\tsix");
        assert_eq!(line("host.docker.internal:host-gateway"), "10.88.0.1\thost.docker.internal");
        let long = format!("{}:10.0.0.1", "a".repeat(254));
        for bad in [
            "",
            "db",
            ":10.0.0.1",
            "db:",
            "db:x",
            "a b:10.0.0.1",
            "a\n:10.0.0.1",
            "a..b:10.0.0.1",
            long.as_str(),
        ] {
            assert!(host_line(bad).is_err(), "{bad:?}");
        }
    }
}
