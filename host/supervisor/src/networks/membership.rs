//! Domains come to networks and leave them.

use std::sync::Arc;

use doppel_api::{
    self as api, Code, DomainState, EventKind, NetworkKind, NetworkMembership, Problem, validate,
};
use doppel_net::Membership;
use doppel_spec::MOST_NETWORKS;

use crate::core::Core;
use crate::domains::spec::wrong;
use crate::domains::{Entry, Row, is_live, network};
use crate::keeper::protocol::KeeperCommand;
use crate::locked;
use crate::networks::leases::Addresses;
use crate::networks::objects::all_internal;

fn refused(text: String) -> Problem {
    Problem::new(Code::WrongState, text)
}

/// These networks in place of those that it had, which stay with the names that it had there.
fn with(old: &api::Network, networks: Vec<NetworkMembership>) -> api::Network {
    let kind = NetworkKind::Nat;
    api::Network { kind, name: None, aliases: Vec::new(), networks: Some(networks), ..old.clone() }
}

/// What a domain is to have that comes to a network.
fn joined(row: &Row, name: &str, wanted: api::ConnectNetwork) -> Result<api::Network, Problem> {
    let old = &row.config.network;
    let asleep = row.state == DomainState::Hibernated;
    if old.kind == NetworkKind::None && (is_live(row.state) || asleep) {
        let text = "domain {} runs without a network, which it cannot be given then; stop it, connect it, and start it again";
        return Err(refused(text.replacen("{}", &row.name, 1)));
    }
    let mut all = old.memberships();
    if all.iter().any(|one| one.name == name) {
        return Err(refused(format!("domain {} is on network {name:?} already", row.name)));
    }
    if all.len() >= MOST_NETWORKS {
        let text = format!(
            "domain {} is on {MOST_NETWORKS} networks, the most there can be; disconnect it from one",
            row.name
        );
        return Err(refused(text));
    }
    let api::ConnectNetwork { domain: _, aliases, ip4, ip6 } = wanted;
    all.push(NetworkMembership { name: name.to_owned(), aliases, ip4, ip6 });
    let network = with(old, all);
    network.check_networks().map_err(|(field, why)| wrong(format!("{field}: {why}")))?;
    Ok(network)
}

/// What a domain is to have that leaves a network; none if it is not on it.
fn left(row: &Row, name: &str) -> Option<api::Network> {
    let old = &row.config.network;
    let mut all = old.memberships();
    let before = all.len();
    all.retain(|one| one.name != name);
    (all.len() < before).then(|| with(old, all))
}

impl Core {
    /// Whether a domain's networks are all internal; that of who is on none is as good.
    pub(crate) fn is_internal(&self, owner: &str, network: &api::Network) -> bool {
        let all = network.memberships();
        all_internal(&locked(&self.networks), owner, all.iter().map(|one| one.name.as_str()))
    }

    /// Addresses of a domain on these networks, where it had those; they are its own from now on.
    pub(crate) fn lease(
        &self,
        owner: &str,
        id: &str,
        network: &api::Network,
        had: &Addresses,
    ) -> Result<Addresses, Problem> {
        locked(&self.networks).lease(owner, id, &network.memberships(), had)
    }

    /// Gives up the addresses of a domain that is no more.
    pub(crate) fn release_addresses(&self, entry: &Entry) {
        let row = entry.row();
        locked(&self.networks).leases.release(&row.owner, &row.id);
    }

    /// Notes which addresses the domains have that there are.
    pub(crate) fn settle_addresses(&self) {
        for entry in self.all() {
            let row = entry.row();
            locked(&self.networks).leases.note(&row.owner, &row.id, &row.addresses);
        }
    }

    /// These networks, with the addresses that a domain has there.
    pub(crate) fn placed(&self, entry: &Entry, network: &api::Network) -> Vec<Membership> {
        let row = entry.row();
        locked(&self.networks).placed(&row.owner, network::memberships(network), &row.addresses)
    }

    /// Refuses published ports of a new domain that nobody could call.
    pub(crate) fn check_published(&self, owner: &str, network: &api::Network) -> Result<(), Problem> {
        if network.ports.is_empty() || !self.is_internal(owner, network) {
            return Ok(());
        }
        let text = "network.ports: nobody outside reaches a domain whose networks are all internal; publish no ports, or name a \
                    network beside that is not internal";
        Err(wrong(text))
    }

    pub async fn network_connect(
        self: Arc<Self>,
        entry: Arc<Entry>,
        name: String,
        wanted: api::ConnectNetwork,
    ) -> Result<api::Domain, Problem> {
        validate::network_or_default("name", &name)?;
        let name = name.to_ascii_lowercase();
        let _turn = entry.turn.lock().await;
        self.check_there(&entry)?;
        let to = joined(&locked(&entry.row), &name, wanted)?;
        self.change_networks(&entry, to, ("connected", name)).await
    }

    pub async fn network_disconnect(
        self: Arc<Self>,
        entry: Arc<Entry>,
        name: String,
        force: bool,
    ) -> Result<api::Domain, Problem> {
        let name = name.to_ascii_lowercase();
        let _turn = entry.turn.lock().await;
        self.check_there(&entry)?;
        let to = left(&locked(&entry.row), &name);
        match to {
            Some(to) => self.change_networks(&entry, to, ("disconnected", name)).await,
            None if force => Ok(entry.describe(&self.volumes)),
            None => Err(refused(format!("domain {} is not on network {name:?}", entry.name()))),
        }
    }

    /// Puts a domain on other networks; whoever calls has its turn.
    async fn change_networks(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        to: api::Network,
        what: (&'static str, String),
    ) -> Result<api::Domain, Problem> {
        let old = entry.row();
        // Before it is asked what its networks are: who makes one internal meanwhile finds the domain on it.
        let addresses = self.lease(&old.owner, &entry.id, &to, &old.addresses)?;
        {
            let mut row = locked(&entry.row);
            (row.config.network, row.addresses) = (to.clone(), addresses);
        }
        // One that is hibernated may still be called.
        let reached = is_live(old.state) || old.state == DomainState::Hibernated;
        let mut done = Ok(());
        if reached {
            done = self.reach(entry, &old, &to).await;
        }
        if done.is_ok() {
            done = self.save(entry).await;
            if done.is_err()
                && reached
                && let Err(more) = self.reach(entry, &old, &old.config.network).await
            {
                tracing::warn!(domain = entry.id, "its networks are others than were written down: {more}");
            }
        }
        if let Err(problem) = done {
            if let Err(more) = self.lease(&old.owner, &entry.id, &old.config.network, &old.addresses) {
                tracing::warn!(domain = entry.id, "an address that it had is another domain's: {more}");
            }
            let mut row = locked(&entry.row);
            (row.config.network, row.addresses) = (old.config.network, old.addresses);
            return Err(problem);
        }
        if let Some(attached) = &mut locked(&entry.live).network {
            attached.networks = Some(to.memberships().into_iter().map(|one| one.name).collect());
        }
        self.event(EventKind::Update, entry, &[what]);
        Ok(entry.describe(&self.volumes))
    }

    /// Has the keeper of a domain that runs or sleeps put it on other networks.
    async fn reach(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        row: &Row,
        to: &api::Network,
    ) -> Result<(), Problem> {
        let older = locked(&entry.live).network.as_ref().is_some_and(|attached| attached.networks.is_none());
        if older {
            let text = "its keeper is of an older version, which knows of one network a domain; `doppel upgrade` first";
            return Err(Problem::new(Code::Unsupported, text));
        }
        let place = |network| {
            self.keepers.change_networks(row.keeper, &entry.id, &row.owner, &network::shared(network))
        };
        place(to)?;
        let (networks, internal) = (self.placed(entry, to), self.is_internal(&row.owner, to));
        let ask = KeeperCommand::Networks { id: entry.id.clone(), networks, internal };
        let done = self.ask_unless_gone(entry, ask).await;
        if done.is_err() {
            // Where it was it may be.
            let _ = place(&row.config.network);
        }
        done
    }
}
