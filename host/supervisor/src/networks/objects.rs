//! Networks are made, listed and removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use doppel_api::{self as api, Code, Problem};
use doppel_spec::DEFAULT_NETWORK;

use crate::core::Core;
use crate::networks::subnets::{self, Pool};
use crate::networks::table::{NetworkRow, NetworkTable};
use crate::state::Table;
use crate::{locked, time};

/// Domains on a network of an owner's: their ids, and when the first of them was made.
#[derive(Debug, Default)]
struct Users {
    ids: Vec<String>,
    since: Option<String>,
}

fn no_network(name: &str) -> Problem {
    let text = format!("no network {name:?}; `doppel network ls` lists them");
    Problem::new(Code::NetworkNotFound, text)
}

fn described(table: &NetworkTable, owner: &str, name: &str, users: Users) -> api::VirtualNetwork {
    let row = table.get(owner, name);
    api::VirtualNetwork {
        name: name.to_owned(),
        created_at: row.map_or(users.since, |row| Some(row.created_at.clone())),
        labels: row.map(|row| row.labels.clone()).unwrap_or_default(),
        internal: row.is_some_and(|row| row.internal),
        transient: row.is_none() && name != DEFAULT_NETWORK,
        used_by: users.ids,
        subnets: row.map(|row| row.subnets.iter().map(Pool::describe).collect()).unwrap_or_default(),
        addresses: table.leases.of(owner, name),
    }
}

/// Whether all of these networks of an owner are internal: nothing leads outside then, and none at all leads nowhere.
pub(crate) fn all_internal<'a>(
    table: &NetworkTable,
    owner: &str,
    mut networks: impl Iterator<Item = &'a str>,
) -> bool {
    networks.all(|name| table.get(owner, name).is_some_and(|row| row.internal))
}

impl Core {
    /// Who is on which network of an owner's.
    fn network_users(&self, owner: &str) -> BTreeMap<String, Users> {
        let mut all: BTreeMap<String, Users> = BTreeMap::new();
        for entry in self.all() {
            let row = locked(&entry.row);
            if row.owner != owner {
                continue;
            }
            for network in row.config.network.memberships() {
                let users = all.entry(network.name).or_default();
                users.ids.push(row.id.clone());
                // RFC 3339 in UTC: the earlier is the lesser text.
                if users.since.as_ref().is_none_or(|since| *since > row.created_at) {
                    users.since = Some(row.created_at.clone());
                }
            }
        }
        all
    }

    pub fn network_list(&self, owner: &str) -> Vec<api::VirtualNetwork> {
        let mut users = self.network_users(owner);
        users.entry(DEFAULT_NETWORK.to_owned()).or_default();
        let table = locked(&self.networks);
        for row in table.of(owner) {
            users.entry(row.name.clone()).or_default();
        }
        users.into_iter().map(|(name, users)| described(&table, owner, &name, users)).collect()
    }

    pub fn network_inspect(&self, owner: &str, name: &str) -> Result<api::VirtualNetwork, Problem> {
        let name = name.to_ascii_lowercase();
        let users = self.network_users(owner).remove(&name);
        let table = locked(&self.networks);
        let row = table.get(owner, &name);
        if row.is_none() && users.is_none() && name != DEFAULT_NETWORK {
            return Err(no_network(&name));
        }
        Ok(described(&table, owner, &name, users.unwrap_or_default()))
    }

    pub async fn network_create(
        self: Arc<Self>,
        wanted: api::CreateNetwork,
        owner: String,
    ) -> Result<api::VirtualNetwork, Problem> {
        let name = wanted.name.to_ascii_lowercase();
        let row = NetworkRow {
            name: name.clone(),
            owner: owner.clone(),
            created_at: time::now(),
            labels: wanted.labels,
            internal: wanted.internal,
            subnets: subnets::pools(&wanted.subnets, &subnets::of_host())?,
        };
        {
            // Who is on it is looked for under the lock: whoever comes later finds the network as it is then.
            let mut table = locked(&self.networks);
            if (row.internal || !row.subnets.is_empty())
                && table.get(&owner, &name).is_none()
                && let Some(users) = self.network_users(&owner).remove(&name)
            {
                let (as_it_is, becomes) = match row.internal {
                    true => ("reach the outside", "becomes internal"),
                    false => ("have addresses of no subnet", "has a subnet"),
                };
                let text = format!(
                    "domains are on network {name:?} and {as_it_is}: {}; stop and remove them, or take them off it, \
                     before it {becomes}",
                    users.ids.join(", ")
                );
                return Err(Problem::new(Code::InUse, text));
            }
            table.put(row.clone())?;
        }
        if let Err(problem) = self.state.put(Table::Networks, &row.key(), &row).await {
            locked(&self.networks).remove(&owner, &name);
            return Err(problem);
        }
        self.network_inspect(&owner, &name)
    }

    pub async fn network_remove(
        self: Arc<Self>,
        name: String,
        how: api::RemoveNetwork,
        owner: String,
    ) -> Result<(), Problem> {
        let name = name.to_ascii_lowercase();
        if name == DEFAULT_NETWORK {
            let text = "the network \"default\" is that of domains that name none; it cannot be removed";
            return Err(Problem::new(Code::Forbidden, text));
        }
        match self.take_network(&owner, &name)? {
            Some(row) => self.forget_network(row).await,
            None if how.force => Ok(()),
            None => Err(no_network(&name)),
        }
    }

    /// Takes a network that nobody is on out of the table.
    fn take_network(&self, owner: &str, name: &str) -> Result<Option<NetworkRow>, Problem> {
        let mut table = locked(&self.networks);
        if let Some(users) = self.network_users(owner).remove(name) {
            let text = format!(
                "domains are on network {name:?}: {}; remove them, or take them off it with `doppel network disconnect`",
                users.ids.join(", ")
            );
            return Err(Problem::new(Code::InUse, text));
        }
        Ok(table.remove(owner, name))
    }

    /// Writes down that a network is no more; it is there again if that fails.
    async fn forget_network(&self, row: NetworkRow) -> Result<(), Problem> {
        let done = self.state.remove(Table::Networks, &row.key()).await;
        if done.is_err() {
            // One of the same name may have been made meanwhile, which is as good.
            let _ = locked(&self.networks).put(row);
        }
        done
    }

    pub async fn network_prune(
        self: Arc<Self>,
        which: api::NetworkPruneOptions,
        owner: String,
    ) -> Result<api::NetworkPruneReport, Problem> {
        let label = which.label.unwrap_or_default();
        let wanted: Vec<String> = locked(&self.networks)
            .of(&owner)
            .filter(|row| api::has_labels(&row.labels, &label))
            .map(|row| row.name.clone())
            .collect();
        let used = self.network_users(&owner);
        let mut report = api::NetworkPruneReport::default();
        for name in wanted.into_iter().filter(|name| !used.contains_key(name)) {
            // One that somebody has come to meanwhile, or that is gone, stays as it is.
            if let Ok(Some(row)) = self.take_network(&owner, &name) {
                self.forget_network(row).await?;
                report.removed.push(name);
            }
        }
        Ok(report)
    }
}
