//! Verbs that show: ps inspect info version.

use std::process::ExitCode;

use clap::Args;
use doppel_api::{
    Code, Domain, DomainState, HealthState, HibernationReason, ListOptions, PortMapping, Protocol,
};
use doppel_client::{Client, Upload};
use serde_json::{Value, json};

use super::{Outcome, failed, shown, supervisor};
use crate::standalone::image::bytes;
use crate::terminal::format::Format;
use crate::terminal::out::{say, tell};
use crate::terminal::time;

/// Digits of an id that are shown.
const SHORT: usize = 12;
/// Characters of a command that are shown.
const COMMAND: usize = 20;

/// How it is printed.
#[derive(Args)]
pub struct Printed {
    /// One line of JSON each
    #[arg(long)]
    json: bool,
    /// A template as {{.Names}}, or json, or table TEMPLATE
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "json")]
    format: Option<String>,
}

impl Printed {
    /// The format it asks for.
    pub fn get(&self) -> Result<Format, String> {
        Format::new(self.json, self.format.as_deref())
    }
}

/// Options of `doppel ps`.
#[derive(Args)]
pub struct PsArgs {
    /// Those that do not run too
    #[arg(short, long)]
    all: bool,
    /// Ids only
    #[arg(short, long)]
    quiet: bool,
    /// Whole ids and commands
    #[arg(long)]
    no_trunc: bool,
    /// Only some: id=, name=TEXT, status=STATE, label=KEY[=VALUE], ancestor=IMAGE, exited=CODE, health=STATE,
    /// volume=VOLUME (its name, or a path in the domain or on the host)
    #[arg(short, long, value_name = "FILTER")]
    filter: Vec<String>,
    /// The N that were made last, whether they run or not
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<usize>,
    /// The one that was made last
    #[arg(short, long, conflicts_with = "last")]
    latest: bool,
    #[command(flatten)]
    printed: Printed,
}

/// Lists domains.
pub fn ps(args: &PsArgs) -> Outcome {
    let limit = args.last.or(args.latest.then_some(1));
    let mut which = ListOptions { all: args.all || limit.is_some(), ..ListOptions::default() };
    let mut picks = Vec::new();
    for filter in &args.filter {
        match filter.split_once('=') {
            Some(("name", text)) => which.name = Some(text.into()),
            Some(("status" | "state", state)) => {
                which.state = Some(state.into());
                which.all = true;
            }
            Some(("label", label)) => {
                let more = which.label.map(|l| format!("{l},")).unwrap_or_default();
                which.label = Some(more + label);
            }
            Some((what, value)) => {
                which.all |= what == "exited";
                picks.push(Pick::new(what, value).ok_or_else(|| bad_filter(filter))?);
            }
            None => return Err(bad_filter(filter).into()),
        }
    }
    // The supervisor counts what it lists, not what is picked here.
    which.limit = limit.filter(|_| picks.is_empty());
    let mut domains = match supervisor()?.domains(&which) {
        Ok(domains) => domains,
        Err(e) => return failed(&e),
    };
    domains.retain(|d| picks.iter().all(|p| p.takes(d)));
    domains.truncate(limit.unwrap_or(usize::MAX));
    if args.quiet {
        for domain in &domains {
            say!("{}", short(&domain.id, args.no_trunc))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Value> = domains.iter().map(|d| row(d, args.no_trunc)).collect();
    args.printed.get()?.print(
        &rows,
        &[
            ("DOMAIN ID", "ID"),
            ("IMAGE", "Image"),
            ("COMMAND", "Command"),
            ("CREATED", "RunningFor"),
            ("STATUS", "Status"),
            ("PORTS", "Ports"),
            ("NAMES", "Names"),
        ],
    )?;
    Ok(ExitCode::SUCCESS)
}

fn bad_filter(filter: &str) -> String {
    format!(
        "--filter {filter:?}: there are id=, name=, status=, label=, ancestor=, exited=CODE, volume= and health="
    )
}

/// A filter that the supervisor does not know.
enum Pick {
    Id(String),
    Image(String),
    Exited(u8),
    Health(String),
    Volume(String),
}

impl Pick {
    fn new(what: &str, value: &str) -> Option<Self> {
        Some(match what {
            "id" => Self::Id(value.into()),
            "ancestor" => Self::Image(value.into()),
            "volume" => Self::Volume(value.into()),
            "exited" => Self::Exited(value.parse().ok()?),
            "health" if ["none", "starting", "healthy", "unhealthy"].contains(&value) => {
                Self::Health(value.into())
            }
            _ => return None,
        })
    }

    fn takes(&self, domain: &Domain) -> bool {
        match self {
            Self::Id(start) => domain.id.starts_with(start),
            Self::Image(name) => domain.config.image == *name,
            Self::Volume(what) => domain
                .config
                .files
                .volumes()
                .any(|mount| mount.source.as_deref() == Some(what.as_str()) || mount.target == *what),
            Self::Exited(code) => domain.exit.as_ref().is_some_and(|e| e.exit_code == *code),
            Self::Health(state) => {
                let is = match domain.health {
                    None => "none",
                    Some(HealthState::Starting) => "starting",
                    Some(HealthState::Healthy) => "healthy",
                    Some(HealthState::Unhealthy) => "unhealthy",
                };
                is == state
            }
        }
    }
}

fn short(id: &str, whole: bool) -> &str {
    if whole { id } else { id.get(..SHORT).unwrap_or(id) }
}

/// A domain as Docker's `ps` has it.
fn row(domain: &Domain, whole: bool) -> Value {
    let config = &domain.config;
    let command = domain.command.join(" ");
    let command = match &domain.cloned_from {
        Some(frozen) if command.is_empty() => format!("clone of {frozen}"),
        _ => command,
    };
    let command = match command.char_indices().nth(COMMAND) {
        Some((at, _)) if !whole => format!("{}…", &command[..at]),
        _ => command,
    };
    let labels: Vec<String> = config.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    json!({
        "ID": short(&domain.id, whole),
        "Names": domain.name,
        "Image": shown(&config.image),
        "Command": format!("\"{}\"", shown(&command)),
        "CreatedAt": domain.created_at,
        "RunningFor": time::ago(&domain.created_at),
        "Status": status(domain),
        "State": domain.state,
        "Labels": shown(&labels.join(",")),
        "Health": domain.health,
        "Restarts": domain.restarts,
        "Pid": domain.pid,
        "ExitCode": domain.exit.as_ref().map(|e| e.exit_code),
        "Ports": domain.network.as_ref().map(|n| ports(&n.ports)).unwrap_or_default(),
        "Networks": domain.network.as_ref().map(|n| n.ip4.to_string()),
    })
}

/// Docker's words for published ports.
fn ports(mappings: &[PortMapping]) -> String {
    let one = |m: &PortMapping| {
        let protocol = match m.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        match (m.host_address, m.host_port) {
            (Some(address), Some(port)) => {
                format!("{}->{}/{protocol}", std::net::SocketAddr::new(address, port), m.port)
            }
            _ => format!("{}/{protocol}", m.port),
        }
    };
    mappings.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Docker's words for it.
fn status(domain: &Domain) -> String {
    let since = |at: Option<&String>| {
        at.and_then(|at| time::parse(at))
            .map_or_else(String::new, |t| format!(" {}", time::span(time::now() - t)))
    };
    let ended = || {
        let exit = domain.exit.as_ref();
        let at = exit.map(|e| &e.at).filter(|at| !at.is_empty());
        let code = exit.map_or_else(|| "?".into(), |e| e.exit_code.to_string());
        let ago = at.map(|at| format!(" {}", time::ago(at))).unwrap_or_default();
        (code, ago)
    };
    if domain.waiting.is_some() {
        let state = if domain.state == DomainState::Hibernated { "Hibernated" } else { "Created" };
        return format!("{state} (waiting for memory)");
    }
    match domain.state {
        DomainState::Created => "Created".into(),
        DomainState::Running => {
            let health = match domain.health {
                Some(HealthState::Starting) => " (health: starting)",
                Some(HealthState::Healthy) => " (healthy)",
                Some(HealthState::Unhealthy) => " (unhealthy)",
                None => "",
            };
            format!("Up{}{health}", since(domain.started_at.as_ref()))
        }
        DomainState::Paused => format!("Up{} (Paused)", since(domain.started_at.as_ref())),
        DomainState::Hibernated => domain.hibernated.as_ref().map_or_else(
            || "Hibernated".into(),
            |sleep| {
                let why = match sleep.reason {
                    HibernationReason::Request => &sleep.by,
                    HibernationReason::Idle => "idle",
                    HibernationReason::Memory => "memory",
                };
                format!("Hibernated ({why}) {}", time::ago(&sleep.at))
            },
        ),
        DomainState::Exited => {
            let (code, ago) = ended();
            format!("Exited ({code}){ago}")
        }
        DomainState::Restarting => {
            let (code, ago) = ended();
            format!("Restarting ({code}){ago}")
        }
        DomainState::Dead => "Dead".into(),
    }
}

/// Options of `doppel inspect`.
#[derive(Args)]
pub struct InspectArgs {
    /// A template as {{.State}} {{.Config.Image}}, or json
    #[arg(short, long, value_name = "TEMPLATE")]
    format: Option<String>,
    /// One line of JSON each
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Names or ids of domains, names of frozen images or root images
    #[arg(required = true)]
    names: Vec<String>,
}

/// Prints all that is known, as JSON.
pub fn inspect(args: &InspectArgs) -> Outcome {
    let client = supervisor()?;
    let format = Format::new(args.json, args.format.as_deref())?;
    let (mut found, mut code) = (Vec::new(), ExitCode::SUCCESS);
    for name in &args.names {
        match one(&client, name) {
            Ok(value) => found.push(value),
            Err(e) => {
                tell!("doppel: {e}");
                code = ExitCode::FAILURE;
            }
        }
    }
    match format {
        Format::Default => say!("{}", serde_json::to_string_pretty(&found)?)?,
        format => format.print(&found, &[])?,
    }
    Ok(code)
}

/// The thing of this name: a domain, else a frozen image, else a root image.
fn one(client: &Client, name: &str) -> doppel_client::Result<Value> {
    let encoded = doppel_client::segment(name);
    let places = [
        (format!("/v1/domains/{encoded}"), Code::DomainNotFound),
        (format!("/v1/frozen/{encoded}"), Code::FrozenNotFound),
        (format!("/v1/images/{encoded}"), Code::ImageNotFound),
    ];
    let mut first = None;
    for (path, missing) in places {
        match client.json("GET", &path, Upload::None) {
            Ok(value) => return Ok(value),
            Err(e) if e.code() == Some(missing) => first = first.or(Some(e)),
            // A name that cannot be one of these is none of them.
            Err(e) if first.is_some() && e.code() == Some(Code::InvalidRequest) => {}
            Err(e) => return Err(e),
        }
    }
    Err(first.unwrap_or(doppel_client::Error::Broken("nothing was asked".into())))
}

/// Prints capacity and what is reserved.
pub fn info(args: &Printed) -> Outcome {
    let client = supervisor()?;
    let info = match client.info() {
        Ok(info) => info,
        Err(e) => return failed(&e),
    };
    match args.get()? {
        Format::Default => {
            say!("Supervisor:   {}", client.place())?;
            say!("Store:        {}", info.store)?;
            say!("CPUs:         {} ({} reserved)", info.cpus, info.reserved_cpus)?;
            say!(
                "Memory:       {} ({} reserved)",
                bytes(info.memory_bytes),
                bytes(info.reserved_memory_bytes)
            )?;
            say!("Cgroups:      {}", info.cgroups)?;
            say!("Domains:      {}", info.domains.values().sum::<u64>())?;
            for (state, n) in &info.domains {
                say!("  {state:<12}{n}")?;
            }
        }
        format => format.print(&[serde_json::to_value(&info)?], &[])?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints versions of this command and of the supervisor, if one runs.
pub fn version(args: &Printed) -> Outcome {
    let client = supervisor()?;
    let server = client.version();
    let value = json!({
        "client": {"version": env!("CARGO_PKG_VERSION"), "api": doppel_api::VERSION_PREFIX.trim_start_matches('/')},
        "server": server.as_ref().ok(),
    });
    match args.get()? {
        Format::Default => {
            say!("Client:  {}", env!("CARGO_PKG_VERSION"))?;
            match server {
                Ok(v) => say!("Server:  {} (interface {}, guest kernel {})", v.version, v.api, v.kernel)?,
                Err(e) => say!("Server:  {e}")?,
            }
        }
        format => format.print(&[value], &[])?,
    }
    Ok(ExitCode::SUCCESS)
}
