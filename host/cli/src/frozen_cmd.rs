//! `doppel frozen`: the frozen images.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use doppel_freezer::{FrozenImage, Place};

use crate::image_cmd;
use crate::run_cmd::{frozen_store, place};

/// What to do with frozen images.
#[derive(Subcommand)]
pub enum FrozenCommand {
    /// List them.
    Ls {
        /// One line of JSON an image
        #[arg(long)]
        json: bool,
    },
    /// Check one whole and tell what it is, as JSON.
    Inspect {
        /// Its name
        frozen: String,
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
        FrozenCommand::Ls { json } => list(json)?,
        FrozenCommand::Inspect { frozen } => {
            println!("{}", serde_json::to_string_pretty(&store.open(&frozen)?.describe())?);
        }
        FrozenCommand::Rm { frozen } => {
            for name in frozen {
                store.remove(&name)?;
            }
        }
        FrozenCommand::Export { frozen, file } => {
            if file == Path::new("-") {
                store.export(&frozen, &mut std::io::stdout().lock())?;
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

fn list(json: bool) -> Result<(), Box<dyn Error>> {
    if !json {
        println!(
            "{:<20} {:<7} {:>11} {:>11}  {:<16} {:>9}",
            "NAME", "PLACE", "MEMORY", "USED", "DOMAIN", "PROCESSES"
        );
    }
    for e in frozen_store().list()? {
        let place = match e.place {
            Place::Disk => "disk",
            Place::Memory => "memory",
        };
        // A damaged image is still listed, so that it can be found and removed.
        match FrozenImage::open_unchecked(&e.path).map(|i| i.describe()) {
            Ok(d) if json => {
                println!(
                    "{}",
                    serde_json::json!({"name": e.name, "place": place, "used": e.used, "image": d})
                );
            }
            Ok(d) => println!(
                "{:<20} {:<7} {:>11} {:>11}  {:<16} {:>9}",
                e.name,
                place,
                image_cmd::bytes(d.data_bytes),
                image_cmd::bytes(e.used),
                d.domain,
                d.processes
            ),
            Err(error) if json => {
                println!(
                    "{}",
                    serde_json::json!({"name": e.name, "place": place, "error": error.to_string()})
                );
            }
            Err(error) => println!("{:<20} {:<7} {error}", e.name, place),
        }
    }
    Ok(())
}
