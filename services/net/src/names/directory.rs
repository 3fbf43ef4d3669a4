//! Names of the domains of each network, which the service itself answers questions about.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::names::dns::{self, Question};

/// A domain's addresses.
type Addresses = (Ipv4Addr, Ipv6Addr);

/// Who is called what, by network; several may share a name that is not their own.
#[derive(Debug, Default)]
pub(crate) struct Directory(HashMap<(String, String), Vec<Addresses>>);

impl Directory {
    /// A domain has this name now. One without a name is not found by any.
    pub fn put(&mut self, network: &str, name: &str, addresses: Addresses) {
        if !name.is_empty() {
            let all = self.0.entry((network.to_owned(), name.to_ascii_lowercase())).or_default();
            all.retain(|other| *other != addresses);
            all.push(addresses);
        }
    }

    /// It has it no more; another one may have it already.
    pub fn remove(&mut self, network: &str, name: &str, addresses: Addresses) {
        let key = (network.to_owned(), name.to_ascii_lowercase());
        let Some(all) = self.0.get_mut(&key) else { return };
        all.retain(|other| *other != addresses);
        if all.is_empty() {
            self.0.remove(&key);
        }
    }

    /// The answer to a question that is about a domain of the asking one's network: `name`, or `name.network`.
    pub fn answer(&self, network: &str, message: &[u8]) -> Option<Vec<u8>> {
        let question = dns::question(message)?;
        let mut found = self.find(network, &question)?.clone();
        // Programs mostly take the first: each question has another one there.
        let turn = usize::from(message[1]) % found.len();
        found.rotate_left(turn);
        Some(dns::reply(message, &question, &found))
    }

    fn find(&self, network: &str, question: &Question) -> Option<&Vec<Addresses>> {
        let asked = question.name.as_str();
        let suffix = format!(".{}", network.to_ascii_lowercase());
        // A name with a dot that is not the network's is somebody else's, whatever domains are called.
        let name = asked.strip_suffix(&suffix).or((!asked.contains('.')).then_some(asked))?;
        self.0.get(&(network.to_owned(), name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::dns::tests::question;

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
            let reply = d.answer(network, &question(name, 1))?;
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
        let text = d.answer("back", &question("web", 16)).unwrap();
        assert!(dns::found(&text).unwrap().addresses.is_empty());
        // Several have a name together, and each is the first of some answers.
        d.put("front", "web", at(9));
        d.put("front", "WEB", at(9));
        let firsts: std::collections::BTreeSet<_> = (0..4)
            .map(|id| {
                let mut asked = question("web", 1);
                asked[1] = id;
                let all = dns::found(&d.answer("front", &asked).unwrap()).unwrap().addresses;
                assert_eq!(all.len(), 2);
                all[0].0.to_string()
            })
            .collect();
        assert_eq!(firsts.len(), 2);
        d.remove("front", "web", at(9));
        // Its successor of the same name stays.
        d.remove("front", "web", at(5));
        assert!(d.answer("front", &question("web", 28)).is_some());
        d.remove("front", "web", at(6));
        assert!(d.answer("front", &question("web", 28)).is_none());
    }
}
