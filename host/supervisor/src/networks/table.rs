//! Networks that were made by themselves, by owner and name.

use std::collections::BTreeMap;

use doppel_api::{Code, Problem};
use serde::{Deserialize, Serialize};

use crate::networks::leases::Leases;
use crate::networks::subnets::Pool;

/// Most networks of an owner that were made by themselves.
const MOST: usize = 1000;

/// A network that was made by itself, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NetworkRow {
    pub name: String,
    pub owner: String,
    pub created_at: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub internal: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Pool>,
}

impl NetworkRow {
    /// Under which it is written down: no name has a slash.
    pub fn key(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct NetworkTable {
    rows: BTreeMap<(String, String), NetworkRow>,
    /// Which domain has which of their addresses.
    pub leases: Leases,
}

pub(crate) fn key(owner: &str, name: &str) -> (String, String) {
    (owner.to_owned(), name.to_owned())
}

impl NetworkTable {
    pub fn new(rows: Vec<(String, NetworkRow)>) -> Self {
        let rows = rows.into_iter().map(|(_, row)| (key(&row.owner, &row.name), row)).collect();
        Self { rows, leases: Leases::default() }
    }

    pub fn get(&self, owner: &str, name: &str) -> Option<&NetworkRow> {
        self.rows.get(&key(owner, name))
    }

    /// Those of an owner, by name.
    pub fn of<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = &'a NetworkRow> {
        self.rows.range(key(owner, "")..).map(|(_, row)| row).take_while(move |row| row.owner == owner)
    }

    /// Another one.
    pub fn put(&mut self, row: NetworkRow) -> Result<(), Problem> {
        if self.get(&row.owner, &row.name).is_some() {
            let text = format!("a network named {:?} exists; remove it, or choose another name", row.name);
            return Err(Problem::new(Code::NameInUse, text));
        }
        if self.of(&row.owner).count() >= MOST {
            let text = format!("there are {MOST} networks, which is the most there can be; remove some");
            return Err(Problem::new(Code::Capacity, text));
        }
        self.overlap(&row)?;
        self.rows.insert(key(&row.owner, &row.name), row);
        Ok(())
    }

    /// Refuses a network whose subnets are in part another one's of its owner.
    fn overlap(&self, row: &NetworkRow) -> Result<(), Problem> {
        for other in self.of(&row.owner) {
            let both = |pool: &&Pool| other.subnets.iter().any(|its| its.subnet.overlaps(&pool.subnet));
            if let Some(pool) = row.subnets.iter().find(both) {
                let text = format!(
                    "subnet {} of network {:?} overlaps with that of network {:?}; choose another one",
                    pool.subnet, row.name, other.name
                );
                return Err(Problem::new(Code::InUse, text));
            }
        }
        Ok(())
    }

    pub fn remove(&mut self, owner: &str, name: &str) -> Option<NetworkRow> {
        self.rows.remove(&key(owner, name))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn row(owner: &str, name: &str) -> NetworkRow {
        let (labels, internal) = (BTreeMap::new(), false);
        let (name, owner, created_at) = (name.into(), owner.into(), String::new());
        NetworkRow { name, owner, created_at, labels, internal, subnets: Vec::new() }
    }

    #[test]
    fn an_owner_has_networks_of_its_own() {
        let mut table = NetworkTable::default();
        for (owner, name) in
            [("uid 0", "back"), ("uid 0", "front"), ("uid 01", "back"), ("token a/b", "back")]
        {
            table.put(row(owner, name)).unwrap();
        }
        let names = |owner: &str| table.of(owner).map(|row| row.name.clone()).collect::<Vec<_>>();
        assert_eq!(names("uid 0"), ["back", "front"]);
        assert_eq!((names("uid 01").len(), names("token a/b").len(), names("uid 1").len()), (1, 1, 0));
        let mut keys: Vec<String> = table.rows.values().map(NetworkRow::key).collect();
        keys.dedup();
        assert_eq!(keys.len(), 4);
        assert_eq!(table.put(row("uid 0", "back")).unwrap_err().code, Code::NameInUse);
        assert!(table.remove("uid 0", "back").is_some() && table.get("uid 01", "back").is_some());
        assert!(table.put(row("uid 0", "back")).is_ok());
    }

    #[test]
    fn subnets_of_one_owner_do_not_overlap() {
        use crate::networks::subnets::pools;
        let with = |owner: &str, name: &str, subnet: &str| {
            let asked = doppel_api::NetworkSubnet { subnet: subnet.into(), ..Default::default() };
            NetworkRow { subnets: pools(&[asked], &[]).unwrap(), ..row(owner, name) }
        };
        let mut table = NetworkTable::default();
        table.put(with("uid 0", "back", "172.20.0.0/16")).unwrap();
        let refused = table.put(with("uid 0", "front", "172.20.5.0/24")).unwrap_err();
        assert!(refused.detail.contains("\"back\""), "{}", refused.detail);
        table.put(with("uid 1", "front", "172.20.5.0/24")).unwrap();
        table.remove("uid 0", "back").unwrap();
        table.put(with("uid 0", "front", "172.20.5.0/24")).unwrap();
    }

    #[test]
    fn there_is_an_end_to_them() {
        let mut table = NetworkTable::default();
        for n in 0..MOST {
            table.put(row("uid 0", &format!("n{n}"))).unwrap();
        }
        assert_eq!(table.put(row("uid 0", "more")).unwrap_err().code, Code::Capacity);
        table.put(row("uid 1", "more")).unwrap();
    }

    #[test]
    fn what_an_older_one_wrote_is_read() {
        let old = r#"{"name":"back","owner":"uid 0","created_at":"then"}"#;
        assert_eq!(serde_json::from_str::<NetworkRow>(old).unwrap().name, "back");
    }
}
