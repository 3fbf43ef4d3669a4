//! `doppel frozen`: the frozen images.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use doppel_freezer::{FrozenImage, Place};
use serde_json::json;

use crate::format::Format;
use crate::image_cmd;
use crate::out::{self, say};
use crate::remote::show::Printed;
use crate::run_cmd::{frozen_store, place};

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
    /// Write one to a file, `-` for standard output.
    Export {
        /// Its name
        frozen: String,
        /// The file
        file: PathBuf,
    },
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

/// Does it.
pub fn run(command: FrozenCommand) -> Result<(), Box<dyn Error>> {
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
        FrozenCommand::Rm { frozen } => {
            for name in frozen {
                store.remove(&name)?;
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
        let place = match e.place {
            Place::Disk => "disk",
            Place::Memory => "memory",
        };
        let mut row = json!({"name": e.name, "place": place, "used": e.used});
        // A damaged image is still listed, so that it can be found and removed.
        match FrozenImage::open_unchecked(&e.path).map(|i| i.describe()) {
            Ok(image) if matches!(format, Format::Default) => {
                row["memory"] = image_cmd::bytes(image.data_bytes).into();
                row["domain"] = image.domain.into();
                row["processes"] = image.processes.into();
            }
            Ok(image) => row["image"] = serde_json::to_value(image)?,
            Err(error) if matches!(format, Format::Default) => row["domain"] = error.to_string().into(),
            Err(error) => row["error"] = error.to_string().into(),
        }
        if matches!(format, Format::Default) {
            row["used"] = image_cmd::bytes(e.used).into();
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
        ("DOMAIN", "domain"),
        ("PROCESSES", "processes"),
    ];
    format.print(&rows, &columns)
}
