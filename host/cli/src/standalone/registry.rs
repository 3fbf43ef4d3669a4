//! `doppel image pull`, `push`, `save`, and what `import` does with archives of images.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use doppel_api::{PullImage, PushImage};
use doppel_image::{Limits, Record, Source, Store};
use doppel_oci::{Blobs, Cancel, Import, Platform, Pull, Pulled, Push, Reference};
use serde::Serialize;

use crate::standalone::image::{Error, LimitArgs, bytes, made, print_json};
use crate::terminal::bars::Bars;
use crate::terminal::out;

/// Options of `doppel image pull`.
#[derive(clap::Args)]
pub struct PullArgs {
    /// What to pull, as for Docker: a name, with a registry before it and :TAG or @DIGEST behind it
    reference: Reference,
    /// Name of the image; by default the reference
    #[arg(long)]
    name: Option<String>,
    /// Which image, where there are several
    #[arg(long, value_name = "OS/ARCH", default_value = "linux/amd64")]
    platform: Platform,
    /// Leave system calls as they are: every one traps
    #[arg(long)]
    no_patch: bool,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

/// Options of `doppel image push`.
#[derive(clap::Args)]
pub struct PushArgs {
    /// Name of the image
    name: String,
    /// Where to; by default what its name says
    reference: Option<Reference>,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// Options of `doppel image save`.
#[derive(clap::Args)]
pub struct SaveArgs {
    /// Name of the image
    name: String,
    /// File to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How to speak to a registry.
#[derive(clap::Args)]
pub struct RegistryArgs {
    /// Speak plain HTTP (with a registry on this host, always)
    #[arg(long)]
    pub plain_http: bool,
    /// Give up on a registry that says nothing for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
}

impl PullArgs {
    /// What a supervisor on another host is asked for.
    pub fn over_there(self) -> Result<PullImage, Error> {
        if self.no_patch {
            return Err(crate::supervised::images::not_over_there("pull --no-patch"));
        }
        Ok(PullImage {
            reference: self.reference.to_string(),
            name: self.name,
            platform: Some(self.platform.to_string()),
            plain_http: self.registry.plain_http,
            ..PullImage::default()
        })
    }
}

impl PushArgs {
    /// What a supervisor on another host is asked for.
    pub fn over_there(self) -> PushImage {
        PushImage {
            reference: self.reference.map_or_else(|| self.name.clone(), |r| r.to_string()),
            name: self.name,
            plain_http: self.registry.plain_http,
            ..PushImage::default()
        }
    }
}

/// What `pull --json` prints.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    record: &'a Record,
    manifest: String,
    /// Whether the image was there already.
    up_to_date: bool,
}

/// Pulls an image.
pub fn pull(
    args: PullArgs,
    store: &Store,
    out: &mut impl Write,
    json: bool,
) -> Result<io::Result<()>, Error> {
    let pull = Pull {
        reference: args.reference,
        name: args.name,
        platform: args.platform,
        plain_http: args.registry.plain_http,
        credentials: None,
        timeout: Duration::from_secs(args.registry.timeout),
        limits: args.limits.into(),
    };
    let bars = Bars::new();
    let store = bars.watch(store);
    let store = if args.no_patch { store.without_patches() } else { store };
    let done = pull.run(&store, &bars, &Cancel::default())?;
    drop(bars);
    Ok(pulled(out, &done, json))
}

fn pulled(out: &mut impl Write, done: &Pulled, json: bool) -> io::Result<()> {
    if json {
        let report =
            Report { record: &done.record, manifest: done.manifest.to_string(), up_to_date: !done.fresh };
        return print_json(out, &report);
    }
    if !done.fresh {
        return writeln!(out, "{}: up to date, manifest {}", done.record.name, done.manifest);
    }
    made(out, &done.record, false)
}

/// Pushes an image.
pub fn push(
    args: PushArgs,
    store: &Store,
    out: &mut impl Write,
    json: bool,
) -> Result<io::Result<()>, Error> {
    let name = store.find(&args.name)?;
    let reference = match args.reference {
        Some(reference) => reference,
        None => name.parse()?,
    };
    let timeout = Duration::from_secs(args.registry.timeout);
    let push = Push { name, reference, plain_http: args.registry.plain_http, credentials: None, timeout };
    let done = push.run(store, &Bars::new(), &Cancel::default())?;
    if json {
        return Ok(print_json(out, &done));
    }
    let (sent, there) = (done.sent, done.existed);
    Ok(writeln!(out, "{}: {sent} blobs sent, {there} were there, manifest {}", done.reference, done.manifest))
}

/// Writes an image as an archive.
pub fn save(args: SaveArgs, store: &Store) -> Result<(), Error> {
    let name = store.find(&args.name)?;
    let Some(path) = args.output else {
        if out::stdout().is_terminal() {
            return Err("standard output is a terminal; name a file with -o".into());
        }
        doppel_oci::save(store, &name, BufWriter::new(out::stdout()), &Bars::new())?;
        return Ok(());
    };
    // The file appears when it is complete.
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = tempfile::NamedTempFile::new_in(dir)?;
    doppel_oci::save(store, &name, BufWriter::new(new.as_file()), &Bars::new())?;
    new.as_file().sync_all()?;
    new.persist(&path).map_err(|e| e.error)?;
    Ok(())
}

/// Removes blobs no image needs.
pub fn prune(store: &Store, out: &mut impl Write, json: bool) -> Result<io::Result<()>, Error> {
    let pruned = Blobs::prune(store)?;
    if json {
        return Ok(print_json(out, &pruned));
    }
    let (blobs, partial) = (pruned.blobs.len(), pruned.partial.len());
    Ok(writeln!(out, "{blobs} blobs and {partial} unfinished ones removed: {}", bytes(pruned.bytes)))
}

/// What to import.
pub struct ImportArgs {
    /// Directory, archive, or `-`.
    pub path: PathBuf,
    /// Name of the image.
    pub name: String,
    /// Which of several images.
    pub pick: Option<String>,
    /// Which image of an index.
    pub platform: Platform,
    /// How much it may hold.
    pub limits: Limits,
}

/// Imports a directory or an archive, of a root file system or of images.
pub fn import(store: &Store, args: ImportArgs) -> Result<(Record, Vec<String>), Error> {
    let ImportArgs { path, name, pick, platform, limits } = args;
    let bars = Bars::new();
    let store = &bars.watch(store);
    let images = |file, path| {
        let import =
            Import { path, file, name: name.clone(), pick: pick.clone(), platform: platform.clone(), limits };
        Ok((doppel_oci::import(store, import, &bars, &Cancel::default())?.record, Vec::new()))
    };
    if path.is_dir() {
        if doppel_oci::is_layout(&path) {
            return images(None, path.canonicalize()?);
        }
        return Ok(store.import_dir(&name, &path, limits)?);
    }
    let failed =
        |verb: &str, e: io::Error| -> Error { format!("cannot {verb} {}: {e}", path.display()).into() };
    let stdin = path.as_os_str() == "-";
    let source: Box<dyn Read> = match stdin {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(&path).map_err(|e| failed("open", e))?),
    };
    let (is_images, mut plain) = doppel_oci::sniff(source).map_err(|e| failed("read", e))?;
    let full = if stdin { path.clone() } else { path.canonicalize().map_err(|e| failed("open", e))? };
    if !is_images {
        let source = Source::Archive { path: full };
        return Ok((store.import_tar(&name, plain, source, limits)?, Vec::new()));
    }
    if !stdin {
        return images(None, full);
    }
    // What is read in any order must be in a file.
    store.prepare()?;
    let mut copy = store.scratch()?;
    let most = limits.bytes.saturating_mul(2);
    if io::copy(&mut plain.by_ref().take(most.saturating_add(1)), &mut copy)? > most {
        return Err(format!("the archive is more than {most} bytes (--max-bytes)").into());
    }
    images(Some(copy), full)
}
