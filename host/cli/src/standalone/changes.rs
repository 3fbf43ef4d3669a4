//! `doppel diff`, `export` and `commit`: what a domain has changed of its image's files, where that is kept.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use doppel_api::{Code, Kind};
use doppel_image::{Changes, Difference, Limits, Oci, Source, Store};
use doppel_layers::{Layer, LayerStore, Lock, Stack};

use crate::supervised::{Outcome, images, running};
use crate::terminal::out::{self, say};

/// Options of `doppel diff`.
#[derive(Args)]
pub struct DiffArgs {
    /// Name or id of a domain that keeps what it changes, or the name of a layer
    domain: String,
}

/// Options of `doppel export`.
#[derive(Args)]
pub struct ExportArgs {
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name or id of a domain that keeps what it changes, or the name of a layer
    domain: String,
}

/// Options of `doppel commit`.
#[derive(Args)]
pub struct CommitArgs {
    /// Name or id of a domain that keeps what it changes, or the name of a layer
    domain: String,
    /// Name of the new image
    image: String,
}

/// A layer that no domain runs on, and its image.
struct Kept {
    layer: Layer,
    image: File,
    path: PathBuf,
    /// That of a para domain.
    stack: Option<Stack>,
    _held: Lock,
}

impl Kept {
    /// That of a domain of a supervisor's, or the one of this name.
    fn open(store: &Store, name: &str) -> Result<Self, Box<dyn Error>> {
        if images::elsewhere(false)?.is_some() {
            return Err(images::not_over_there("this"));
        }
        let layers = LayerStore::of(store.root());
        let layer = layers.get(&of_domain(name, &layers)?)?;
        let held = layers.hold(&layer).map_err(|e| format!("{e}; stop it first"))?;
        let path = store.root().join("images").join(format!("sha256-{}.erofs", layer.base.digest));
        let image = File::open(&path)
            .map_err(|e| format!("image {}, on which layer {} lies: {e}", layer.base.image, layer.name))?;
        let stack = match layer.base.kind {
            Kind::Para => Some(layer.open()?),
            Kind::Paene => None,
        };
        Ok(Self { layer, image, path, stack, _held: held })
    }

    /// What is changed: nothing, if a paene domain has never run on it.
    fn changes<'a>(&'a self, upper: &'a Path) -> Changes<'a> {
        match &self.stack {
            Some(stack) => Changes::Layer(stack),
            None => Changes::Upper(upper),
        }
    }

    fn write_tar(&self, out: impl Write) -> doppel_image::Result<()> {
        let upper = doppel_layers::upper(&self.layer.dir);
        doppel_image::write_changed_tar(&self.image, &self.path, self.changes(&upper), out)
    }
}

/// Name of the layer that a domain has; of what is no domain it is the name itself.
fn of_domain(name: &str, layers: &LayerStore) -> Result<String, Box<dyn Error>> {
    let Some(client) = running()? else { return Ok(name.to_owned()) };
    let domain = match client.inspect(name) {
        Ok(domain) => domain,
        Err(e) if e.code() == Some(Code::DomainNotFound) => return Ok(name.to_owned()),
        Err(e) => return Err(e.into()),
    };
    let files = domain.config.files;
    if let Some(frozen) = &domain.cloned_from {
        return match layers.get(&domain.id) {
            Err(doppel_layers::Error::NotFound(_)) => Err(format!(
                "clone {} keeps nothing of what it changes: all files of frozen image {frozen} are in its memory (a frozen image leaves \
                 them in a layer if its domain keeps its files, and these are 16 MiB or more)",
                domain.name
            )
            .into()),
            _ => Ok(domain.id),
        };
    }
    if !files.is_kept() {
        let text = format!(
            "domain {} keeps nothing of what it changes (`--rm`, `--no-persist`, or limits on its disk)",
            domain.name
        );
        return Err(text.into());
    }
    Ok(files.layer.unwrap_or(domain.id))
}

/// Says which files are not the image's.
pub fn diff(args: &DiffArgs) -> Outcome {
    let kept = Kept::open(&Store::from_env(), &args.domain)?;
    let upper = doppel_layers::upper(&kept.layer.dir);
    for (difference, path) in doppel_image::differences(&kept.image, &kept.path, kept.changes(&upper))? {
        let letter = match difference {
            Difference::Added => 'A',
            Difference::Changed => 'C',
            Difference::Deleted => 'D',
        };
        say!("{letter} {}", String::from_utf8_lossy(&path))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes all its files as a tar archive.
pub fn export(args: &ExportArgs) -> Outcome {
    let kept = Kept::open(&Store::from_env(), &args.domain)?;
    match &args.output {
        None if out::stdout().is_terminal() => {
            return Err(
                "an archive is no text for a terminal: redirect it, or name a file with --output".into()
            );
        }
        None => kept.write_tar(&mut out::stdout())?,
        Some(path) => {
            let mut file = BufWriter::new(File::create(path)?);
            kept.write_tar(&mut file)?;
            file.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes an image of all its files, which is run as the one before.
pub fn commit(args: &CommitArgs) -> Outcome {
    let store = Store::from_env();
    let kept = Kept::open(&store, &args.domain)?;
    let base = &kept.layer.base;
    let record =
        store.list()?.into_iter().filter_map(|(_, record)| record.ok()).find(|r| r.digest == base.digest);
    let source = Source::Domain { name: args.domain.clone(), image: base.image.clone() };
    let made = std::thread::scope(|scope| {
        let (archive, pipe) = io::pipe()?;
        let write = || kept.write_tar(BufWriter::new(pipe));
        let writing = std::thread::Builder::new().spawn_scoped(scope, write)?;
        let made = store.import_tar(&args.image, archive, source, Limits::default());
        // If it could not be written whole, that is why it could not be read.
        let written = writing.join().map_err(|_| io::Error::other("a thread has ended"))?;
        written?;
        Ok::<_, Box<dyn Error>>(made?)
    })?;
    if let Some(oci) = record.and_then(|record| record.oci) {
        // Its layers are made when it is pushed.
        store.set_oci(&made.name, Oci { config: oci.config, ..Oci::default() })?;
    }
    say!("sha256:{}", made.digest)?;
    Ok(ExitCode::SUCCESS)
}
