//! Pushing an image: its blobs as they were pulled, or one layer made of the root image.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use doppel_image::{ImageConfig, Oci, OpenImage, Store, write_tar};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::blobs::Blobs;
use crate::client::Client;
use crate::digest::Hashed;
use crate::error::IoContext;
use crate::model::{
    Config, DOCUMENT_MAX, Descriptor, Document, Manifest, OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, Platform,
    RootFs,
};
use crate::{Cancel, Credentials, Digest, Error, Event, Progress, Reference, Result};

const TRIES: u32 = 3;

/// What to push.
#[derive(Clone, Debug)]
pub struct Push {
    /// Name of the image in the store.
    pub name: String,
    /// Where to.
    pub reference: Reference,
    /// Plain HTTP also to a registry elsewhere.
    pub plain_http: bool,
    /// User and password, in place of those in Docker's configuration.
    pub credentials: Option<Credentials>,
    /// How long a registry may say nothing.
    pub timeout: Duration,
}

/// What was pushed.
#[derive(Clone, Debug, Serialize)]
pub struct Pushed {
    /// Where to.
    pub reference: String,
    /// Digest of the manifest.
    pub manifest: Digest,
    /// Blobs that were sent.
    pub sent: u64,
    /// Blobs that were there.
    pub existed: u64,
}

impl Push {
    /// Pushes.
    pub fn run(&self, store: &Store, progress: &dyn Progress, cancel: &Cancel) -> Result<Pushed> {
        let blobs = Blobs::open(store)?;
        let (digest, bytes, manifest) = manifest_of(store, &blobs, &self.name, progress)?;
        if self.reference.digest().is_some_and(|d| *d != digest) {
            let why = format!("the image's manifest is {digest}");
            return Err(Error::invalid(self.reference.to_string(), why));
        }
        progress.event(Event::Resolved { manifest: &digest, layers: manifest.layers.len() });
        let client = Client::new(
            &self.reference,
            self.plain_http,
            true,
            self.timeout,
            self.credentials.as_ref(),
            cancel,
        );
        let (sent, existed) = send_all(&client, &blobs, manifest.blobs(), progress, cancel)?;
        client.put_manifest(&self.reference.manifest(), manifest.media_type(), &bytes)?;
        Ok(Pushed { reference: self.reference.to_string(), manifest: digest, sent, existed })
    }
}

/// Sends blobs that are not there; how many were sent, and how many were there.
pub(crate) fn send_all<'a>(
    client: &Client,
    blobs: &Blobs,
    all: impl Iterator<Item = &'a Descriptor>,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<(u64, u64)> {
    let (mut sent, mut existed) = (0, 0);
    for blob in all {
        let new = send(client, blobs, blob, progress, cancel)?;
        *if new { &mut sent } else { &mut existed } += 1;
    }
    Ok((sent, existed))
}

/// Sends a blob unless it is there; tries again when the connection breaks.
fn send(
    client: &Client,
    blobs: &Blobs,
    blob: &Descriptor,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<bool> {
    let digest = &blob.digest;
    for tries in 1.. {
        cancel.check()?;
        let attempt = || -> Result<bool> {
            if client.has_blob(digest)? {
                progress.event(Event::Done { blob: digest, existed: true });
                return Ok(false);
            }
            let (file, size) = blobs.get(digest)?;
            progress.event(Event::Begin { blob: digest, size, have: 0 });
            client.upload(digest, size, ProgressReader { file, digest, done: 0, progress })?;
            progress.event(Event::Done { blob: digest, existed: false });
            Ok(true)
        };
        match attempt() {
            Err(e) if e.passes() && tries < TRIES => {
                progress.event(Event::Retry { blob: digest, why: &e.to_string() });
                std::thread::sleep(Duration::from_millis(200 << tries));
            }
            other => return other,
        }
    }
    Ok(false)
}

/// A file that tells how much of it was read.
struct ProgressReader<'a> {
    file: File,
    digest: &'a Digest,
    done: u64,
    progress: &'a dyn Progress,
}

impl Read for ProgressReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buf)?;
        self.done += n as u64;
        self.progress.event(Event::Bytes { blob: self.digest, done: self.done });
        Ok(n)
    }
}

/// The manifest of image `name`; an image that was never an OCI image becomes one of one layer.
pub(crate) fn manifest_of(
    store: &Store,
    blobs: &Blobs,
    name: &str,
    progress: &dyn Progress,
) -> Result<(Digest, Vec<u8>, Manifest)> {
    let oci = match store.record(name)?.oci {
        Some(oci) if !oci.manifest.is_empty() => oci,
        oci => make_layer(store, blobs, name, oci.unwrap_or_default().config, progress)?,
    };
    let bad = |why: &str| Error::invalid(format!("image {name}"), why);
    let digest = Digest::parse(&oci.manifest).map_err(bad)?;
    let bytes = blobs.bytes(&digest, DOCUMENT_MAX)?;
    match Document::parse(&bytes, name)? {
        Document::Image(manifest) => Ok((digest, bytes, manifest)),
        Document::Index(_) => Err(bad("its manifest is an index")),
    }
}

/// Makes one layer of a root image, its configuration and manifest, and notes them in the image's record.
fn make_layer(
    store: &Store,
    blobs: &Blobs,
    name: &str,
    config: ImageConfig,
    progress: &dyn Progress,
) -> Result<Oci> {
    progress.event(Event::Write);
    let image = store.open(name)?;
    let file = blobs.create()?;
    let path = file.path().to_owned();
    let (diff_id, layer, size) = pack(&image, file.as_file(), &path)?;
    blobs.keep(file, &layer)?;
    let platform = Platform::default();
    let config = Config {
        architecture: platform.architecture,
        os: platform.os,
        config: Some(config),
        rootfs: RootFs { kind: "layers".into(), diff_ids: vec![diff_id] },
    };
    let layer = descriptor(&format!("{OCI_LAYER}+gzip"), layer, size);
    write_down(store, blobs, name, &config, vec![layer])
}

/// Writes all of an image as a compressed layer; returns its digest before, its digest after, and its size.
fn pack(image: &OpenImage, file: &File, path: &Path) -> Result<(Digest, Digest, u64)> {
    let packed = Hashed { out: io::BufWriter::with_capacity(1 << 18, file), hash: Sha256::new(), len: 0 };
    let mut plain = Hashed { out: GzEncoder::new(packed, Compression::new(4)), hash: Sha256::new(), len: 0 };
    write_tar(&image.file, &image.path, &mut plain)?;
    let Hashed { mut out, hash, len } = plain.out.finish().doing("write", path)?;
    out.flush().doing("write", path)?;
    Ok((Digest::finish(plain.hash), Digest::finish(hash), len))
}

/// Keeps a configuration and a manifest of these layers, and notes them in the image's record.
fn write_down(
    store: &Store,
    blobs: &Blobs,
    name: &str,
    config: &Config,
    layers: Vec<Descriptor>,
) -> Result<Oci> {
    let (_, manifest) = documents(blobs, config, layers)?;
    let all: Vec<String> = std::iter::once(manifest.0.to_string())
        .chain(manifest.1.blobs().map(|d| d.digest.to_string()))
        .collect();
    let oci = Oci {
        manifest: manifest.0.to_string(),
        blobs: all,
        config: config.config.clone().unwrap_or_default(),
    };
    store.set_oci(name, oci.clone())?;
    Ok(oci)
}

/// Keeps a configuration and a manifest of these layers as blobs.
pub(crate) fn documents(
    blobs: &Blobs,
    config: &Config,
    layers: Vec<Descriptor>,
) -> Result<(Vec<u8>, (Digest, Manifest))> {
    let config = encode(config)?;
    let digest = blobs.put(&config)?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: OCI_MANIFEST.into(),
        config: descriptor(OCI_CONFIG, digest, config.len() as u64),
        layers,
    };
    let bytes = encode(&manifest)?;
    let digest = blobs.put(&bytes)?;
    Ok((bytes, (digest, manifest)))
}

/// A document as its registry keeps it.
pub(crate) fn encode(document: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(document).map_err(|e| Error::Io { what: "encode a manifest".into(), source: e.into() })
}

pub(crate) fn descriptor(media_type: &str, digest: Digest, size: u64) -> Descriptor {
    Descriptor {
        media_type: media_type.into(),
        digest,
        size,
        platform: None,
        annotations: Default::default(),
    }
}
