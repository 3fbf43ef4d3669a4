//! `doppel network`: networks of the supervisor's domains.

mod flows;
pub mod port;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use doppel_api::{
    ConnectNetwork, CreateNetwork, DisconnectNetwork, Domain, NetworkPruneOptions, NetworkPruneReport,
    NetworkSubnet, RemoveNetwork, VirtualNetwork,
};
use doppel_client::{Client, Upload, query, segment};
use doppel_net::Subnet;
use serde_json::{Value, json};

use self::flows::FlowsArgs;
use super::create::labels;
use super::show::Printed;
use super::volumes::{InspectArgs, RemoveArgs, each, labels_wanted, takes};
use super::{Outcome, failed, shown, supervisor};
use crate::terminal::format::Format;
use crate::terminal::out::{self, say};
use crate::terminal::time;

/// Verbs about networks.
#[derive(Subcommand)]
pub enum NetworkCommand {
    /// Make a network.
    Create(CreateArgs),
    /// List networks.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show all that is known of networks, as JSON.
    Inspect(InspectArgs),
    /// Remove networks that no domain is on.
    #[command(visible_alias = "remove")]
    Rm(RemoveArgs),
    /// Remove all networks that no domain is on.
    Prune(PruneArgs),
    /// Put a domain on a network, whether it runs or not.
    Connect(ConnectArgs),
    /// Take a domain off a network: its connections over that end.
    Disconnect(DisconnectArgs),
    /// Show connections and flows of datagrams that domains have now.
    Flows(FlowsArgs),
}

/// Options of `doppel network create`.
#[derive(Args)]
pub struct CreateArgs {
    /// Key and value for your own use
    #[arg(long, value_name = "KEY[=VALUE]")]
    label: Vec<String>,
    /// Nothing goes out of it to the outside, or comes in from there
    #[arg(long)]
    internal: bool,
    /// What kind of network: there is bridge
    #[arg(short, long, value_name = "DRIVER", default_value = "bridge")]
    driver: String,
    /// A subnet, out of which its domains have their addresses: one of IPv4, one of IPv6, or both
    #[arg(long, value_name = "ADDRESS/BITS")]
    subnet: Vec<Subnet>,
    /// The host, as domains of the subnet see it; its first address if none is given
    #[arg(long, value_name = "ADDRESS")]
    gateway: Vec<IpAddr>,
    /// Part of the subnet, of which domains have theirs that ask for none
    #[arg(long, value_name = "ADDRESS/BITS")]
    ip_range: Vec<Subnet>,
    /// Every network has IPv6
    #[arg(long, hide = true)]
    ipv6: bool,
    #[command(flatten)]
    not: NotHere,
    /// Its name
    name: String,
}

/// Docker's options that are refused with a reason.
#[derive(Args)]
struct NotHere {
    #[arg(short, long, hide = true)]
    opt: Vec<String>,
}

impl NotHere {
    fn refuse(&self) -> Result<(), String> {
        if self.opt.is_empty() {
            return Ok(());
        }
        Err("--opt: a network has no options of a driver; leave it out".into())
    }
}

/// Options of `doppel network ls`.
#[derive(Args)]
pub struct ListArgs {
    /// Names only
    #[arg(short, long)]
    quiet: bool,
    /// Only some: name=TEXT, label=KEY[=VALUE], dangling=true|false
    #[arg(short, long, value_name = "FILTER")]
    filter: Vec<String>,
    #[command(flatten)]
    printed: Printed,
}

/// Options of `doppel network prune`.
#[derive(Args)]
pub struct PruneArgs {
    /// Only some: label=KEY[=VALUE]
    #[arg(long, value_name = "FILTER")]
    filter: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    force: bool,
}

/// Options of `doppel network connect`.
#[derive(Args)]
pub struct ConnectArgs {
    /// Another name by which domains of this network find it; several may share one
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Its IPv4 address there, out of the network's subnet
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<Ipv4Addr>,
    /// Its IPv6 address there
    #[arg(long, value_name = "ADDRESS")]
    ip6: Option<Ipv6Addr>,
    /// The network
    network: String,
    /// Name or id of the domain
    domain: String,
}

/// Options of `doppel network disconnect`.
#[derive(Args)]
pub struct DisconnectArgs {
    /// A domain that is not on it is no error
    #[arg(short, long)]
    force: bool,
    /// The network
    network: String,
    /// Name or id of the domain
    domain: String,
}

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

/// A network by the name that it has in the interface.
fn at(name: &str) -> String {
    let name = if matches!(name, "nat" | "bridge") { "default" } else { name };
    format!("/v1/networks/{}", segment(name))
}

fn wanted(args: &CreateArgs) -> Result<CreateNetwork, String> {
    if args.driver != "bridge" {
        let driver = &args.driver;
        return Err(format!(
            "--driver {driver}: there is bridge alone: domains reach each other, and by their rules the outside"
        ));
    }
    args.not.refuse()?;
    Ok(CreateNetwork {
        name: args.name.clone(),
        labels: labels(&args.label),
        internal: args.internal,
        subnets: subnets(args)?,
    })
}

/// Subnets, each with the gateway and the part that are inside of it.
fn subnets(args: &CreateArgs) -> Result<Vec<NetworkSubnet>, String> {
    let as_asked = |subnet: &Subnet| NetworkSubnet { subnet: subnet.to_string(), ..NetworkSubnet::default() };
    let mut all: Vec<NetworkSubnet> = args.subnet.iter().map(as_asked).collect();
    let place = |ip: IpAddr| args.subnet.iter().position(|subnet| subnet.has(ip));
    for gateway in &args.gateway {
        let i =
            place(*gateway).ok_or_else(|| format!("--gateway {gateway}: no --subnet has this address"))?;
        if all[i].gateway.replace(*gateway).is_some() {
            return Err(format!("--gateway {gateway}: the subnet has one already"));
        }
    }
    for range in &args.ip_range {
        let i = place(range.first())
            .ok_or_else(|| format!("--ip-range {range}: no --subnet has these addresses"))?;
        if all[i].ip_range.replace(range.to_string()).is_some() {
            return Err(format!("--ip-range {range}: the subnet has one already"));
        }
    }
    Ok(all)
}

/// Does what the verb says.
pub fn run(command: &NetworkCommand) -> Outcome {
    let client = supervisor()?;
    match command {
        NetworkCommand::Create(args) => {
            say!("{}", client.post::<VirtualNetwork>("/v1/networks", &wanted(args)?)?.name)?;
        }
        NetworkCommand::Ls(args) => list(&client, args)?,
        NetworkCommand::Inspect(args) => {
            return args.print(|name| Ok(client.json::<Value>("GET", &at(name), Upload::None)?));
        }
        NetworkCommand::Rm(args) => {
            return each(&args.names, |name| {
                let how = RemoveNetwork { force: args.force };
                client.done("DELETE", &query(&at(name), &how), Upload::None)?;
                Ok(say!("{name}")?)
            });
        }
        NetworkCommand::Prune(args) => prune(&client, args)?,
        NetworkCommand::Flows(args) => return flows::run(args),
        NetworkCommand::Connect(args) => {
            let (domain, aliases) = (args.domain.clone(), args.alias.clone());
            let what = ConnectNetwork { domain, aliases, ip4: args.ip, ip6: args.ip6 };
            return moved(client.post(&format!("{}/connect", at(&args.network)), &what));
        }
        NetworkCommand::Disconnect(args) => {
            let what = DisconnectNetwork { domain: args.domain.clone(), force: args.force };
            return moved(client.post(&format!("{}/disconnect", at(&args.network)), &what));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Of a domain that came to a network, or left it.
fn moved(answer: doppel_client::Result<Domain>) -> Outcome {
    answer.map_or_else(|e| failed(&e), |_| Ok(ExitCode::SUCCESS))
}

fn list(client: &Client, args: &ListArgs) -> Answer<()> {
    let format = args.printed.get()?;
    let mut rows = Vec::new();
    for network in client.json::<Vec<VirtualNetwork>>("GET", "/v1/networks", Upload::None)? {
        let mut wanted = true;
        for filter in &args.filter {
            wanted &= takes(filter, &network.name, &network.labels, network.used_by.is_empty())?;
        }
        if wanted && args.quiet {
            say!("{}", network.name)?;
        } else if wanted {
            rows.push(row(&network, &format)?);
        }
    }
    if !args.quiet {
        let columns = [
            ("NETWORK NAME", "Name"),
            ("CREATED", "CreatedSince"),
            ("SUBNETS", "Subnets"),
            ("INTERNAL", "Internal"),
            ("DOMAINS", "Domains"),
        ];
        format.print(&rows, &columns)?;
    }
    Ok(())
}

fn row(network: &VirtualNetwork, format: &Format) -> Answer<Value> {
    if matches!(format, Format::Json) {
        return Ok(serde_json::to_value(network)?);
    }
    let labels: Vec<String> = network.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let created = network.created_at.as_deref();
    Ok(json!({
        "Name": network.name,
        "Driver": "bridge",
        "Scope": "local",
        "CreatedAt": created.unwrap_or_default(),
        "CreatedSince": created.map(time::ago).unwrap_or_default(),
        "Internal": network.internal.to_string(),
        "Transient": network.transient.to_string(),
        "Subnets": network.subnets.iter().map(|one| one.subnet.as_str()).collect::<Vec<_>>().join(", "),
        "Labels": shown(&labels.join(",")),
        "Domains": network.used_by.len().to_string(),
    }))
}

fn prune(client: &Client, args: &PruneArgs) -> Answer<()> {
    let label = labels_wanted(&args.filter)?;
    if !args.force && !out::confirmed("This removes all networks that no domain is on.")? {
        return Ok(());
    }
    let to = query("/v1/networks/prune", &NetworkPruneOptions { label });
    for name in client.json::<NetworkPruneReport>("POST", &to, Upload::None)?.removed {
        say!("{name}")?;
    }
    Ok(())
}
