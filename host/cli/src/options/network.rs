//! `--network`, `--publish`, rules and `--dns`: for the supervisor, or for a network service of this command's own.

use std::error::Error;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use doppel_api::{self as api, NetworkKind, PortMapping};
use doppel_domain::{NetworkLink, ServiceGroups};
use doppel_net::{Attachment, EndpointSpec, Manager, Port, PortRange, Rules, Transport};
use rustix::event::{PollFd, PollFlags};

use crate::options::rates::RateArgs;
use crate::options::rules::RuleArgs;
use crate::terminal::out::tell;

/// What `--network` says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Only its own loopback.
    None,
    /// An address of its own, on the network of this name; outbound connections from the host's.
    Nat(Option<String>),
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            // What Docker has by default, as near as it is here.
            "nat" | "bridge" | "default" => Ok(Self::Nat(None)),
            name => {
                api::validate::network_name("--network", name).map_err(|p| p.detail)?;
                Ok(Self::Nat(Some(name.to_owned())))
            }
        }
    }
}

/// Options about the network.
#[derive(Args, Debug, Default)]
pub struct NetworkArgs {
    /// Network: none (only its own loopback, the default), nat (an address of its own, and by the rules the host's network;
    /// what the options below ask for), or the same on a network of this name, whose domains find each other by name
    #[arg(long, visible_alias = "net", value_name = "NETWORK")]
    network: Option<Kind>,
    /// Another name by which domains of its network find it; several may share one
    #[arg(long, visible_alias = "net-alias", value_name = "NAME")]
    network_alias: Vec<String>,
    /// Publish a port of the domain on the host: `[[HOST_ADDRESS:][HOST_PORT]:]PORT[/udp]`; any free port of the host if
    /// none is given; `FIRST-LAST` for several, and as many of the host
    #[arg(short, long, value_name = "PORTS")]
    publish: Vec<PortRange>,
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
        self.publish.iter().flat_map(|range| &range.0)
    }

    /// Whether the domain is to have a network.
    fn kind(&self) -> Result<Kind, String> {
        let more = !self.publish.is_empty()
            || !self.rules.is_empty()
            || !self.rate.is_empty()
            || !self.network_alias.is_empty()
            || self.dns.is_some();
        match &self.network {
            Some(Kind::None) if more => {
                Err("--publish, --dns, --network-alias, rates and rules need --network nat".into())
            }
            Some(kind) => Ok(kind.clone()),
            None if more => Ok(Kind::Nat(None)),
            None => Ok(Kind::None),
        }
    }

    /// Refuses a network for several domains of this command's own.
    pub fn none_alone(&self) -> Result<(), String> {
        match self.kind()? {
            Kind::None => Ok(()),
            Kind::Nat(_) => Err("a network for several clones needs the supervisor: give --detach".into()),
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
        let (kind, name) = match self.kind()? {
            Kind::None => (NetworkKind::None, None),
            Kind::Nat(name) => (NetworkKind::Nat, name),
        };
        Ok(api::Network {
            kind,
            name,
            aliases: self.network_alias.clone(),
            ports: self.published().map(mapping).collect(),
            rules: self.rules.all()?,
            allow: Vec::new(),
            rate: self.rate.all(),
            dns: self.dns.clone(),
        })
    }

    /// Starts a network service and attaches the domain, if it is to have a network. Says where its ports are.
    /// `memory`: the domain's limit.
    pub fn attach(&self, memory: Option<u64>) -> Result<Option<Network>, Box<dyn Error>> {
        if self.kind()? == Kind::None {
            return Ok(None);
        }
        let manager = Manager::of_this_program(ServiceGroups::of_host(), 1)?;
        let attachment = manager.attach(EndpointSpec {
            // Nobody else is on it.
            network: String::new(),
            name: String::new(),
            aliases: Vec::new(),
            rules: Rules { rates: self.rate.of_service(), ..self.rules.of_service()? },
            published: self.published().copied().collect(),
            resolver: self.dns.as_deref().map(doppel_net::resolver).transpose()?,
            quota: crate::options::defaults::network()?.of_memory(memory),
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
        NetworkLink {
            memory: a.memory.clone(),
            doorbell: a.doorbell.clone(),
            ip4: a.ip4,
            ip6: a.ip6,
            same: false,
        }
    }
}

/// The service domain's process.
pub fn service(polls: bool) -> Result<ExitCode, Box<dyn Error>> {
    // It ends with this command.
    doppel_net::serve(std::io::stdin().as_fd(), polls, false)?;
    Ok(ExitCode::SUCCESS)
}
