//! `doppel layer`: what domains have changed of their images' files, where that is kept.

use std::error::Error;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use doppel_api::Kind;
use doppel_image::Store;
use doppel_layers::{Layer, LayerStore};
use serde_json::{Value, json};

use crate::standalone::image;
use crate::supervised::show::Printed;
use crate::supervised::{Outcome, images, shown};
use crate::terminal::out::{self, say, tell};
use crate::terminal::time;

/// Verbs about layers.
#[derive(Subcommand)]
pub enum LayerCommand {
    /// List them.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Remove some that no domain has, with their files.
    #[command(visible_alias = "remove")]
    Rm(RemoveArgs),
    /// Remove all that no domain has.
    Prune(PruneArgs),
}

/// Options of `doppel layer ls`.
#[derive(Args)]
pub struct ListArgs {
    /// Names only
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    printed: Printed,
}

/// Options of `doppel layer rm`.
#[derive(Args)]
pub struct RemoveArgs {
    /// One that is not there is no error
    #[arg(short, long)]
    force: bool,
    /// Their names
    #[arg(required = true)]
    names: Vec<String>,
}

/// Options of `doppel layer prune`.
#[derive(Args)]
pub struct PruneArgs {
    /// Do not ask
    #[arg(short, long)]
    force: bool,
}

/// Does what the verb says, in the store of this host: notes and locks there say whose a layer is.
pub fn run(command: &LayerCommand) -> Outcome {
    if images::elsewhere(false)?.is_some() {
        return Err(images::not_over_there("layer"));
    }
    let store = LayerStore::of(Store::from_env().root());
    match command {
        LayerCommand::Ls(args) => list(&store, args)?,
        LayerCommand::Rm(args) => return Ok(remove(&store, args)?),
        LayerCommand::Prune(args) => {
            if args.force || out::confirmed("This removes all layers that no domain has.")? {
                for name in store.prune()? {
                    say!("{name}")?;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(store: &LayerStore, args: &ListArgs) -> Result<(), Box<dyn Error>> {
    let layers = store.list()?;
    if args.quiet {
        return Ok(layers.iter().try_for_each(|layer| say!("{}", layer.name))?);
    }
    let rows: Vec<Value> = layers.iter().map(row).collect();
    let columns = [
        ("LAYER NAME", "Name"),
        ("IMAGE", "Image"),
        ("KIND", "Kind"),
        ("CREATED", "CreatedSince"),
        ("SIZE", "Size"),
        ("DOMAIN", "Domain"),
    ];
    args.printed.get()?.print(&rows, &columns)
}

fn row(layer: &Layer) -> Value {
    let created = time::format(layer.created as f64);
    json!({
        "Name": layer.name,
        "Image": shown(&layer.base.image),
        "ImageDigest": layer.base.digest,
        "Kind": match layer.base.kind {
            Kind::Para => "para",
            Kind::Paene => "paene",
        },
        "CreatedSince": time::ago(&created),
        "CreatedAt": created,
        "Size": image::bytes(layer.size()),
        "Domain": layer.user.as_deref().unwrap_or_default(),
    })
}

/// Removes each; says what fails, and goes on.
fn remove(store: &LayerStore, args: &RemoveArgs) -> std::io::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for name in &args.names {
        match store.remove(name) {
            Err(doppel_layers::Error::NotFound(_)) if args.force => {}
            Err(error) => {
                tell!("doppel: {error}");
                code = ExitCode::FAILURE;
            }
            Ok(()) => say!("{name}")?,
        }
    }
    Ok(code)
}
