//! Arbitrary bytes as a message of a domain to its name server, and as the server's answer: what is found in one is bounded, a question
//! of a known name is answered so that the answer can be read, and what a domain is remembered to have been told stays small.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

#[allow(dead_code, reason = "the service uses the rest")]
#[path = "../../services/net/src/names"]
mod names {
    pub mod directory;
    pub mod dns;
    pub mod membership;
    pub mod resolved;
    pub mod subnet;
}

use names::membership::Memberships;
use names::{directory, dns, resolved};

const IP4: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 5);
const IP6: Ipv6Addr = Ipv6Addr::new(0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, 5);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let now = Instant::now();
    let mut names = resolved::Names::default();
    names.learn(bytes, now);
    if let Some(found) = dns::found(bytes) {
        assert!(found.name.len() <= 255 && found.addresses.len() <= 64);
        assert!(found.addresses.iter().all(|(ip, _)| names.has(*ip, &found.name, now)));
    }
    let Some(question) = dns::question(bytes) else { return };
    assert_eq!(dns::found(bytes), None, "a question is no answer");
    let mut directory = directory::Directory::default();
    directory.put("net", &question.name, (IP4, IP6));
    if let Some(answer) = directory.answer(&Memberships::of("net"), bytes) {
        assert!(answer.len() <= bytes.len() + 28);
        let found = dns::found(&answer).expect("an answer that can be read");
        assert_eq!(found.name, question.name);
        assert!(found.addresses.iter().all(|(ip, _)| [IpAddr::V4(IP4), IpAddr::V6(IP6)].contains(ip)));
    }
});
