//! `doppel port`: where ports of a domain are published.

use std::process::ExitCode;

use clap::Args;
use doppel_api::{Domain, PortMapping, Protocol};
use doppel_client::{Upload, segment};

use crate::supervised::{Outcome, supervisor};
use crate::terminal::out::say;

/// Options of `doppel port`.
#[derive(Args)]
pub struct PortArgs {
    /// Name or id
    domain: String,
    /// Only this port of the domain's: `PORT[/udp]`
    port: Option<String>,
}

fn protocol(mapping: &PortMapping) -> &'static str {
    match mapping.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    }
}

/// The host's end; none if the domain does not run, and any would do.
fn host(mapping: &PortMapping) -> Option<String> {
    let address = mapping.host_address?;
    Some(std::net::SocketAddr::new(address, mapping.host_port?).to_string())
}

/// Prints them.
pub fn run(args: &PortArgs) -> Outcome {
    let domain: Domain =
        supervisor()?.json("GET", &format!("/v1/domains/{}", segment(&args.domain)), Upload::None)?;
    let published = domain.network.map(|network| network.ports).unwrap_or_default();
    let Some(asked) = &args.port else {
        for mapping in &published {
            if let Some(host) = host(mapping) {
                say!("{}/{} -> {host}", mapping.port, protocol(mapping))?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    };
    let (port, of) = asked.split_once('/').unwrap_or((asked, "tcp"));
    let port: u16 =
        port.parse().map_err(|_| format!("{asked:?} is no port; give PORT, with /udp for UDP"))?;
    let found: Vec<String> =
        published.iter().filter(|m| m.port == port && protocol(m) == of).filter_map(host).collect();
    if found.is_empty() {
        return Err(format!("port {port}/{of} of domain {} is not published", domain.name).into());
    }
    for host in found {
        say!("{host}")?;
    }
    Ok(ExitCode::SUCCESS)
}
