//! The networks that a domain is on, and what it is called there.

use serde::{Deserialize, Serialize};

/// A network of a domain's.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Membership {
    /// Its name.
    pub network: String,
    /// Further names of the domain there, which others may have too.
    #[serde(default)]
    pub aliases: Vec<String>,
}

impl Membership {
    /// On this network, by its own name alone.
    #[must_use]
    pub fn of(network: &str) -> Self {
        Self { network: network.to_owned(), aliases: Vec::new() }
    }
}

/// The networks of a domain, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memberships(Vec<Membership>);

impl From<Vec<Membership>> for Memberships {
    fn from(mut all: Vec<Membership>) -> Self {
        all.sort_unstable();
        all.dedup_by(|later, one| later.network == one.network);
        Self(all)
    }
}

impl Memberships {
    /// On this network alone, by its own name.
    #[must_use]
    pub fn of(network: &str) -> Self {
        Self(vec![Membership::of(network)])
    }

    /// Whether both have a network in common.
    pub(crate) fn meet(&self, others: &Self) -> bool {
        let (mut a, mut b) = (self.names().peekable(), others.names().peekable());
        while let (Some(one), Some(other)) = (a.peek(), b.peek()) {
            match one.cmp(other) {
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Less => drop(a.next()),
                std::cmp::Ordering::Greater => drop(b.next()),
            }
        }
        false
    }

    /// The networks.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|one| one.network.as_str())
    }

    /// What a domain of this name is called, by network.
    pub(crate) fn called<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().flat_map(move |one| {
            let all = std::iter::once(name).chain(one.aliases.iter().map(String::as_str));
            all.map(|name| (one.network.as_str(), name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(networks: &[&str]) -> Memberships {
        networks.iter().map(|n| Membership::of(n)).collect::<Vec<_>>().into()
    }

    #[test]
    fn those_meet_who_have_one_in_common() {
        for (a, b, meet) in [
            (&["a"][..], &["a"][..], true),
            (&["a"], &["b"], false),
            (&["b", "a"], &["c", "b"], true),
            (&["a", "c", "e"], &["b", "d", "e"], true),
            (&["a", "c", "e"], &["b", "d", "f"], false),
            (&[], &["a"], false),
            (&[], &[], false),
        ] {
            assert_eq!((on(a).meet(&on(b)), on(b).meet(&on(a))), (meet, meet), "{a:?} {b:?}");
        }
        assert_eq!(on(&["a", "b", "a"]).names().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn it_has_its_own_name_everywhere_and_others_where_they_were_given() {
        let store = Membership { network: "back".into(), aliases: vec!["store".into()] };
        let all = Memberships::from(vec![Membership::of("front"), store]);
        let called: Vec<_> = all.called("db").collect();
        assert_eq!(called, [("back", "db"), ("back", "store"), ("front", "db")]);
    }
}
