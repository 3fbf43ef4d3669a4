//! The keeper's network services, for all domains that want a network; started with the first of them.

pub(super) mod asleep;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use doppel_domain::{NetworkLink, ServiceGroups};
use doppel_net::{Attachment, EndpointSpec, FlowPage, Manager, Membership, Part, Rules, Traffic};

use super::Keeper;
use super::config::{KeeperConfig, records};
use super::protocol::{Fault, Message, Notification, Reply};
use super::serve::{gone, refused};

/// Lines of the service's log taken in a turn.
const LINES: usize = 64;

impl Keeper {
    /// Gives a domain its part in the network, or says why not.
    pub(super) fn attach(&mut self, wanted: EndpointSpec) -> Result<Attachment, Reply> {
        let manager = self
            .manager()
            .map_err(|e| refused(Fault::Host, format!("cannot start a network service: {e}")))?;
        manager.attach(wanted).map_err(|e| refused(fault(&e), e.to_string()))
    }

    /// Runs the network services; those of a keeper that has died are taken over.
    pub(super) fn manager(&mut self) -> io::Result<&Manager> {
        Ok(match &mut self.network {
            Some(manager) => manager,
            none => none.insert(Manager::kept_in(
                &shards(&self.config),
                ServiceGroups::of_host(),
                self.config.network_shards,
            )?),
        })
    }

    /// Takes the network services of a keeper that has died over, and hibernated domains that have a part in them.
    pub(super) fn adopt_network(&mut self) {
        if Manager::are_kept_in(&shards(&self.config))
            && let Err(error) = self.manager()
        {
            tracing::error!("the network services are not taken over: {error}");
        }
    }

    /// The part in the network of a domain that goes on.
    pub(super) fn resume_network(
        &mut self,
        part: Part,
        channel: (OwnedFd, OwnedFd),
        counted: Traffic,
    ) -> io::Result<Attachment> {
        self.manager()?.resume(part, channel, counted)
    }

    /// The service domain is told which process a domain is.
    pub(super) fn tell_process(&self, id: &str) {
        let Some(domain) = self.domains.get(id) else { return };
        let Some((network, live)) = domain.network.as_ref().zip(self.fleet.get(domain.key)) else { return };
        match live.process() {
            Ok(process) => network.runs(process),
            // It then may not wait for another keeper.
            Err(error) => tracing::warn!("domain {id}: {error}"),
        }
    }

    /// A domain's part in the network, if it runs or sleeps.
    fn part(&self, id: &str) -> Option<&Attachment> {
        let live = self.domains.get(id).filter(|d| d.exit.is_none()).and_then(|d| d.network.as_ref());
        live.or_else(|| self.sleepers.attachment(id))
    }

    /// Has others of its network find a domain by another name.
    pub(super) fn set_name(&self, id: &str, name: &str) -> Reply {
        match self.part(id) {
            Some(network) => {
                network.set_name(name);
                self.write_part(id);
                Reply::Done
            }
            None => gone(id),
        }
    }

    /// Writes down that a domain's part in the network is another.
    fn write_part(&self, id: &str) {
        match self.domains.get(id).filter(|d| d.exit.is_none()) {
            Some(domain) => self.write_note(domain.key),
            None => self.write_asleep(id),
        }
    }

    /// Puts a domain on other networks.
    pub(super) fn set_networks(&self, id: &str, networks: Vec<Membership>, internal: bool) -> Reply {
        match self.part(id).map(|network| network.set_networks(networks, internal)) {
            Some(Ok(())) => {
                self.write_part(id);
                Reply::Done
            }
            Some(Err(e)) => refused(fault(&e), e.to_string()),
            None => gone(id),
        }
    }

    /// Gives a domain's network other rules.
    pub(super) fn set_rules(&self, id: &str, rules: Rules) -> Reply {
        match self.part(id) {
            Some(network) => match network.set_rules(rules) {
                Ok(()) => {
                    self.write_part(id);
                    Reply::Done
                }
                Err(e) => refused(fault(&e), e.to_string()),
            },
            None => gone(id),
        }
    }

    /// A domain's flows from this place on.
    pub(super) fn flows(&self, id: &str, from: u32) -> Reply {
        match self.part(id).map(|network| network.flows(from)) {
            Some(Ok(page)) => Reply::Flows(page),
            Some(Err(e)) => refused(Fault::Host, e.to_string()),
            // Without a network there are none.
            None if self.domains.contains_key(id) => Reply::Flows(FlowPage::default()),
            None => gone(id),
        }
    }

    /// How the services are; none before the first domain that wants one.
    pub(super) fn services(&self) -> Reply {
        let network = self.network.as_ref().map(Manager::health).unwrap_or_default();
        Reply::AllServices { network, storage: self.storage.health() }
    }

    /// Replaces the network services by ones of another program; whoever comes first later has those of this one.
    pub(super) fn upgrade_services(&self, program: &Path, if_other: bool) -> Reply {
        let Some(network) = &self.network else { return self.services() };
        let done = match if_other.then(|| network.is_of(program)) {
            Some(Ok(true)) => Ok(()),
            Some(Err(error)) => Err(error),
            _ => network.upgrade(program),
        };
        match done {
            Ok(()) => self.services(),
            Err(error) => refused(Fault::Host, format!("the network services stay as they are: {error}")),
        }
    }

    /// Tells what the network service has written down.
    pub(super) fn tell_network_log(&mut self) {
        let Some(network) = &self.network else { return };
        // The rest is there at the next turn.
        let lines: Vec<_> = std::iter::from_fn(|| network.logs().next_line()).take(LINES).collect();
        for line in lines {
            let whose = |d: &&super::Domain| d.network.as_ref().is_some_and(|n| n.key() == line.key);
            let found = self.domains.values().find(whose).and_then(|d| self.keys.get(&d.key).cloned());
            // That of one that has ended meanwhile is of no interest.
            if let Some(id) = found {
                self.say(&Message::Notification(Notification::Firewall { id, line }));
            }
        }
    }
}

/// Where the network services are written down.
fn shards(config: &KeeperConfig) -> PathBuf {
    records(&config.runtime).join("network")
}

fn fault(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable | io::ErrorKind::PermissionDenied => {
            Fault::Port
        }
        io::ErrorKind::InvalidInput => Fault::Request,
        _ => Fault::Host,
    }
}

/// What the domain is given of it; the same one that it had if it wakes.
pub(super) fn link(a: &Attachment, same: bool) -> NetworkLink {
    let (ip4, ip6) = a.addresses();
    NetworkLink { memory: a.memory.clone(), doorbell: a.doorbell.clone(), ip4, ip6, same }
}
