//! `doppel volume`: through the supervisor if one runs, else on the store of this host.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use doppel_api::{CreateVolume, RemoveVolume, Volume, VolumePruneOptions, VolumePruneReport};
use doppel_client::{Client, Upload, query, segment};
use doppel_image::Store;
use doppel_volumes::{VolumeLimits, VolumeStore};
use serde_json::{Value, json};

use super::create::labels;
use super::show::Printed;
use super::{Outcome, running, shown};
use crate::options::values;
use crate::terminal::format::Format;
use crate::terminal::out::{self, say, tell};
use crate::terminal::time;

/// Verbs about volumes.
#[derive(Subcommand)]
pub enum VolumeCommand {
    /// Make a volume.
    Create(CreateArgs),
    /// Make a volume that has what is in another one now, and that domains only read.
    Snapshot(PairArgs),
    /// Make a volume that begins with what is in another one now.
    Clone(PairArgs),
    /// List volumes.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show all that is known of volumes, as JSON.
    Inspect(InspectArgs),
    /// Remove volumes with their files.
    #[command(visible_alias = "remove")]
    Rm(RemoveArgs),
    /// Remove volumes that no domain has: those without a name of their own.
    Prune(PruneArgs),
}

/// Options of `doppel volume create`.
#[derive(Args)]
pub struct CreateArgs {
    /// Key and value for your own use
    #[arg(long, value_name = "KEY[=VALUE]")]
    label: Vec<String>,
    /// What its files may take: size=1G (of the host's disk), nr_inodes=N
    #[arg(short, long, value_name = "KEY=VALUE")]
    opt: Vec<String>,
    /// Its name; without one it gets a random one
    name: Option<String>,
}

/// Options of `doppel volume snapshot` and `doppel volume clone`.
#[derive(Args)]
pub struct PairArgs {
    /// Key and value for your own use
    #[arg(long, value_name = "KEY[=VALUE]")]
    label: Vec<String>,
    /// The volume that there is, which no running domain has
    volume: String,
    /// Name of the new one
    name: String,
}

impl PairArgs {
    fn wanted(&self, snapshot: bool) -> CreateVolume {
        CreateVolume {
            name: Some(self.name.clone()),
            labels: labels(&self.label),
            source: Some(self.volume.clone()),
            snapshot,
            ..CreateVolume::default()
        }
    }
}

/// Options of `doppel volume ls`.
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

/// Options of `doppel volume inspect` and `doppel network inspect`.
#[derive(Args)]
pub struct InspectArgs {
    /// A template as {{.Name}}, or json
    #[arg(short, long, value_name = "TEMPLATE")]
    pub format: Option<String>,
    /// Their names
    #[arg(required = true)]
    pub names: Vec<String>,
}

/// Options of `doppel volume rm` and `doppel network rm`.
#[derive(Args)]
pub struct RemoveArgs {
    /// One that is not there is no error
    #[arg(short, long)]
    pub force: bool,
    /// Their names
    #[arg(required = true)]
    pub names: Vec<String>,
}

/// Options of `doppel volume prune`.
#[derive(Args)]
pub struct PruneArgs {
    /// Those with names of their own too
    #[arg(short, long)]
    all: bool,
    /// Only some: label=KEY[=VALUE]
    #[arg(long, value_name = "FILTER")]
    filter: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    force: bool,
}

/// Bytes that a volume with a limit has at least.
const LEAST_SIZE: u64 = 64 << 10;

/// Whom is asked.
enum Backend {
    Supervisor(Client),
    Store(VolumeStore),
}

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

impl Backend {
    fn get() -> Answer<Self> {
        Ok(match running()? {
            Some(client) => Self::Supervisor(client),
            None => Self::Store(VolumeStore::of(Store::from_env().root())),
        })
    }

    fn create(&self, wanted: CreateVolume) -> Answer<Volume> {
        Ok(match self {
            Self::Supervisor(client) => client.post("/v1/volumes", &wanted)?,
            Self::Store(store) => {
                let limits = VolumeLimits { bytes: wanted.size_bytes, inodes: wanted.inodes };
                let name = wanted.name.as_deref();
                described(match &wanted.source {
                    Some(of) => store.copy(of, name.unwrap_or_default(), wanted.labels, wanted.snapshot)?,
                    None => store.create_within(name, wanted.labels, limits)?,
                })
            }
        })
    }

    fn list(&self) -> Answer<Vec<Volume>> {
        Ok(match self {
            Self::Supervisor(client) => client.json("GET", "/v1/volumes", Upload::None)?,
            Self::Store(store) => store.list()?.into_iter().map(described).collect(),
        })
    }

    fn get_one(&self, name: &str) -> Answer<Volume> {
        Ok(match self {
            Self::Supervisor(client) => client.json("GET", &at(name), Upload::None)?,
            Self::Store(store) => described(store.get(name)?),
        })
    }

    fn remove(&self, name: &str, force: bool) -> Answer<()> {
        match self {
            Self::Supervisor(client) => {
                client.done("DELETE", &query(&at(name), &RemoveVolume { force }), Upload::None)?;
            }
            Self::Store(store) => match store.remove(name) {
                Err(doppel_volumes::Error::NotFound(_)) if force => {}
                done => done?,
            },
        }
        Ok(())
    }

    fn prune(&self, which: &VolumePruneOptions) -> Answer<Vec<String>> {
        Ok(match self {
            Self::Supervisor(client) => {
                let to = query("/v1/volumes/prune", which);
                client.json::<VolumePruneReport>("POST", &to, Upload::None)?.removed
            }
            Self::Store(store) => {
                let label = which.label.as_deref().unwrap_or_default();
                store.prune(which.all, |volume| doppel_api::has_labels(&volume.labels, label))?
            }
        })
    }
}

fn at(name: &str) -> String {
    format!("/v1/volumes/{}", segment(name))
}

fn described(volume: doppel_volumes::Volume) -> Volume {
    Volume {
        name: volume.name,
        mountpoint: volume.path.display().to_string(),
        created_at: time::format(volume.created as f64),
        labels: volume.labels,
        anonymous: volume.anonymous,
        used_by: volume.users,
        size_bytes: volume.limits.bytes,
        inodes: volume.limits.inodes,
        snapshot: volume.snapshot,
    }
}

/// What is asked for by options.
fn wanted(args: &CreateArgs) -> Result<CreateVolume, String> {
    let mut wanted =
        CreateVolume { name: args.name.clone(), labels: labels(&args.label), ..CreateVolume::default() };
    for option in &args.opt {
        let count = |text: &str| text.parse().ok().filter(|n| *n > 0);
        match option.split_once('=') {
            Some(("size", size)) => {
                let bytes = values::size(size)?;
                if bytes < LEAST_SIZE {
                    return Err(format!("--opt {option}: a volume has at least {LEAST_SIZE} bytes"));
                }
                wanted.size_bytes = Some(bytes);
            }
            Some(("nr_inodes", n)) => {
                wanted.inodes = Some(count(n).ok_or_else(|| format!("--opt {option}: no number of files"))?);
            }
            _ => return Err(format!("--opt {option}: there are size= and nr_inodes=")),
        }
    }
    Ok(wanted)
}

/// Does what the verb says.
pub fn run(command: &VolumeCommand) -> Outcome {
    let backend = Backend::get()?;
    match command {
        VolumeCommand::Create(args) => {
            say!("{}", backend.create(wanted(args)?)?.name)?;
        }
        VolumeCommand::Snapshot(args) => say!("{}", backend.create(args.wanted(true))?.name)?,
        VolumeCommand::Clone(args) => say!("{}", backend.create(args.wanted(false))?.name)?,
        VolumeCommand::Ls(args) => list(&backend, args)?,
        VolumeCommand::Inspect(args) => {
            return args.print(|name| Ok(serde_json::to_value(backend.get_one(name)?)?));
        }
        VolumeCommand::Rm(args) => {
            return each(&args.names, |name| {
                backend.remove(name, args.force)?;
                Ok(say!("{name}")?)
            });
        }
        VolumeCommand::Prune(args) => prune(&backend, args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Does something to each; says what fails, and goes on.
pub fn each(names: &[String], mut act: impl FnMut(&str) -> Answer<()>) -> Outcome {
    let mut code = ExitCode::SUCCESS;
    for name in names {
        if let Err(error) = act(name) {
            tell!("doppel: {error}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Whether a filter takes a volume or a network: its name, its labels, and whether no domain has it.
pub fn takes(
    filter: &str,
    name: &str,
    labels: &BTreeMap<String, String>,
    unused: bool,
) -> Result<bool, String> {
    match filter.split_once('=') {
        Some(("name", text)) => Ok(name.contains(text)),
        Some(("label", label)) => Ok(doppel_api::has_labels(labels, label)),
        Some(("dangling", "true" | "1")) => Ok(unused),
        Some(("dangling", "false" | "0")) => Ok(!unused),
        _ => Err(format!("--filter {filter:?}: there are name=, label= and dangling=true or false")),
    }
}

/// The labels that filters of a `prune` ask for.
pub fn labels_wanted(filters: &[String]) -> Result<Option<String>, String> {
    let mut labels = Vec::new();
    for filter in filters {
        let label = filter.strip_prefix("label=");
        labels.push(label.ok_or_else(|| format!("--filter {filter:?}: there is label=KEY[=VALUE]"))?);
    }
    Ok((!labels.is_empty()).then(|| labels.join(",")))
}

impl InspectArgs {
    /// Prints what is got by each of the names.
    pub fn print(&self, mut get: impl FnMut(&str) -> Answer<Value>) -> Outcome {
        let format = Format::new(false, self.format.as_deref())?;
        let mut found = Vec::new();
        let code = each(&self.names, |name| {
            found.push(get(name)?);
            Ok(())
        })?;
        match format {
            Format::Default => say!("{}", serde_json::to_string_pretty(&found)?)?,
            format => format.print(&found, &[])?,
        }
        Ok(code)
    }
}

fn list(backend: &Backend, args: &ListArgs) -> Answer<()> {
    let format = args.printed.get()?;
    let mut rows = Vec::new();
    for volume in backend.list()? {
        let mut wanted = true;
        for filter in &args.filter {
            wanted &= takes(filter, &volume.name, &volume.labels, volume.used_by.is_empty())?;
        }
        if wanted && args.quiet {
            say!("{}", volume.name)?;
        } else if wanted {
            rows.push(row(&volume, &format)?);
        }
    }
    if !args.quiet {
        format
            .print(&rows, &[("VOLUME NAME", "Name"), ("CREATED", "CreatedSince"), ("DOMAINS", "Domains")])?;
    }
    Ok(())
}

fn row(volume: &Volume, format: &Format) -> Answer<Value> {
    if matches!(format, Format::Json) {
        return Ok(serde_json::to_value(volume)?);
    }
    let labels: Vec<String> = volume.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    Ok(json!({
        "Name": volume.name,
        "Driver": "local",
        "Mountpoint": volume.mountpoint,
        "CreatedAt": volume.created_at,
        "CreatedSince": time::ago(&volume.created_at),
        "Snapshot": if volume.snapshot { "yes" } else { "no" },
        "Labels": shown(&labels.join(",")),
        "Domains": volume.used_by.len().to_string(),
    }))
}

fn prune(backend: &Backend, args: &PruneArgs) -> Answer<()> {
    let label = labels_wanted(&args.filter)?;
    let what = if args.all { "all volumes" } else { "all volumes without a name of their own" };
    if !args.force && !out::confirmed(&format!("This removes {what} that no domain has."))? {
        return Ok(());
    }
    for name in backend.prune(&VolumePruneOptions { all: args.all, label })? {
        say!("{name}")?;
    }
    Ok(())
}
