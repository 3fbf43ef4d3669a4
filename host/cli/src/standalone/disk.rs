//! `doppel disk`: block devices of domains, in the store of this host.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use doppel_api::CreateDisk;
use doppel_disks::{Disk, DiskStore};
use doppel_image::Store;
use serde_json::{Value, json};

use crate::standalone::image;
use crate::supervised::show::Printed;
use crate::supervised::{Outcome, images};
use crate::terminal::format::Format;
use crate::terminal::out::{say, tell};
use crate::terminal::time;

/// Verbs about disks.
#[derive(Subcommand)]
pub enum DiskCommand {
    /// Make a disk.
    Create(CreateArgs),
    /// Make a disk that is what another one is now, and of which nothing changes.
    Snapshot(PairArgs),
    /// Make a disk that begins as what another one is now.
    Clone(PairArgs),
    /// Give a disk another size.
    Resize(ResizeArgs),
    /// Copy what a disk has in common with others, so that it needs nothing of theirs.
    Flatten(FlattenArgs),
    /// List them.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show all that is known of some, as JSON.
    Inspect(InspectArgs),
    /// Remove some that no running domain has, with what is on them.
    #[command(visible_alias = "remove")]
    Rm(RemoveArgs),
}

/// Options of `doppel disk create`.
#[derive(Args)]
pub struct CreateArgs {
    /// Its size: bytes, with K, M, G or T; a multiple of 4 KiB
    #[arg(long, value_name = "SIZE", value_parser = doppel_spec::values::size)]
    size: u64,
    /// Make an empty file system on it (doppelfs), which para domains mount; at least 1M
    #[arg(long)]
    format: bool,
    /// Its name
    name: String,
}

/// Options of `doppel disk snapshot` and `doppel disk clone`.
#[derive(Args)]
pub struct PairArgs {
    /// The disk that there is
    disk: String,
    /// Name of the new one
    name: String,
}

/// Options of `doppel disk resize`.
#[derive(Args)]
pub struct ResizeArgs {
    /// Its new size, as for `create`; what is behind it is lost
    #[arg(long, value_name = "SIZE", value_parser = doppel_spec::values::size)]
    size: u64,
    /// Its name
    name: String,
}

/// Options of `doppel disk flatten`.
#[derive(Args)]
pub struct FlattenArgs {
    /// Its name
    name: String,
}

/// Options of `doppel disk ls`.
#[derive(Args)]
pub struct ListArgs {
    /// Names only
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    printed: Printed,
}

/// Options of `doppel disk inspect`.
#[derive(Args)]
pub struct InspectArgs {
    /// A template as {{.size_bytes}}, or json
    #[arg(short, long, value_name = "TEMPLATE")]
    format: Option<String>,
    /// Their names
    #[arg(required = true)]
    names: Vec<String>,
}

/// Options of `doppel disk rm`.
#[derive(Args)]
pub struct RemoveArgs {
    /// One that is not there is no error
    #[arg(short, long)]
    force: bool,
    /// Their names
    #[arg(required = true)]
    names: Vec<String>,
}

/// Does what the verb says, in the store of this host: locks there say whether a domain has a disk.
pub fn run(command: &DiskCommand) -> Outcome {
    if images::elsewhere(false)?.is_some() {
        return Err(images::not_over_there("disk"));
    }
    let store = DiskStore::of(Store::from_env().root());
    match command {
        DiskCommand::Create(args) => say!("{}", create(&store, args)?.name)?,
        DiskCommand::Snapshot(args) => say!("{}", copy(&store, args, true)?)?,
        DiskCommand::Clone(args) => say!("{}", copy(&store, args, false)?)?,
        DiskCommand::Resize(args) => say!("{}", store.resize(&args.name, args.size)?.name)?,
        DiskCommand::Flatten(args) => say!("{}", store.flatten(&args.name)?.name)?,
        DiskCommand::Ls(args) => list(&store, args)?,
        DiskCommand::Inspect(args) => return inspect(&store, args),
        DiskCommand::Rm(args) => return Ok(remove(&store, args)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a disk that is what another one is now. One that a domain writes is its supervisor's to copy.
fn copy(store: &DiskStore, args: &PairArgs, snapshot: bool) -> Result<String, Box<dyn Error>> {
    let PairArgs { disk, name } = args;
    if store.get(disk)?.is_written() {
        let supervisor = crate::supervised::running()?.ok_or_else(|| DiskStore::in_use_elsewhere(disk))?;
        let (here, there) = (Store::from_env(), supervisor.info()?.store);
        if here.root() != Path::new(&there) {
            return Err(DiskStore::in_use_elsewhere(disk).into());
        }
        let wanted =
            CreateDisk { name: name.clone(), source: Some(disk.clone()), snapshot, size_bytes: None };
        return Ok(supervisor.post::<doppel_api::Disk>("/v1/disks", &wanted)?.name);
    }
    let made = if snapshot { store.snapshot(disk, name) } else { store.clone_of(disk, name) };
    Ok(made?.name)
}

fn create(store: &DiskStore, args: &CreateArgs) -> doppel_disks::Result<Disk> {
    match args.format {
        true => store.create_formatted(&args.name, args.size),
        false => store.create(&args.name, args.size),
    }
}

fn list(store: &DiskStore, args: &ListArgs) -> Result<(), Box<dyn Error>> {
    let disks = store.list()?;
    if args.quiet {
        return Ok(disks.iter().try_for_each(|disk| say!("{}", disk.name))?);
    }
    let rows: Vec<Value> = disks.iter().map(row).collect();
    let columns = [
        ("DISK NAME", "Name"),
        ("SIZE", "Size"),
        ("USED", "Used"),
        ("CREATED", "CreatedSince"),
        ("SNAPSHOT", "Snapshot"),
        ("IN USE", "InUse"),
    ];
    args.printed.get()?.print(&rows, &columns)
}

fn row(disk: &Disk) -> Value {
    let created = time::format(disk.created as f64);
    json!({
        "Name": disk.name,
        "Size": image::bytes(disk.size),
        "Used": image::bytes(disk.used),
        "CreatedSince": time::ago(&created),
        "CreatedAt": created,
        "Snapshot": if disk.snapshot { "yes" } else { "no" },
        "InUse": if disk.is_in_use() { "yes" } else { "no" },
    })
}

fn inspect(store: &DiskStore, args: &InspectArgs) -> Outcome {
    let format = Format::new(false, args.format.as_deref())?;
    let mut code = ExitCode::SUCCESS;
    let mut all = Vec::new();
    for name in &args.names {
        match store.get(name) {
            Ok(disk) => all.push(described(&disk)),
            Err(error) => {
                tell!("doppel: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    match format {
        Format::Default => say!("{}", serde_json::to_string_pretty(&all)?)?,
        format => format.print(&all, &[])?,
    }
    Ok(code)
}

fn described(disk: &Disk) -> Value {
    json!({
        "name": disk.name,
        "size_bytes": disk.size,
        "used_bytes": disk.used,
        "snapshot": disk.snapshot,
        "layers": disk.layers,
        "created_at": time::format(disk.created as f64),
        "path": disk.dir,
        "in_use": disk.is_in_use(),
    })
}

/// Removes each; says what fails, and goes on.
fn remove(store: &DiskStore, args: &RemoveArgs) -> std::io::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for name in &args.names {
        match store.remove(name) {
            Err(doppel_disks::Error::NotFound(_)) if args.force => {}
            Err(error) => {
                tell!("doppel: {error}");
                code = ExitCode::FAILURE;
            }
            Ok(()) => say!("{name}")?,
        }
    }
    Ok(code)
}
