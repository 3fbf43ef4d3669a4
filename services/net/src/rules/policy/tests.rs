use std::net::IpAddr;
use std::os::fd::AsFd;

use super::*;
use crate::channel::client::Settings;
use crate::names::dns::tests::answer;
use crate::names::membership::Memberships;
use crate::rules::ledger::Ledger;

fn settings() -> Settings {
    Settings {
        networks: Memberships::default(),
        internal: false,
        name: String::new(),
        ip4: [10, 88, 0, 5].into(),
        ip6: "fd88:d0bb:e1::5".parse().unwrap(),
        served: crate::ServedAddresses::default(),
        rules: Rules::default(),
        published: Vec::new(),
        resolver: Some(([192, 0, 2, 53], 53).into()),
        counts: Ledger::new().unwrap().entry(5),
        log: None,
        quota: crate::Quota::default(),
    }
}

fn rule(text: &str) -> Rule {
    let (action, pattern) = text.split_once(' ').unwrap();
    Rule::new(pattern.parse().unwrap(), if action == "allow" { Action::Allow } else { Action::Deny })
}

fn outbound(texts: &[&str]) -> Policy {
    let rules = Rules { outbound: texts.iter().map(|t| rule(t)).collect(), ..Rules::default() };
    Policy::new(rules, None, Arc::default())
}

fn sends(policy: &mut Policy, to: &str, protocol: Protocol) -> bool {
    let to: SocketAddr = to.parse().unwrap();
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    let way = settings().route(to);
    policy.send(way, to, protocol, true).is_ok()
}

fn tcp(policy: &mut Policy, to: &str) -> bool {
    sends(policy, to, Protocol::Tcp)
}

#[test]
fn the_first_rule_that_fits_decides() {
    let mut p = outbound(&[
        "allow 10.1.0.0/16:443/tcp",
        "deny 0.0.0.0/0:25/tcp",
        "deny 10.1.0.0/16",
        "allow 10.0.0.0/8",
    ]);
    assert!(tcp(&mut p, "10.1.2.3:443"));
    assert!(!sends(&mut p, "10.1.2.3:443", Protocol::Udp), "the rule is for TCP");
    assert!(!tcp(&mut p, "10.1.2.3:80") && !tcp(&mut p, "10.2.2.3:25"));
    assert!(tcp(&mut p, "10.2.2.3:80"));
    assert!(!tcp(&mut p, "1.1.1.1:25") && tcp(&mut p, "1.1.1.1:80"));
    assert!(tcp(&mut p, "[2606:4700::1111]:25"), "a rule of IPv4 is none of IPv6");
    assert!(!tcp(&mut p, "[64:ff9b::101:101]:25"), "but of what stands for IPv4");
    let inbound = vec![rule("deny 192.0.2.0/24"), rule("deny any:22")];
    let mut p = Policy::new(Rules { inbound, ..Rules::default() }, None, Arc::default());
    let mut from =
        |ip: &str, port| p.receive(SocketAddr::new(ip.parse().unwrap(), 999), port, Protocol::Tcp, true);
    assert!(!from("192.0.2.9", 80) && !from("::ffff:192.0.2.9", 80));
    assert!(from("192.0.3.9", 80) && !from("192.0.3.9", 22));
}

#[test]
fn without_rules_only_what_is_public_is_reached() {
    let mut p = outbound(&[]);
    for private in [
        "127.0.0.1:80",
        "10.88.0.1:80",
        "10.1.2.3:80",
        "172.16.0.1:80",
        "192.168.0.1:80",
        "169.254.169.254:80",
        "100.100.100.200:80",
        "0.0.0.0:80",
        "[::]:80",
        "[::1]:80",
        "[fd88:d0bb:e1::1]:80",
        "[fd00:ec2::254]:80",
        "[fe80::a9fe:a9fe]:80",
        "[::ffff:127.0.0.1]:80",
        "[::ffff:169.254.169.254]:80",
        "[::ffff:10.88.0.1]:80",
        "[64:ff9b::a9fe:a9fe]:80",
        "[2002:a9fe:a9fe::1]:80",
        "[::169.254.169.254]:80",
        "192.88.99.1:80",
        "[2002:c058:6301::]:80",
        "[2001:0:4136:e378:8000:63bf:3fff:fdd2]:80",
        "[2606:4700::5efe:10.1.2.3]:80",
        "[2606:4700::200:5efe:169.254.169.254]:80",
        "[fd00::5efe:1.1.1.1]:80",
        "[3fff::1]:80",
    ] {
        assert!(!tcp(&mut p, private) && !sends(&mut p, private, Protocol::Udp), "{private}");
        // A rule that names it does open it.
        let address = private.parse::<SocketAddr>().unwrap().ip();
        assert!(tcp(&mut outbound(&[&format!("allow {address}")]), private), "{private}");
    }
    for open in [
        "1.1.1.1:80",
        "[2606:4700::1111]:80",
        "[2606:4700::5efe:1.1.1.1]:80",
        "10.88.0.2:53",
        "[fd88:d0bb:e1::2]:53",
        "10.88.0.9:80",
    ] {
        assert!(tcp(&mut p, open), "{open}");
    }
}

#[test]
fn addresses_of_the_host_itself_are_as_private_as_its_loopback() {
    let known = Arc::<Known>::default();
    known.add(("1.2.3.4".parse().unwrap(), 32));
    known.add(("2606:4700::2".parse().unwrap(), 128));
    known.add(("5.6.0.0".parse().unwrap(), 16));
    let policy = |texts: &[&str]| {
        let rules = Rules { outbound: texts.iter().map(|t| rule(t)).collect(), ..Rules::default() };
        Policy::new(rules, None, known.clone())
    };
    let (mut plain, mut any) = (policy(&[]), policy(&["allow any"]));
    for own in [
        "1.2.3.4:80",
        "5.6.7.8:80",
        "[2606:4700::2]:80",
        "[::ffff:1.2.3.4]:80",
        "[64:ff9b::1.2.3.4]:80",
        "[2002:102:304::1]:80",
        "[2606:4700:1::5efe:1.2.3.4]:80",
    ] {
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Icmp] {
            assert!(!sends(&mut plain, own, protocol) && !sends(&mut any, own, protocol), "{own}");
        }
        let ip = own.parse::<SocketAddr>().unwrap().ip();
        assert!(tcp(&mut policy(&[&format!("allow {ip}")]), own), "{own}");
    }
    assert!(tcp(&mut plain, "1.2.3.5:80") && tcp(&mut plain, "[2606:4700::3]:80"));
}

#[test]
fn a_router_of_whomever_opens_nothing_but_is_no_way_round_a_refusal() {
    let isatap = "[2606:4700::5efe:8.8.8.8]:80";
    assert!(!tcp(&mut outbound(&["allow 8.8.8.8", "deny any"]), isatap));
    assert!(!tcp(&mut outbound(&["deny 8.8.8.8"]), isatap));
    assert!(!tcp(&mut outbound(&["allow 8.8.8.8"]), "[fd00::5efe:8.8.8.8]:80"));
    assert!(tcp(&mut outbound(&["allow 8.8.8.8", "deny any"]), "[64:ff9b::8.8.8.8]:80"));
}

#[test]
fn rules_without_an_address_open_nothing_private_and_leave_the_name_server() {
    let mut p = outbound(&["allow any:443", "deny any"]);
    assert!(tcp(&mut p, "1.1.1.1:443") && !tcp(&mut p, "1.1.1.1:80"));
    assert!(!tcp(&mut p, "169.254.169.254:443") && !tcp(&mut p, "10.88.0.1:443"));
    assert!(!tcp(&mut p, "10.88.0.9:443"), "nor other domains");
    assert!(sends(&mut p, "10.88.0.2:53", Protocol::Udp));
    assert!(!sends(&mut outbound(&["deny 10.88.0.2"]), "10.88.0.2:53", Protocol::Udp));
    assert!(tcp(&mut outbound(&["allow 10.88.0.0/16:80", "deny any"]), "10.88.0.9:80"));
}

#[test]
fn names_are_what_the_domain_was_told() {
    let mut p = outbound(&["deny ads.example.org", "allow *.example.org:443", "deny any"]);
    assert!(!tcp(&mut p, "1.1.1.1:443"));
    let told =
        |p: &mut Policy, name: &str, ip: [u8; 4]| p.heard_names(&answer(name, &[(name, 1, ip.to_vec())]));
    told(&mut p, "www.example.org", [1, 1, 1, 1]);
    told(&mut p, "ads.example.org", [1, 1, 1, 2]);
    told(&mut p, "metadata.example.org", [169, 254, 169, 254]);
    assert!(tcp(&mut p, "1.1.1.1:443") && !tcp(&mut p, "1.1.1.1:80") && !tcp(&mut p, "1.1.1.3:443"));
    assert!(!tcp(&mut p, "1.1.1.2:443"));
    assert!(!tcp(&mut p, "169.254.169.254:443"), "the owner of a name has it mean what he likes");
    // What is known of names outlives the rules.
    p.set(Rules { outbound: vec![rule("deny www.example.org")], ..Rules::default() });
    assert!(!tcp(&mut p, "1.1.1.1:443") && tcp(&mut p, "1.1.1.2:443"));
}

#[test]
fn a_rate_is_of_new_flows() {
    let limited = Rule { rate: Some(5), ..rule("allow 192.0.2.0/24") };
    let mut p = Policy::new(Rules { outbound: vec![limited], ..Rules::default() }, None, Arc::default());
    let to: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let way = settings().route(to);
    // However slow this machine is, a thousand take less than 199 seconds.
    let went = (0..1000).filter(|_| p.send(way, to, Protocol::Tcp, true).is_ok()).count();
    assert!((5..1000).contains(&went), "{went}");
    assert!(
        (0..1000).all(|_| p.send(way, to, Protocol::Udp, false).is_ok()),
        "one that goes on is not limited"
    );
}

#[test]
fn what_goes_through_and_what_does_not_is_written_down() {
    let (read, write) = crate::manager::resources::pair(rustix::net::SocketFlags::NONBLOCK).unwrap();
    let log = Some(Log { to: Arc::new(write), key: 7 });
    let rules =
        vec![Rule { log: true, ..rule("deny 192.0.2.1") }, Rule { log: true, ..rule("allow 192.0.2.0/24") }];
    let mut p = Policy::new(Rules { outbound: rules, ..Rules::default() }, log, Arc::default());
    assert!(
        !tcp(&mut p, "192.0.2.1:80")
            && sends(&mut p, "192.0.2.2:53", Protocol::Udp)
            && tcp(&mut p, "1.1.1.1:80")
    );
    let found: Vec<Line> = std::iter::from_fn(|| read_log(read.as_fd())).collect();
    let line = |peer: &str, protocol, allowed| Line {
        key: 7,
        direction: Direction::Out,
        protocol,
        peer: peer.parse().unwrap(),
        port: peer.parse::<SocketAddr>().unwrap().port(),
        allowed,
        missed: 0,
    };
    assert_eq!(
        found,
        [line("192.0.2.1:80", Protocol::Tcp, false), line("192.0.2.2:53", Protocol::Udp, true)]
    );
    // A flood of refusals fills neither the log nor the socket; what was left out is counted.
    for _ in 0..10_000 {
        tcp(&mut p, "192.0.2.1:80");
    }
    assert!(p.missed > 0);
    while read_log(read.as_fd()).is_some() {}
}

#[test]
fn what_is_judged_again_is_judged_by_the_new_rules() {
    let mut p = outbound(&["allow 192.0.2.1"]);
    let to: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let s = settings();
    let from = SocketAddr::new(IpAddr::from([198, 51, 100, 1]), 9);
    assert!(p.keeps(&s, Flow::Out(to), Protocol::Tcp) && p.keeps(&s, Flow::In(from, 80), Protocol::Tcp));
    p.set(Rules { inbound: vec![rule("deny 198.51.100.0/24:80")], ..Rules::default() });
    assert!(!p.keeps(&s, Flow::Out(to), Protocol::Tcp) && !p.keeps(&s, Flow::In(from, 80), Protocol::Tcp));
    assert!(p.keeps(&s, Flow::In(from, 81), Protocol::Tcp));
}
