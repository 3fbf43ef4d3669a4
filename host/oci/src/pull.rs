//! Pulling an image: manifest, blobs, layers one over the other, root image.

use std::time::Duration;

use doppel_image::{Limits, Oci, Record, Source, Staged, Store};

use crate::blobs::Blobs;
use crate::client::Client;
use crate::download::Fetch;
use crate::model::{Config, DOCUMENT_MAX, Descriptor, Document, Manifest};
use crate::{Cancel, Credentials, Digest, Error, Event, Platform, Progress, Reference, Result};

/// What to pull.
#[derive(Clone, Debug)]
pub struct Pull {
    /// From where.
    pub reference: Reference,
    /// Name it gets; the reference's short form if none is given.
    pub name: Option<String>,
    /// Which image of an index.
    pub platform: Platform,
    /// Plain HTTP also to a registry elsewhere.
    pub plain_http: bool,
    /// User and password, in place of those in Docker's configuration.
    pub credentials: Option<Credentials>,
    /// How long a registry may say nothing.
    pub timeout: Duration,
    /// How much the image may hold.
    pub limits: Limits,
}

/// A pulled or imported image.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// Its name and root image.
    pub record: Record,
    /// Its manifest.
    pub manifest: Digest,
    /// Whether anything was made: false when the name had this image already.
    pub fresh: bool,
}

impl Pull {
    /// Pulls.
    pub fn run(&self, store: &Store, progress: &dyn Progress, cancel: &Cancel) -> Result<Pulled> {
        let what = self.reference.to_string();
        let name = self.name.clone().unwrap_or_else(|| self.reference.familiar());
        let blobs = Blobs::open(store)?;
        let client = Client::new(
            &self.reference,
            self.plain_http,
            false,
            self.timeout,
            self.credentials.as_ref(),
            cancel,
        );
        let (bytes, digest, manifest) = self.resolve(&client, &what)?;
        progress.event(Event::Resolved { manifest: &digest, layers: manifest.layers.len() });
        let total = manifest.layers.iter().try_fold(0u64, |sum, l| sum.checked_add(l.size));
        if total.is_none_or(|t| t > self.limits.bytes) {
            let why =
                format!("its layers are more than the {} bytes allowed (--max-bytes)", self.limits.bytes);
            return Err(Error::invalid(what, why));
        }
        let fetch = Fetch::new(&client, &blobs, progress, cancel);
        fetch.one(&manifest.config)?;
        let make = Make::new(store, &blobs, &manifest, &self.platform, self.limits, &what)?;
        if let Some(record) = existing(store, &name, &digest)? {
            return Ok(Pulled { record, manifest: digest, fresh: false });
        }
        let mut make = make.told(progress);
        fetch.all(&manifest.layers, |at, layer| make.apply(at, layer))?;
        let source = Source::Oci { reference: what };
        let record = make.publish(&name, &bytes, source)?;
        Ok(Pulled { record, manifest: digest, fresh: true })
    }

    /// The manifest of the image for the platform.
    fn resolve(&self, client: &Client, what: &str) -> Result<(Vec<u8>, Digest, Manifest)> {
        let (mut bytes, mut digest) = client.manifest(&self.reference.manifest(), self.reference.digest())?;
        // An index may hold indexes.
        for _ in 0..3 {
            match Document::parse(&bytes, what)? {
                Document::Image(manifest) => return Ok((bytes, digest, manifest)),
                Document::Index(index) => {
                    let chosen = self.platform.choose(&index, what)?;
                    (bytes, digest) = client.manifest(&chosen.digest.to_string(), Some(&chosen.digest))?;
                    if bytes.len() as u64 != chosen.size {
                        return Err(Error::invalid(
                            format!("manifest {digest}"),
                            "its length is not the one its index states",
                        ));
                    }
                }
            }
        }
        Err(Error::invalid(format!("the manifest of {what}"), "indexes lead to indexes without end"))
    }
}

/// The image, if `name` or another name has it already as it would be made now.
pub(crate) fn existing(store: &Store, name: &str, manifest: &Digest) -> Result<Option<Record>> {
    let manifest = manifest.to_string();
    let good = |r: &Record| {
        r.oci.as_ref().is_some_and(|o| o.manifest == manifest)
            && store.patched_alike(r)
            && store.open(&r.name).is_ok()
    };
    let all: Vec<Record> = store.list()?.into_iter().filter_map(|(_, r)| r.ok()).filter(good).collect();
    if let Some(own) = all.iter().find(|r| r.name == name) {
        return Ok(Some(own.clone()));
    }
    match all.first() {
        Some(other) => Ok(Some(store.tag(&other.name, name)?)),
        None => Ok(None),
    }
}

/// A root image that is being made of layers.
pub(crate) struct Make<'a> {
    blobs: &'a Blobs,
    staged: Staged<'a>,
    manifest: &'a Manifest,
    config: Config,
    progress: &'a dyn Progress,
}

impl<'a> Make<'a> {
    /// Reads the configuration, whose blob must be there.
    pub(crate) fn new(
        store: &'a Store,
        blobs: &'a Blobs,
        manifest: &'a Manifest,
        platform: &Platform,
        limits: Limits,
        what: &str,
    ) -> Result<Self> {
        let bytes = blobs.bytes(&manifest.config.digest, DOCUMENT_MAX)?;
        let config = Config::parse(&bytes, manifest.layers.len(), what)?;
        if !platform.fits(&config.os, &config.architecture, "") {
            let found = crate::error::printable(&format!("{}/{}", config.os, config.architecture));
            return Err(Error::Platform { what: what.into(), platform: platform.to_string(), found });
        }
        Ok(Self { blobs, staged: store.stage(limits)?, manifest, config, progress: &|_: Event<'_>| {} })
    }

    pub(crate) fn told(mut self, progress: &'a dyn Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Puts layer number `at`, whose blob must be there, over those before it.
    pub(crate) fn apply(&mut self, at: usize, layer: &Descriptor) -> Result<()> {
        self.progress.event(Event::Apply { layer: &layer.digest });
        let (file, size) = self.blobs.get(&layer.digest)?;
        let result = self.staged.apply_layer(file, size);
        let wanted = &self.config.rootfs.diff_ids[at];
        match result {
            Ok(hex) if hex == wanted.hex() => Ok(()),
            result => {
                self.blobs.check(&layer.digest)?;
                Err(match result {
                    Ok(hex) => Error::invalid(
                        format!("layer {}", layer.digest),
                        format!(
                            "decompressed, its digest is sha256:{hex}, but the configuration says {wanted}"
                        ),
                    ),
                    Err(source) => Error::Layer { layer: layer.digest.to_string(), source },
                })
            }
        }
    }

    /// Writes the root image and gives it `name`.
    pub(crate) fn publish(self, name: &str, manifest: &[u8], source: Source) -> Result<Record> {
        self.progress.event(Event::Write);
        let digest = self.blobs.put(manifest)?;
        let mut blobs = vec![digest.to_string()];
        blobs.extend(self.manifest.blobs().map(|d| d.digest.to_string()));
        let config = self.config.config.unwrap_or_default();
        let oci = Oci { manifest: digest.to_string(), blobs, config };
        Ok(self.staged.publish(name, source, Some(oci))?)
    }
}
