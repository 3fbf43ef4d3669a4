//! Names of the domains of each network, which the service itself answers questions about.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::names::dns;
use crate::names::membership::Memberships;

/// A domain's addresses.
type Addresses = (Ipv4Addr, Ipv6Addr);

/// Who is called what, by network; several may share a name that is not their own.
#[derive(Debug, Default)]
pub(crate) struct Directory(HashMap<String, HashMap<String, Vec<Addresses>>>);

impl Directory {
    /// A domain has this name now. One without a name is not found by any.
    pub fn put(&mut self, network: &str, name: &str, addresses: Addresses) {
        if !name.is_empty() {
            let names = self.0.entry(network.to_owned()).or_default();
            let all = names.entry(name.to_ascii_lowercase()).or_default();
            all.retain(|other| *other != addresses);
            all.push(addresses);
        }
    }

    /// It has it no more; another one may have it already.
    pub fn remove(&mut self, network: &str, name: &str, addresses: Addresses) {
        let Some(names) = self.0.get_mut(network) else { return };
        let name = name.to_ascii_lowercase();
        let Some(all) = names.get_mut(&name) else { return };
        all.retain(|other| *other != addresses);
        if all.is_empty() {
            names.remove(&name);
        }
        if names.is_empty() {
            self.0.remove(network);
        }
    }

    /// The answer to a question that is about a domain of one of the asking one's networks: `name`, or `name.network`.
    pub fn answer(&self, networks: &Memberships, message: &[u8]) -> Option<Vec<u8>> {
        let question = dns::question(message)?;
        let mut found = self.find(networks, &question.name);
        if found.is_empty() {
            return None;
        }
        // Programs mostly take the first: each question has another one there.
        let turn = usize::from(message[1]) % found.len();
        found.rotate_left(turn);
        Some(dns::reply(message, &question, &found))
    }

    /// Who is called so in one of these networks, or more.
    fn find(&self, networks: &Memberships, asked: &str) -> Vec<Addresses> {
        let mut found: Vec<Addresses> = Vec::new();
        for network in networks.names() {
            let before = asked.strip_suffix(network).and_then(|name| name.strip_suffix('.'));
            // A name with a dot that is not the network's is somebody else's, whatever domains are called.
            let Some(name) = before.or((!asked.contains('.')).then_some(asked)) else { continue };
            for one in self.0.get(network).and_then(|names| names.get(name)).into_iter().flatten() {
                // More do not fit into an answer.
                if found.len() < dns::MOST && !found.contains(one) {
                    found.push(*one);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::dns::tests::question;
    use crate::names::membership::Membership;

    #[test]
    fn domains_are_found_in_their_own_network_only() {
        let mut d = Directory::default();
        let at = |last: u8| {
            ([10, 88, 0, last].into(), Ipv6Addr::from([0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, last.into()]))
        };
        d.put("back", "Web", at(5));
        d.put("front", "web", at(6));
        d.put("back", "www.example.org", at(7));
        d.put("back", "", at(8));
        let found = |network: &str, name: &str| {
            let reply = d.answer(&Memberships::of(network), &question(name, 1))?;
            dns::found(&reply).map(|f| f.addresses[0].0.to_string())
        };
        assert_eq!(found("back", "web"), Some("10.88.0.5".into()));
        assert_eq!(found("back", "WEB.Back"), Some("10.88.0.5".into()));
        assert_eq!(found("front", "web.front"), Some("10.88.0.6".into()));
        assert_eq!((found("back", "web.front"), found("", "web")), (None, None));
        assert_eq!(found("back", "www.example.org"), None, "not in the place of what is outside");
        assert_eq!(found("back", "www.example.org.back"), Some("10.88.0.7".into()));
        assert_eq!((found("back", "back"), found("back", "xback")), (None, None));
        // Another kind of record: there is none, and nobody else is asked.
        let text = d.answer(&Memberships::of("back"), &question("web", 16)).unwrap();
        assert!(dns::found(&text).unwrap().addresses.is_empty());
        // Several have a name together, and each is the first of some answers.
        d.put("front", "web", at(9));
        d.put("front", "WEB", at(9));
        let firsts: std::collections::BTreeSet<_> = (0..4)
            .map(|id| {
                let mut asked = question("web", 1);
                asked[1] = id;
                let all =
                    dns::found(&d.answer(&Memberships::of("front"), &asked).unwrap()).unwrap().addresses;
                assert_eq!(all.len(), 2);
                all[0].0.to_string()
            })
            .collect();
        assert_eq!(firsts.len(), 2);
        d.remove("front", "web", at(9));
        // Its successor of the same name stays.
        d.remove("front", "web", at(5));
        assert!(d.answer(&Memberships::of("front"), &question("web", 28)).is_some());
        d.remove("front", "web", at(6));
        assert!(d.answer(&Memberships::of("front"), &question("web", 28)).is_none());
    }

    #[test]
    fn who_is_on_several_networks_is_told_of_all_that_they_have() {
        let mut d = Directory::default();
        let at = |last: u8| {
            ([10, 88, 0, last].into(), Ipv6Addr::from([0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, last.into()]))
        };
        for (network, name, last) in [
            ("back", "db", 5),
            ("front", "web", 6),
            ("front", "db", 7),
            ("other", "db", 8),
            ("back", "both", 9),
        ] {
            d.put(network, name, at(last));
        }
        d.put("front", "both", at(9));
        d.put("a.b", "x", at(10));
        d.put("b", "x.a", at(11));
        let found = |networks: &[&str], name: &str| {
            let all: Vec<_> = networks.iter().map(|n| Membership::of(n)).collect();
            let mut asked = question(name, 1);
            asked[1] = 0;
            let reply = d.answer(&all.into(), &asked)?;
            dns::found(&reply).map(|f| f.addresses.iter().map(|(ip, _)| ip.to_string()).collect::<Vec<_>>())
        };
        let both = &["front", "back"];
        assert_eq!(found(both, "web"), Some(vec!["10.88.0.6".into()]));
        assert_eq!(found(both, "db"), Some(vec!["10.88.0.5".into(), "10.88.0.7".into()]));
        assert_eq!(found(both, "db.front"), Some(vec!["10.88.0.7".into()]));
        assert_eq!(found(both, "both"), Some(vec!["10.88.0.9".into()]), "once");
        assert_eq!((found(both, "db.other"), found(&[], "db")), (None, None));
        assert_eq!(found(&["a.b", "b"], "x.a.b"), Some(vec!["10.88.0.10".into(), "10.88.0.11".into()]));
        // As many as fit into an answer.
        for last in 1..=200 {
            d.put("front", "many", at(last));
        }
        assert_eq!(d.find(&Memberships::of("front"), "many").len(), dns::MOST);
    }
}
