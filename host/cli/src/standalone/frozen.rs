//! `doppel frozen`: the frozen images.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use doppel_api::{FrozenPruneOptions, FrozenPruneReport};
use doppel_disks::DiskStore;
use doppel_freezer::{FrozenImage, Medium};
use doppel_image::Store;
use serde_json::json;

use crate::standalone::frozen_registry::{self, PullArgs, PushArgs};
use crate::standalone::image;
use crate::standalone::run::{frozen_store, place};
use crate::supervised;
use crate::supervised::images;
use crate::supervised::show::Printed;
use crate::terminal::format::Format;
use crate::terminal::out::{self, say};
use crate::terminal::time;

/// What to do with frozen images.
#[derive(Subcommand)]
pub enum FrozenCommand {
    /// List them.
    Ls {
        #[command(flatten)]
        printed: Printed,
        /// Names only
        #[arg(short, long)]
        quiet: bool,
    },
    /// Check some whole and tell what they are, as JSON.
    Inspect {
        #[command(flatten)]
        printed: Printed,
        /// Their names
        #[arg(required = true)]
        frozen: Vec<String>,
    },
    /// Remove images that no clone uses.
    Rm {
        /// Their names
        #[arg(required = true)]
        frozen: Vec<String>,
    },
    /// Remove all images that no domain needs.
    Prune(PruneArgs),
    /// Make some whole, so that they need no older image: what they have in those is copied.
    Flatten {
        /// Their names
        #[arg(required = true)]
        frozen: Vec<String>,
    },
    /// Write one to a file, `-` for standard output.
    Export {
        /// Its name
        frozen: String,
        /// The file
        file: PathBuf,
    },
    /// Push one to a registry, with its root image.
    Push(PushArgs),
    /// Pull one from a registry, with its root image.
    Pull(PullArgs),
    /// Take one from a file, `-` for standard input.
    Import {
        /// Keep it in memory instead of on disk
        #[arg(long)]
        in_memory: bool,
        /// The file
        file: PathBuf,
        /// The name it gets
        frozen: String,
    },
}

/// Options of `doppel frozen prune`.
#[derive(Args)]
pub struct PruneArgs {
    /// Do not ask
    #[arg(short, long)]
    force: bool,
    /// Only some: until=TIME (older than that: RFC 3339, seconds since 1970, or how long ago, as 24h), place=memory|disk
    #[arg(long, value_name = "FILTER")]
    filter: Vec<String>,
    /// Print what was removed as JSON
    #[arg(long)]
    json: bool,
}

impl PruneArgs {
    fn which(&self) -> Result<FrozenPruneOptions, String> {
        let mut which = FrozenPruneOptions::default();
        for filter in &self.filter {
            match filter.split_once('=') {
                Some(("until", text)) => {
                    let at = time::parse(&time::point(text)?)
                        .ok_or_else(|| format!("--filter {filter:?}: no time"))?;
                    let seconds = (time::now() - at).max(0.0);
                    which.older_than_seconds = Some(seconds as u64);
                }
                Some(("place", "memory")) => which.in_memory = Some(true),
                Some(("place", "disk")) => which.in_memory = Some(false),
                _ => return Err(format!("--filter {filter:?}: there are until=TIME and place=memory|disk")),
            }
        }
        Ok(which)
    }
}

/// Removes images that nobody needs: by the supervisor if one runs, who knows what its domains need.
fn prune(args: &PruneArgs) -> Result<(), Box<dyn Error>> {
    let which = args.which()?;
    if !args.force && std::io::stdin().is_terminal() {
        out::print(format_args!("This removes all frozen images that no domain needs. Go on? [y/N] "))?;
        out::stdout().flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
    }
    let report = match supervised::running()? {
        Some(client) => client.frozen_prune(&which)?,
        None => prune_here(&which)?,
    };
    if args.json {
        say!("{}", serde_json::to_string(&report)?)?;
        return Ok(());
    }
    collect_disks()?;
    for name in &report.removed {
        say!("{name}")?;
    }
    say!("{} frozen images removed, {} free again", report.removed.len(), image::bytes(report.freed_bytes))?;
    Ok(())
}

/// Removes what was kept of disks for images that are no more.
fn collect_disks() -> Result<(), Box<dyn Error>> {
    Ok(DiskStore::of(Store::from_env().root()).sweep()?)
}

fn prune_here(which: &FrozenPruneOptions) -> Result<FrozenPruneReport, Box<dyn Error>> {
    let store = frozen_store();
    let mut report = FrozenPruneReport::default();
    for entry in store.list()? {
        let old_enough = match which.older_than_seconds {
            None => true,
            Some(seconds) => FrozenImage::open_unchecked(&entry.path)
                .is_ok_and(|i| time::now() - i.describe().frozen_at as f64 >= seconds as f64),
        };
        let place = which.in_memory.is_none_or(|m| m == (entry.medium == Medium::Memory));
        // What sleeps in one is a domain, not an image. One that somebody uses cannot be removed.
        if !entry.name.ends_with(".asleep")
            && old_enough
            && place
            && store.remove_at_once(&entry.name).is_ok()
        {
            report.freed_bytes += entry.used;
            report.removed.push(entry.name);
        }
    }
    store.sweep()?;
    Ok(report)
}

/// Does it.
pub fn run(command: FrozenCommand) -> Result<(), Box<dyn Error>> {
    if let Some(client) = images::elsewhere(false)? {
        return match command {
            FrozenCommand::Ls { printed, quiet } => images::frozen_list(&client, quiet, &printed.get()?),
            FrozenCommand::Inspect { printed, frozen } => {
                images::frozen_inspect(&client, &frozen, &printed.get()?)
            }
            FrozenCommand::Rm { frozen } => images::frozen_remove(&client, &frozen),
            FrozenCommand::Prune(args) => prune(&args),
            FrozenCommand::Flatten { frozen } => images::frozen_flatten(&client, &frozen),
            FrozenCommand::Export { .. } => Err(images::not_over_there("frozen export")),
            FrozenCommand::Import { .. } => Err(images::not_over_there("frozen import")),
            FrozenCommand::Push(_) => Err(images::not_over_there("frozen push")),
            FrozenCommand::Pull(_) => Err(images::not_over_there("frozen pull")),
        };
    }
    let store = frozen_store();
    match command {
        FrozenCommand::Ls { printed, quiet } => list(&printed.get()?, quiet)?,
        FrozenCommand::Inspect { printed, frozen } => {
            for name in frozen {
                let what = serde_json::to_value(store.open(&name)?.describe())?;
                match printed.get()? {
                    Format::Default => say!("{}", serde_json::to_string_pretty(&what)?)?,
                    format => format.print(&[what], &[])?,
                }
            }
        }
        FrozenCommand::Prune(args) => prune(&args)?,
        FrozenCommand::Rm { frozen } => {
            for name in frozen {
                store.remove(&name)?;
            }
            collect_disks()?;
        }
        FrozenCommand::Flatten { frozen } => {
            for name in frozen {
                say!("{name}: {}", image::bytes(store.flatten(&name)?))?;
            }
        }
        FrozenCommand::Export { frozen, file } => {
            if file == Path::new("-") {
                store.export(&frozen, &mut out::stdout())?;
            } else {
                let mut out = BufWriter::new(File::create_new(&file)?);
                let done = store.export(&frozen, &mut out).map_err(Into::into);
                let done = done.and_then(|_| out.flush().map_err(Into::<Box<dyn Error>>::into));
                if let Err(e) = done {
                    std::fs::remove_file(&file)?;
                    return Err(e);
                }
            }
        }
        FrozenCommand::Push(args) => frozen_registry::push(args)?,
        FrozenCommand::Pull(args) => frozen_registry::pull(args)?,
        FrozenCommand::Import { in_memory, file, frozen } => {
            if file == Path::new("-") {
                store.import(&frozen, place(in_memory), &mut std::io::stdin().lock())?;
            } else {
                store.import(&frozen, place(in_memory), &mut File::open(&file)?)?;
            }
        }
    }
    Ok(())
}

fn list(format: &Format, quiet: bool) -> Result<(), Box<dyn Error>> {
    let mut rows = Vec::new();
    for e in frozen_store().list()? {
        if quiet {
            say!("{}", e.name)?;
            continue;
        }
        let place = match e.medium {
            Medium::Disk => "disk",
            Medium::Memory => "memory",
        };
        let mut row = json!({"name": e.name, "place": place, "used": e.used});
        // A damaged image is still listed, so that it can be found and removed.
        match FrozenImage::open_unchecked(&e.path).map(|i| i.describe()) {
            Ok(image) if matches!(format, Format::Default) => {
                row["memory"] = image::bytes(image.data_bytes).into();
                row["elsewhere"] = image::bytes(image.ancestor_bytes).into();
                row["domain"] = image.domain.into();
                row["processes"] = image.processes.into();
            }
            Ok(image) => row["image"] = serde_json::to_value(image)?,
            Err(error) if matches!(format, Format::Default) => row["domain"] = error.to_string().into(),
            Err(error) => row["error"] = error.to_string().into(),
        }
        if matches!(format, Format::Default) {
            row["used"] = image::bytes(e.used).into();
        }
        rows.push(row);
    }
    if quiet {
        return Ok(());
    }
    let columns = [
        ("NAME", "name"),
        ("PLACE", "place"),
        ("MEMORY", "memory"),
        ("USED", "used"),
        ("IN ANCESTORS", "elsewhere"),
        ("DOMAIN", "domain"),
        ("PROCESSES", "processes"),
    ];
    format.print(&rows, &columns)
}
