//! `doppel frozen push` and `pull`: a frozen image as an artifact in a registry, with its root image beside it.

use std::error::Error;
use std::io;
use std::time::Duration;

use doppel_freezer::FrozenImage;
use doppel_image::{Limits, Store};
use doppel_oci::{Artifact, ArtifactKind, Cancel, Platform, Pull, Reference};

use crate::standalone::image::LimitArgs;
use crate::standalone::registry::RegistryArgs;
use crate::standalone::run::{frozen_store, place};
use crate::terminal::bars::Bars;
use crate::terminal::out::say;

/// What `doppel frozen export` writes, compressed.
const FROZEN: ArtifactKind = ArtifactKind {
    artifact_type: "application/vnd.doppel.frozen.v1",
    media_type: "application/vnd.doppel.frozen.export.v1+gzip",
    what: "a frozen image",
};

/// Options of `doppel frozen push`.
#[derive(clap::Args)]
pub struct PushArgs {
    /// Its name
    frozen: String,
    /// Where to, with a tag
    reference: Reference,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// Options of `doppel frozen pull`.
#[derive(clap::Args)]
pub struct PullArgs {
    /// Where it is
    reference: Reference,
    /// The name it gets; by default the last part of the repository's
    frozen: Option<String>,
    /// Keep it in memory instead of on disk
    #[arg(long)]
    in_memory: bool,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

fn artifact(reference: Reference, registry: &RegistryArgs) -> Artifact {
    let timeout = Duration::from_secs(registry.timeout);
    Artifact { kind: FROZEN, reference, plain_http: registry.plain_http, credentials: None, timeout }
}

/// The name of a root image that is in the store.
fn root_image(store: &Store, frozen: &FrozenImage) -> Result<Option<String>, Box<dyn Error>> {
    let wanted = frozen.describe().image_digest;
    let all = store.list()?.into_iter().filter_map(|(_, record)| record.ok());
    Ok(all.into_iter().find(|record| record.digest == wanted).map(|record| record.name))
}

/// Pushes one, and its root image.
pub fn push(args: PushArgs) -> Result<(), Box<dyn Error>> {
    let (store, all) = (Store::from_env(), frozen_store());
    let frozen = all.open(&args.frozen)?;
    let image = root_image(&store, &frozen)?.ok_or_else(|| {
        format!(
            "the root image of {}, {}, is not in the store any more: pull or import it again",
            args.frozen,
            frozen.image_path()
        )
    })?;
    let write = |out: &mut dyn io::Write| all.export(&args.frozen, out).map(drop).map_err(io::Error::other);
    let artifact = artifact(args.reference, &args.registry);
    let done = artifact.push(&store, &image, write, &Bars::new(), &Cancel::default())?;
    let (sent, there) = (done.sent, done.existed);
    Ok(say!("{}: {sent} blobs sent, {there} were there, manifest {}", done.reference, done.manifest)?)
}

/// Pulls one, and its root image if that is not there.
pub fn pull(args: PullArgs) -> Result<(), Box<dyn Error>> {
    let (store, all) = (Store::from_env(), frozen_store());
    let last = args.reference.repository().rsplit('/').next().unwrap_or_default().to_owned();
    let name = args.frozen.unwrap_or(last);
    // Before anything is fetched.
    all.vacant(&name, place(args.in_memory))?;
    let limits: Limits = args.limits.into();
    let bars = Bars::new();
    let cancel = Cancel::default();
    let artifact = artifact(args.reference, &args.registry);
    let image = |reference: Reference| -> Result<(), Box<dyn Error>> {
        let Artifact { plain_http, timeout, .. } = artifact;
        let platform = Platform::default();
        let pull = Pull { reference, name: None, platform, plain_http, credentials: None, timeout, limits };
        pull.run(&bars.watch(&store), &bars, &cancel)?;
        Ok(())
    };
    let read = |from: &mut dyn io::Read| -> Result<FrozenImage, Box<dyn Error>> {
        Ok(all.import(&name, place(args.in_memory), from)?)
    };
    let frozen = artifact.pull(&store, limits.bytes, image, read, &bars, &cancel)?;
    if root_image(&store, &frozen)?.is_none() {
        let digest = frozen.describe().image_digest;
        drop(frozen);
        all.remove(&name)?;
        let why = "the one in the registry becomes another one here, as another version of doppel makes it";
        return Err(format!("the root image of {name} is sha256:{digest}, but {why}").into());
    }
    if !frozen.root_image().exists() {
        drop(frozen);
        all.remove(&name)?;
        return Err(format!(
            "{name} was frozen with its store elsewhere, so it must be beside its root image: pull it without --in-memory"
        )
        .into());
    }
    Ok(say!("{name}")?)
}
