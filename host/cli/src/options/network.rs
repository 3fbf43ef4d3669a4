//! `--network`, `--publish`, rules and `--dns`: for the supervisor, or for a network service of this command's own.

use std::error::Error;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use doppel_api::{self as api, NetworkKind, NetworkMembership, PortMapping};
use doppel_domain::{NetworkLink, ServiceGroups};
use doppel_net::{Attachment, EndpointSpec, Manager, Port, PortRange, Rules, Transport};
use doppel_spec::DEFAULT_NETWORK;
use rustix::event::{PollFd, PollFlags};

use crate::options::rates::RateArgs;
use crate::options::rules::RuleArgs;
use crate::terminal::out::tell;

/// What one `--network` says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// Only its own loopback.
    None,
    /// An address of its own, on this network; outbound connections from the host's.
    Nat(NetworkMembership),
}

/// The network of domains that name none.
fn default() -> NetworkMembership {
    NetworkMembership { name: DEFAULT_NETWORK.into(), ..NetworkMembership::default() }
}

fn address<T: FromStr>(part: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{part}: that is no address of this kind"))
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut given = NetworkMembership::default();
        let mut name = text;
        // Docker's other way to say it.
        if text.contains('=') {
            name = "";
            for part in text.split(',') {
                match part.split_once('=') {
                    Some(("name", given)) => name = given,
                    Some(("alias", alias)) => {
                        api::validate::name("--network alias=", alias).map_err(|p| p.detail)?;
                        given.aliases.push(alias.to_owned());
                    }
                    Some(("ip", ip)) => given.ip4 = Some(address(part, ip)?),
                    Some(("ip6", ip)) => given.ip6 = Some(address(part, ip)?),
                    _ => {
                        let text = "there are name=NETWORK, alias=NAME, ip=ADDRESS and ip6=ADDRESS";
                        return Err(format!("{part:?}: {text}"));
                    }
                }
            }
            if name.is_empty() {
                return Err("name=NETWORK is missing".into());
            }
        }
        match name {
            "none" if given == NetworkMembership::default() => Ok(Self::None),
            // What Docker has by default, as near as it is here.
            "nat" | "bridge" | "default" => {
                Ok(Self::Nat(NetworkMembership { name: DEFAULT_NETWORK.into(), ..given }))
            }
            name => {
                api::validate::network_name("--network", name).map_err(|p| p.detail)?;
                Ok(Self::Nat(NetworkMembership { name: name.to_owned(), ..given }))
            }
        }
    }
}

/// Options about the network.
#[derive(Args, Debug, Default)]
pub struct NetworkArgs {
    /// Network: none (only its own loopback, the default), nat (an address of its own, and by the rules the host's network;
    /// what the options below ask for), or the same on a network of this name, whose domains find each other by name; may be
    /// given several times, and as `name=NETWORK,alias=NAME,ip=ADDRESS,ip6=ADDRESS`
    #[arg(long, visible_alias = "net", value_name = "NETWORK")]
    network: Vec<Wanted>,
    /// Another name by which domains of its networks find it; several may share one
    #[arg(long, visible_alias = "net-alias", value_name = "NAME")]
    network_alias: Vec<String>,
    /// Its IPv4 address on the first of its networks, which has a subnet of its own (`network create --subnet`)
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<Ipv4Addr>,
    /// Its IPv6 address there
    #[arg(long, value_name = "ADDRESS")]
    ip6: Option<Ipv6Addr>,
    /// Publish a port of the domain on the host: `[[HOST_ADDRESS:][HOST_PORT]:]PORT[/udp]`; any free port of the host if
    /// none is given; `FIRST-LAST` for several, and as many of the host
    #[arg(short, long, value_name = "PORTS")]
    publish: Vec<PortRange>,
    /// Publish all ports that the image exposes, and those of --expose, at any free ports of the host
    #[arg(short = 'P', long)]
    publish_all: bool,
    /// A port for --publish-all that the image does not expose: `PORT[/udp]`, or `FIRST-LAST`; domains of its networks reach all
    /// ports in any case
    #[arg(long, value_name = "PORTS")]
    expose: Vec<PortRange>,
    #[command(flatten)]
    rules: RuleArgs,
    #[command(flatten)]
    rate: RateArgs,
    /// Who answers the domain's questions about names, instead of the host's name server: `ADDRESS[:PORT]`
    #[arg(long, value_name = "SERVER", value_parser = checked_resolver)]
    dns: Option<String>,
}

fn checked_resolver(text: &str) -> Result<String, String> {
    doppel_net::resolver(text).map(|_| text.to_owned())
}

impl NetworkArgs {
    fn published(&self) -> impl Iterator<Item = &Port> {
        let exposed = self.expose.iter().filter(|_| self.publish_all);
        self.publish.iter().chain(exposed).flat_map(|range| &range.0)
    }

    /// The networks that the domain is to be on, if it is to have any.
    fn networks(&self) -> Result<Option<Vec<NetworkMembership>>, String> {
        if let Some(port) = self.expose.iter().flat_map(|range| &range.0).find(|port| port.host.port() != 0) {
            return Err(format!(
                "--expose {}: it takes ports of the domain alone; -p publishes one",
                port.port
            ));
        }
        let more = !self.publish.is_empty()
            || self.publish_all
            || !self.rules.is_empty()
            || !self.rate.is_empty()
            || !self.network_alias.is_empty()
            || self.dns.is_some()
            || self.ip.is_some()
            || self.ip6.is_some();
        let none = self.network.contains(&Wanted::None);
        if none && more {
            return Err(
                "--publish, --publish-all, --dns, --network-alias, --ip, rates and rules need --network nat"
                    .into(),
            );
        }
        if none && self.network.len() > 1 {
            return Err("--network none goes with no other network".into());
        }
        let named = self.network.iter().filter_map(|wanted| match wanted {
            Wanted::None => None,
            Wanted::Nat(network) => Some(network.clone()),
        });
        let mut all: Vec<_> = named.collect();
        if all.is_empty() && more {
            all.push(default());
        }
        if let Some(first) = all.first_mut() {
            first.ip4 = first.ip4.or(self.ip);
            first.ip6 = first.ip6.or(self.ip6);
        }
        Ok(Some(all).filter(|all| !all.is_empty()))
    }

    /// Refuses a network for several domains of this command's own.
    pub fn none_alone(&self) -> Result<(), String> {
        match self.networks()? {
            None => Ok(()),
            Some(_) => Err("a network for several clones needs the supervisor: give --detach".into()),
        }
    }

    /// What the supervisor is asked for.
    pub fn supervised(&self) -> Result<api::Network, String> {
        let mapping = |p: &Port| PortMapping {
            port: p.port,
            host_port: Some(p.host.port()).filter(|p| *p != 0),
            host_address: Some(p.host.ip()),
            protocol: match p.protocol {
                Transport::Tcp => api::Protocol::Tcp,
                Transport::Udp => api::Protocol::Udp,
            },
        };
        let all = self.networks()?;
        let kind = if all.is_some() { NetworkKind::Nat } else { NetworkKind::None };
        let (name, networks) = match all.as_deref() {
            // As one that is alone has always been asked for.
            Some([one]) if *one == (NetworkMembership { name: one.name.clone(), ..Default::default() }) => {
                (Some(one.name.clone()), None)
            }
            _ => (None, all),
        };
        Ok(api::Network {
            kind,
            name: name.filter(|name| name != DEFAULT_NETWORK),
            networks,
            aliases: self.network_alias.clone(),
            ports: self.published().map(mapping).collect(),
            publish_all: self.publish_all,
            rules: self.rules.all()?,
            allow: Vec::new(),
            rate: self.rate.all(),
            weight: self.rate.weight(),
            guarantee: self.rate.guarantee().filter(|rate| *rate > 0),
            dns: self.dns.clone(),
        })
    }

    /// Starts a network service and attaches the domain, if it is to have a network. Says where its ports are.
    /// `memory`: the domain's limit.
    pub fn attach(&self, memory: Option<u64>) -> Result<Option<Network>, Box<dyn Error>> {
        let Some(networks) = self.networks()? else { return Ok(None) };
        if networks.iter().any(|one| one.ip4.is_some() || one.ip6.is_some()) {
            let why = "--ip: an address can be asked for on a network with a subnet, which the supervisor has: use doppeld";
            return Err(why.into());
        }
        if self.publish_all {
            let why = "--publish-all: what the image exposes is known to the supervisor; use doppeld, or name ports with -p";
            return Err(why.into());
        }
        let hosts = crate::options::defaults::network()?;
        let manager = Manager::of_this_program(ServiceGroups::of_host(), 1)?;
        let attachment = manager.attach(EndpointSpec {
            // Nobody else is on any, whatever they are called.
            name: String::new(),
            rules: hosts.before(Rules { rates: self.rate.of_service(), ..self.rules.of_service()? })?,
            published: self.published().copied().collect(),
            resolver: self.dns.as_deref().map(doppel_net::resolver).transpose()?,
            quota: hosts.of_memory(memory),
            ..EndpointSpec::default()
        })?;
        for (asked, port) in self.published().zip(&attachment.published) {
            if asked.host.port() == 0 {
                tell!("doppel: port {} is published at {}", port.port, port.host);
            }
        }
        print_log(&manager)?;
        Ok(Some(Network { attachment, _manager: manager }))
    }
}

/// Prints what rules write down, for as long as this command runs.
fn print_log(manager: &Manager) -> std::io::Result<()> {
    let logs = manager.logs().clone();
    let print = move || {
        let mut fds = [PollFd::new(&logs, PollFlags::IN)];
        while rustix::event::poll(&mut fds, None).is_ok() && fds[0].revents().contains(PollFlags::IN) {
            while let Some(line) = logs.next_line() {
                let verb = if line.allowed { "allowed" } else { "denied" };
                tell!(
                    "doppel: network: {verb} {:?} {:?} {} port {}",
                    line.direction,
                    line.protocol,
                    line.peer,
                    line.port
                );
            }
        }
    };
    std::thread::Builder::new().name("network-log".into()).spawn(print)?;
    Ok(())
}

/// A network service with one domain.
pub struct Network {
    attachment: Attachment,
    _manager: Manager,
}

impl Network {
    /// What the domain is given of it.
    pub fn link(&self) -> NetworkLink {
        let a = &self.attachment;
        let (ip4, ip6) = a.addresses();
        NetworkLink { memory: a.memory.clone(), doorbell: a.doorbell.clone(), ip4, ip6, same: false }
    }
}

/// The service domain's process.
pub fn service(polls: bool) -> Result<ExitCode, Box<dyn Error>> {
    // It ends with this command.
    doppel_net::serve(std::io::stdin().as_fd(), polls, false)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(networks: &[&str]) -> Result<api::Network, String> {
        let network = networks.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        NetworkArgs { network, ..NetworkArgs::default() }.supervised()
    }

    #[test]
    fn networks_as_docker_writes_them() {
        let one = asked(&["back"]).unwrap();
        assert_eq!((one.name.as_deref(), &one.networks), (Some("back"), &None));
        for same in ["nat", "bridge", "default"] {
            let plain = asked(&[same]).unwrap();
            assert_eq!((plain.kind, plain.name, plain.networks), (NetworkKind::Nat, None, None));
        }
        let several = asked(&["nat", "name=back,alias=db,alias=store"]).unwrap();
        let on: Vec<_> =
            several.networks.iter().flatten().map(|n| (n.name.as_str(), n.aliases.join(" "))).collect();
        assert_eq!((several.name, on), (None, vec![("default", String::new()), ("back", "db store".into())]));
        assert_eq!(asked(&["none"]).unwrap().kind, NetworkKind::None);
        for (wrong, why) in [
            (&["none", "back"][..], "no other"),
            (&["alias=db"], "name=NETWORK"),
            (&["name=back,ip=10.88.0"], "no address"),
            (&["name=back,ip6=10.88.0.9"], "no address"),
            (&["name=back,driver=x"], "alias=NAME"),
            (&["name=back,alias=a b"], "alias"),
            (&["host"], "-p publishes"),
        ] {
            let said = asked(wrong).unwrap_err();
            assert!(said.contains(why), "{wrong:?}: {said}");
        }
    }
}
