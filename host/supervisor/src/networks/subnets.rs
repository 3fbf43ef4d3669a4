//! Subnets of networks as they are asked for, and the host's own networks, which they must not touch.

use std::net::IpAddr;

use doppel_api::{self as api, Code, Problem};
use doppel_net::Subnet;
use serde::{Deserialize, Serialize};

use crate::domains::spec::wrong;

/// A subnet of a network, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pool {
    pub subnet: Subnet,
    /// Domains that ask for no address have one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_range: Option<Subnet>,
    pub gateway: IpAddr,
}

/// What no network may have, and why.
const RESERVED: [(&str, &str); 15] = [
    ("0.0.0.0/8", "addresses of no host"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local addresses"),
    ("10.88.0.0/16", "networks without a subnet of their own, the host and the name server"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved addresses"),
    ("::/64", "loopback and addresses that stand for others"),
    ("::ffff:0:0/96", "addresses that stand for those of IPv4"),
    ("64:ff9b::/96", "addresses that stand for those of IPv4"),
    ("2001::/32", "tunnels"),
    ("2002::/16", "tunnels"),
    ("fd88:d0bb:e1::/48", "networks without a subnet of their own, the host and the name server"),
    ("fe80::/10", "link-local addresses"),
    ("fec0::/10", "addresses that are deprecated"),
    ("ff00::/8", "multicast"),
];
/// How few bits a subnet may have in common, by family: IPv4, IPv6.
const LEAST: [u8; 2] = [8, 16];
/// How many at most: there is room for the network's own address, the gateway, that of all, and one domain.
const MOST: [u8; 2] = [30, 126];

impl Pool {
    /// Whether a domain may have this address: not the network's own, that of all, or the gateway.
    pub fn offers(&self, ip: IpAddr) -> bool {
        let ends = [self.subnet.first(), self.subnet.last()];
        self.subnet.has(ip) && ip != self.gateway && !ends.contains(&ip)
    }

    /// Those that domains have which ask for none, from the lowest on.
    pub fn offered(&self) -> impl Iterator<Item = IpAddr> {
        self.ip_range.unwrap_or(self.subnet).addresses().filter(|ip| self.offers(*ip))
    }

    pub fn describe(&self) -> api::NetworkSubnet {
        api::NetworkSubnet {
            subnet: self.subnet.to_string(),
            ip_range: self.ip_range.map(|range| range.to_string()),
            gateway: Some(self.gateway),
        }
    }
}

fn parsed(field: &str, text: &str) -> Result<Subnet, Problem> {
    text.parse().map_err(|why| wrong(format!("{field}: {why}")))
}

/// A subnet, if it is one that a network can have; `host`: the host's own networks.
fn checked(subnet: Subnet, host: &[(Subnet, String)]) -> Result<(), Problem> {
    let family = usize::from(!subnet.is_v4());
    let bits = LEAST[family]..=MOST[family];
    if !bits.contains(&subnet.bits()) {
        let (least, most) = bits.into_inner();
        return Err(wrong(format!("subnets: {subnet} has {} bits; from {least} to {most}", subnet.bits())));
    }
    for (text, what) in RESERVED {
        // They are all right: a test has read them.
        if text.parse().is_ok_and(|reserved| subnet.overlaps(&reserved)) {
            return Err(wrong(format!("subnets: {subnet} overlaps with {text}, which is for {what}")));
        }
    }
    match host.iter().find(|(its, _)| subnet.overlaps(its)) {
        Some((its, device)) => {
            let text = format!(
                "subnets: {subnet} overlaps with {its}, a network of the host's own ({device}); choose another one"
            );
            Err(Problem::new(Code::InUse, text))
        }
        None => Ok(()),
    }
}

/// Subnets as they are asked for, checked; `host`: the host's own networks.
pub(crate) fn pools(asked: &[api::NetworkSubnet], host: &[(Subnet, String)]) -> Result<Vec<Pool>, Problem> {
    let mut all: Vec<Pool> = Vec::new();
    for one in asked {
        let subnet = parsed("subnets.subnet", &one.subnet)?;
        checked(subnet, host)?;
        if all.iter().any(|other| other.subnet.is_v4() == subnet.is_v4()) {
            return Err(wrong("subnets: a network has one of IPv4 and one of IPv6 at most"));
        }
        let ip_range = one.ip_range.as_deref().map(|text| parsed("subnets.ip_range", text)).transpose()?;
        if let Some(range) = ip_range
            && !(subnet.has(range.first()) && subnet.has(range.last()))
        {
            return Err(wrong(format!("subnets.ip_range: {range} is not inside of {subnet}")));
        }
        // The first that a host can have.
        let gateway = one.gateway.or_else(|| subnet.addresses().nth(1)).unwrap_or(subnet.first());
        if !subnet.has(gateway) || [subnet.first(), subnet.last()].contains(&gateway) {
            return Err(wrong(format!("subnets.gateway: {gateway} is no address of a host in {subnet}")));
        }
        let pool = Pool { subnet, ip_range, gateway };
        if pool.offered().next().is_none() {
            return Err(wrong(format!("subnets.ip_range: there is no address for a domain in {subnet}")));
        }
        all.push(pool);
    }
    Ok(all)
}

/// Networks of the host that it is on itself, each with its device; unknown ones are none.
pub(crate) fn of_host() -> Vec<(Subnet, String)> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut all: Vec<_> = read("/proc/net/route").lines().filter_map(route4).collect();
    all.extend(read("/proc/net/ipv6_route").lines().filter_map(route6));
    all
}

/// A route is through somebody else.
const GATEWAY: u32 = 2;

fn number(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

fn route4(line: &str) -> Option<(Subnet, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [device, to, _, flags, _, _, _, mask, ..] = words[..] else { return None };
    let bits = u8::try_from(number(mask)?.count_ones()).ok()?;
    // As the host has them in memory.
    let ip = IpAddr::from(number(to)?.to_ne_bytes());
    let own = number(flags)? & GATEWAY == 0 && bits > 0;
    Some((Subnet::of(ip, bits)?, device.to_owned())).filter(|_| own)
}

fn route6(line: &str) -> Option<(Subnet, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [to, bits, _, _, _, _, _, _, flags, device] = words[..] else { return None };
    let ip = IpAddr::from(u128::from_str_radix(to, 16).ok()?.to_be_bytes());
    let bits = u8::from_str_radix(bits, 16).ok()?;
    let own = number(flags)? & GATEWAY == 0 && bits > 0;
    Some((Subnet::of(ip, bits)?, device.to_owned())).filter(|_| own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(subnet: &str) -> api::NetworkSubnet {
        api::NetworkSubnet { subnet: subnet.into(), ..api::NetworkSubnet::default() }
    }

    fn why(one: api::NetworkSubnet) -> String {
        let host = [("192.168.1.0/24".parse().unwrap(), "eth0".into())];
        pools(&[one], &host).unwrap_err().detail
    }

    #[test]
    fn what_a_subnet_has_beside_is_chosen() {
        let all = pools(&[asked("172.20.0.0/29"), asked("fd00:20::/64")], &[]).unwrap();
        assert_eq!(all[0].gateway.to_string(), "172.20.0.1");
        assert_eq!(all[1].gateway.to_string(), "fd00:20::1");
        let offered: Vec<String> = all[0].offered().map(|ip| ip.to_string()).collect();
        assert_eq!(offered, ["172.20.0.2", "172.20.0.3", "172.20.0.4", "172.20.0.5", "172.20.0.6"]);
        let some = api::NetworkSubnet {
            ip_range: Some("172.20.0.4/30".into()),
            gateway: Some("172.20.0.5".parse().unwrap()),
            ..asked("172.20.0.0/29")
        };
        let pool = pools(&[some], &[]).unwrap().remove(0);
        let offered: Vec<String> = pool.offered().map(|ip| ip.to_string()).collect();
        assert_eq!(offered, ["172.20.0.4", "172.20.0.6"]);
        assert!(pool.offers("172.20.0.1".parse().unwrap()), "who asks for one may have it");
    }

    #[test]
    fn what_is_refused() {
        for (text, _) in RESERVED {
            assert!(text.parse::<Subnet>().is_ok(), "{text}");
        }
        for (subnet, says) in [
            ("10.0.0.0/8", "10.88.0.0/16"),
            ("127.1.0.0/16", "loopback"),
            ("230.0.0.0/8", "multicast"),
            ("192.168.0.0/16", "eth0"),
            ("172.20.0.0/31", "from 8 to 30"),
            ("172.0.0.0/7", "from 8 to 30"),
            ("fe80::/64", "link-local"),
            ("fd88:d0bb:e1:5::/64", "name server"),
            ("fd00:20::/127", "from 16 to 126"),
            ("172.20.0.0", "is no subnet"),
        ] {
            let said = why(asked(subnet));
            assert!(said.contains(says), "{subnet}: {said}");
        }
        let gateway =
            |ip: &str| api::NetworkSubnet { gateway: Some(ip.parse().unwrap()), ..asked("172.20.0.0/24") };
        for ip in ["172.21.0.1", "172.20.0.0", "172.20.0.255", "fd00::1"] {
            assert!(why(gateway(ip)).contains("subnets.gateway"), "{ip}");
        }
        let range = |text: &str| api::NetworkSubnet { ip_range: Some(text.into()), ..asked("172.20.0.0/24") };
        assert!(why(range("172.20.0.0/16")).contains("is not inside"));
        assert!(why(range("172.20.0.1/32")).contains("no address for a domain"));
        let two = pools(&[asked("172.20.0.0/24"), asked("172.21.0.0/24")], &[]).unwrap_err();
        assert!(two.detail.contains("one of IPv4"), "{}", two.detail);
    }

    #[test]
    fn routes_as_the_host_shows_them() {
        let line = "eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0";
        assert_eq!(route4(line), Some(("192.168.1.0/24".parse().unwrap(), "eth0".into())));
        let default = "eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0";
        assert_eq!((route4(default), route4("Iface\tDestination")), (None, None));
        let six = "fd00002000000000000000000000 0000 40".replace(' ', "");
        assert_eq!(route6(&six), None);
        let line = "fd000020000000000000000000000000 40 00000000000000000000000000000000 00 \
                    00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth1";
        assert_eq!(route6(line), Some(("fd00:20::/64".parse().unwrap(), "eth1".into())));
    }
}
