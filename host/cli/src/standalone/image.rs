//! `doppel image`: make, list, check and remove root images.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use doppel_client::Client;
use doppel_image::patch::PatchReport;
use doppel_image::{Build, Counts, Inspection, Limits, Record, Source, Store};
use doppel_oci::Platform;
use serde::Serialize;
use serde_json::{Value, json};

use crate::standalone::registry::{self, ImportArgs, PullArgs, PushArgs, SaveArgs};
use crate::supervised::images;
use crate::terminal::bars::Bars;
use crate::terminal::format::Format;
use crate::terminal::out::{self, say, tell};
use crate::terminal::time;

/// Arguments of `doppel image`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// On the store of this host, even if DOPPEL_HOST names a supervisor on another
    #[arg(long, global = true)]
    local: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Pull an image from a registry.
    Pull(PullArgs),
    /// Push an image to a registry.
    Push(PushArgs),
    /// Give an image a further name.
    Tag {
        /// Its name.
        name: String,
        /// The further name; an image that has it loses it.
        new: String,
    },
    /// Write an image as an archive that other tools read (an OCI layout and `docker save` archive).
    Save(SaveArgs),
    /// Remove layers no image needs, and what broken transfers left.
    Prune,
    /// Make an image from a directory, a tar archive (plain, gzip, zstd), an OCI layout or a `docker save` archive.
    Import {
        /// Directory, archive, or - for an archive on standard input.
        source: PathBuf,
        /// Name of the image; an image that has it loses it.
        name: String,
        /// Leave system calls as they are: every one traps.
        #[arg(long)]
        no_patch: bool,
        /// Which of several images of the archive: its tag or reference.
        #[arg(long = "ref", value_name = "REF")]
        pick: Option<String>,
        /// Which image, where there are several.
        #[arg(long, value_name = "OS/ARCH", default_value = "linux/amd64")]
        platform: Platform,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Make an image from Debian packages, with mmdebstrap.
    Build {
        /// Name of the image; an image that has it loses it.
        name: String,
        /// Packages beside the essential ones.
        packages: Vec<String>,
        /// Debian suite.
        #[arg(long, default_value = "bookworm")]
        suite: String,
        /// Mirror to take packages from, instead of this host's own.
        #[arg(long, value_name = "URL", env = "DOPPEL_MIRROR")]
        mirror: Option<String>,
        /// Do nothing when the image was built from the same suite and packages already.
        #[arg(long)]
        reuse: bool,
        /// Leave system calls as they are: every one traps.
        #[arg(long)]
        no_patch: bool,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// List images.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Remove images.
    Rm(RemoveArgs),
    /// Show an image and check every byte of it.
    Inspect {
        /// Name of the image.
        name: String,
        /// Only show what the store has recorded; skip the check.
        #[arg(long)]
        quick: bool,
    },
}

/// Options of `doppel image ls` and `doppel images`.
#[derive(clap::Args)]
pub struct ListArgs {
    /// Names only
    #[arg(short, long)]
    quiet: bool,
    /// A template as {{.Name}} {{.Size}}, or json, or table TEMPLATE
    #[arg(long, value_name = "TEMPLATE")]
    format: Option<String>,
}

/// Options of `doppel image rm` and `doppel rmi`.
#[derive(clap::Args)]
pub struct RemoveArgs {
    /// Names of the images that are missing are no error
    #[arg(short, long)]
    force: bool,
    /// Names of the images
    #[arg(required = true)]
    names: Vec<String>,
}

/// The verbs of images that Docker has without `image` before them too.
pub enum Short {
    Pull(PullArgs),
    Push(PushArgs),
    Ls(ListArgs),
    Rm(RemoveArgs),
}

/// Options of a short form: those of the verb, and `--json`.
#[derive(clap::Args)]
pub struct ShortArgs<T: clap::Args> {
    #[command(flatten)]
    args: T,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// On the store of this host, even if DOPPEL_HOST names a supervisor on another
    #[arg(long)]
    local: bool,
}

impl<T: clap::Args> ShortArgs<T> {
    /// The verb of `doppel image` it stands for.
    pub fn whole(self, verb: fn(T) -> Short) -> Args {
        let verb = match verb(self.args) {
            Short::Pull(args) => Verb::Pull(args),
            Short::Push(args) => Verb::Push(args),
            Short::Ls(args) => Verb::Ls(args),
            Short::Rm(args) => Verb::Rm(args),
        };
        Args { verb, json: self.json, local: self.local }
    }
}

/// How much a source may hold.
#[derive(clap::Args)]
pub struct LimitArgs {
    /// Refuse a source with more bytes of file data than this.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().bytes)]
    max_bytes: u64,
    /// Refuse a source with more files than this.
    #[arg(long, value_name = "N", default_value_t = Limits::default().nodes)]
    max_files: u64,
}

impl From<LimitArgs> for Limits {
    fn from(args: LimitArgs) -> Self {
        Self { bytes: args.max_bytes, nodes: args.max_files }
    }
}

/// Why the verb failed.
pub type Error = Box<dyn std::error::Error>;

/// Runs the verb on the store of another host.
fn there(client: &Client, verb: Verb, json: bool) -> Result<(), Error> {
    match verb {
        Verb::Pull(args) => images::pull(client, &args.over_there()?, json),
        Verb::Push(args) => images::push(client, &args.over_there(), json),
        Verb::Prune => images::prune(client, json),
        Verb::Import { source, name, .. } => images::import(client, &source, &name, json),
        Verb::Ls(args) => images::list(client, args.quiet, &Format::new(json, args.format.as_deref())?),
        Verb::Rm(args) => images::remove(client, &args.names, args.force, json),
        Verb::Inspect { name, .. } => images::inspect(client, &name),
        Verb::Tag { .. } => Err(images::not_over_there("image tag")),
        Verb::Save(_) => Err(images::not_over_there("image save")),
        Verb::Build { .. } => Err(images::not_over_there("image build")),
    }
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Error> {
    if let Some(client) = images::elsewhere(args.local)? {
        return there(&client, args.verb, args.json);
    }
    let store = Store::from_env();
    let mut out = out::stdout();
    let json = args.json;
    let done = match args.verb {
        Verb::Pull(args) => registry::pull(args, &store, &mut out, json)?,
        Verb::Push(args) => registry::push(args, &store, &mut out, json)?,
        Verb::Tag { name, new } => made(&mut out, &store.tag(&store.find(&name)?, &new)?, json),
        Verb::Save(args) => {
            drop(out);
            return registry::save(args, &store);
        }
        Verb::Prune => registry::prune(&store, &mut out, json)?,
        Verb::Import { source, name, no_patch, pick, platform, limits } => {
            let args = ImportArgs { path: source, name, pick, platform, limits: limits.into() };
            let (record, notes) = registry::import(&with_patches(store, no_patch), args)?;
            for note in notes {
                tell!("doppel: note: {note}");
            }
            made(&mut out, &record, json)
        }
        Verb::Build { name, packages, suite, mirror, reuse, no_patch, limits } => {
            let store = with_patches(store, no_patch);
            let build = Build { suite, packages, mirror };
            let record = match reuse && store.is_built(&name, &build) {
                true => store.record(&name)?,
                false => {
                    let bars = Bars::new();
                    bars.begin("installing packages");
                    bars.watch(&store).build(&name, &build, limits.into())?
                }
            };
            made(&mut out, &record, json)
        }
        Verb::Ls(args) => {
            drop(out);
            return list(&store, &args, json);
        }
        Verb::Rm(args) => {
            for name in args.names {
                let found = match store.find(&name) {
                    Err(doppel_image::Error::NotFound(_)) if args.force => continue,
                    found => found?,
                };
                store.remove(&found)?;
                match json {
                    true => writeln!(out, "{}", json!({ "removed": found }))?,
                    false => writeln!(out, "removed: {found}")?,
                }
            }
            Ok(())
        }
        Verb::Inspect { name, quick } => inspect(&store, &mut out, &name, quick, json)?,
    };
    Ok(done?)
}

fn with_patches(store: Store, no_patch: bool) -> Store {
    if no_patch { store.without_patches() } else { store }
}

/// Prints an image that was made.
pub fn made(out: &mut impl Write, record: &Record, json: bool) -> io::Result<()> {
    if json {
        return print_json(out, record);
    }
    let size = bytes(record.size);
    writeln!(out, "{}: {size}, {} files, sha256:{}", record.name, record.counts.inodes(), record.digest)
}

/// Prints JSON.
pub fn print_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// What a list of images shows, wherever they are.
pub const COLUMNS: [(&str, &str); 6] = [
    ("NAME", "Name"),
    ("DIGEST", "ID"),
    ("SIZE", "Size"),
    ("FILES", "Files"),
    ("CREATED", "CreatedSince"),
    ("SOURCE", "Source"),
];

fn list(store: &Store, args: &ListArgs, json: bool) -> Result<(), Error> {
    let format = Format::new(json, args.format.as_deref())?;
    let mut rows = Vec::new();
    for (_, record) in store.list()? {
        match record {
            Ok(record) if args.quiet => say!("{}", record.name)?,
            // As it is recorded, or what people and templates want of it.
            Ok(record) if matches!(format, Format::Json) => rows.push(serde_json::to_value(record)?),
            Ok(record) => rows.push(row(&record)),
            Err(e) => tell!("doppel: {e}"),
        }
    }
    if args.quiet {
        return Ok(());
    }
    format.print(&rows, &COLUMNS)
}

/// An image as Docker's `images` has it, as far as the meaning is the same.
fn row(record: &Record) -> Value {
    let (repository, tag) = match record.name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (record.name.as_str(), "latest"),
    };
    json!({
        "Name": record.name,
        "Repository": repository,
        "Tag": tag,
        "ID": record.digest.get(..12).unwrap_or(&record.digest),
        "Digest": format!("sha256:{}", record.digest),
        "Size": bytes(record.size),
        "Files": record.counts.inodes(),
        "CreatedSince": age(record.created),
        "CreatedAt": time::format(record.created as f64),
        "Source": shown(&describe(&record.source)),
    })
}

/// What `inspect --json` prints.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    record: Record,
    path: PathBuf,
    verified: Option<Inspection>,
}

fn inspect(
    store: &Store,
    out: &mut impl Write,
    name: &str,
    quick: bool,
    json: bool,
) -> doppel_image::Result<io::Result<()>> {
    let image = store.open(&store.find(name)?)?;
    let verified = if quick { None } else { Some(image.verify()?) };
    let report = Report { record: image.record, path: image.path, verified };
    Ok(if json { print_json(out, &report) } else { show(out, &report) })
}

fn show(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let r = &report.record;
    let Counts { files, directories, symlinks, special, bytes: data } = r.counts;
    writeln!(out, "name         {}", r.name)?;
    writeln!(out, "digest       sha256:{}", r.digest)?;
    writeln!(out, "file         {}", report.path.display())?;
    writeln!(out, "size         {} ({} bytes)", bytes(r.size), r.size)?;
    writeln!(out, "created      {}", age(r.created))?;
    writeln!(out, "source       {}", describe(&r.source))?;
    if let Source::Packages { packages, .. } = &r.source {
        writeln!(out, "packages     {}", packages.join(" "))?;
    }
    writeln!(out, "files        {files} ({} of data)", bytes(data))?;
    writeln!(out, "directories  {directories}")?;
    writeln!(out, "symlinks     {symlinks}")?;
    writeln!(out, "special      {special}")?;
    patches(out, r.patches.as_ref())?;
    if let Some(oci) = &r.oci {
        if !oci.manifest.is_empty() {
            writeln!(out, "manifest     {} ({} layers)", oci.manifest, oci.blobs.len().saturating_sub(2))?;
        }
        let c = &oci.config;
        let lists = [("entrypoint", &c.entrypoint), ("command", &c.cmd), ("environment", &c.env)];
        for (what, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
            writeln!(out, "{what:<12} {}", shown(&list.join(" ")))?;
        }
        let texts = [("user", &c.user), ("workdir", &c.working_dir), ("stop signal", &c.stop_signal)];
        for (what, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
            writeln!(out, "{what:<12} {}", shown(text))?;
        }
    }
    match &report.verified {
        None => writeln!(out, "check        skipped"),
        Some(found) => {
            writeln!(out, "names        {}", found.names)?;
            writeln!(out, "set-id       {}", found.set_id)?;
            writeln!(out, "with xattrs  {}", found.with_xattrs)?;
            writeln!(out, "check        digest and every inode are right")
        }
    }
}

/// What became of the system calls of its programs.
fn patches(out: &mut impl Write, report: Option<&PatchReport>) -> io::Result<()> {
    let Some(p) = report else { return writeln!(out, "patches      none: every system call traps") };
    let percent = (p.rule_a + p.rule_b) * 100 / p.sites.max(1);
    writeln!(out, "patches      {} of {} programs and libraries, {}", p.files, p.scanned, bytes(p.bytes))?;
    writeln!(
        out,
        "  sites      {}: {percent} % patched ({} by rule a, {} by rule b)",
        p.sites, p.rule_a, p.rule_b
    )?;
    for (why, sites) in &p.trapped {
        writeln!(out, "  trap       {sites} sites: {why}")?;
    }
    for (why, files) in &p.refused {
        writeln!(out, "  left       {files} files: {why}")?;
    }
    for f in &p.top {
        writeln!(out, "  {:>5} sites, {:>5} a, {:>4} b  {}", f.sites, f.rule_a, f.rule_b, f.path)?;
    }
    Ok(())
}

fn describe(source: &Source) -> String {
    match source {
        Source::Directory { path } => format!("directory {}", path.display()),
        Source::Archive { path } if path.as_os_str() == "-" => "archive (standard input)".into(),
        Source::Archive { path } => format!("archive {}", path.display()),
        Source::Oci { reference } => reference.clone(),
        Source::Domain { name, image } => format!("domain {name} of {image}"),
        Source::Packages { suite, packages } => format!("{suite} + {} packages", packages.len()),
    }
}

/// Text of an image, fit for a terminal.
fn shown(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// A size for people.
pub fn bytes(n: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

/// How long ago, for people.
fn age(created: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (n, unit) = match now.saturating_sub(created) {
        s @ 0..60 => (s, "second"),
        s @ 60..3600 => (s / 60, "minute"),
        s @ 3600..86400 => (s / 3600, "hour"),
        s => (s / 86400, "day"),
    };
    format!("{n} {unit}{} ago", if n == 1 { "" } else { "s" })
}
