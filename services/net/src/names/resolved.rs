//! Which addresses the domain was told for which names, for rules that go by names.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::names::dns;

/// Addresses remembered, and names of one.
const ADDRESSES: usize = 4096;
const NAMES: usize = 8;
/// Programs use an address longer than they were told they may.
const LEAST: Duration = Duration::from_secs(600);
const MOST: Duration = Duration::from_secs(24 * 3600);

/// What a domain was told by the name server.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<IpAddr, Vec<(String, Instant)>>);

impl Names {
    /// Takes note of a name server's answer.
    pub fn learn(&mut self, message: &[u8], now: Instant) {
        let Some(found) = dns::found(message) else { return };
        for (ip, seconds) in found.addresses {
            let until = now + Duration::from_secs(seconds.into()).clamp(LEAST, MOST);
            if self.0.len() >= ADDRESSES && !self.0.contains_key(&ip) {
                self.0.retain(|_, names| names.iter().any(|(_, until)| *until > now));
                if self.0.len() >= ADDRESSES {
                    // Its own asking: it may ask again.
                    self.0.clear();
                }
            }
            let names = self.0.entry(ip).or_default();
            names.retain(|(name, until)| *name != found.name && *until > now);
            if names.len() == NAMES {
                names.remove(0);
            }
            names.push((found.name.clone(), until));
        }
    }

    /// Whether a name that fits `pattern` has this address: `example.org`, or `*.example.org` for all below it.
    pub fn has(&self, ip: IpAddr, pattern: &str, now: Instant) -> bool {
        let fits = |name: &str| match pattern.strip_prefix('*') {
            Some(end) => name.len() > end.len() && name.ends_with(end),
            None => name == pattern,
        };
        self.0.get(&ip).is_some_and(|names| names.iter().any(|(name, until)| *until > now && fits(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::dns::tests::answer;

    #[test]
    fn names_are_known_by_what_the_domain_was_told() {
        let now = Instant::now();
        let mut names = Names::default();
        names.learn(&answer("www.example.org", &[("www.example.org", 1, vec![192, 0, 2, 1])]), now);
        let ip = [192, 0, 2, 1].into();
        let has = |pattern: &str, after: Duration| names.has(ip, pattern, now + after);
        assert!(has("www.example.org", Duration::ZERO) && has("*.example.org", LEAST / 2));
        assert!(!has("example.org", Duration::ZERO) && !has("*.www.example.org", Duration::ZERO));
        assert!(!has("*.ample.org", Duration::ZERO) && !has("www.example.org", 2 * LEAST));
        assert!(!names.has([192, 0, 2, 2].into(), "www.example.org", now));
    }

    #[test]
    fn memory_is_bounded() {
        let now = Instant::now();
        let mut names = Names::default();
        for i in 0..3 * ADDRESSES as u32 {
            let host = format!("h{i}.example.org");
            names.learn(&answer(&host, &[(&host, 1, i.to_be_bytes().to_vec())]), now);
            names.learn(&answer(&host, &[(&host, 1, vec![192, 0, 2, 1])]), now);
            assert!(names.0.len() <= ADDRESSES && names.0[&IpAddr::from([192, 0, 2, 1])].len() <= NAMES);
        }
    }
}
