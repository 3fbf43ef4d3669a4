//! Artifacts: one file of a kind of its own in a registry, and the root image that it goes with, in the same repository.
//!
//! An artifact is an image manifest of schema 2 with an `artifactType` (OCI image specification 1.1): its configuration is the empty one,
//! its one layer the file, compressed. An annotation names the manifest of the image, which is pushed without a tag.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

use doppel_image::Store;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::blobs::Blobs;
use crate::client::Client;
use crate::digest::Hashed;
use crate::download::Fetch;
use crate::error::{IoContext, printable};
use crate::model::{DOCUMENT_MAX, Descriptor, OCI_MANIFEST};
use crate::push::{self, descriptor, manifest_of};
use crate::{Cancel, Credentials, Digest, Error, Event, Progress, Pushed, Reference, Result};

const EMPTY: &str = "application/vnd.oci.empty.v1+json";
const EMPTY_CONFIG: &[u8] = b"{}";
/// Digest of the manifest of the image that goes with it.
const IMAGE: &str = "doppel.image.manifest";

/// A kind of artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtifactKind {
    /// Of the manifest.
    pub artifact_type: &'static str,
    /// Of its file, compressed.
    pub media_type: &'static str,
    /// As messages call it, with its article.
    pub what: &'static str,
}

/// What to push or pull, and how.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// Its kind.
    pub kind: ArtifactKind,
    /// Where it is.
    pub reference: Reference,
    /// Plain HTTP also to a registry elsewhere.
    pub plain_http: bool,
    /// User and password, in place of those in Docker's configuration.
    pub credentials: Option<Credentials>,
    /// How long a registry may say nothing.
    pub timeout: Duration,
}

/// The manifest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    artifact_type: String,
    config: Descriptor,
    layers: Vec<Descriptor>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Artifact {
    fn client<'a>(&'a self, push: bool, cancel: &'a Cancel) -> Client {
        let credentials = self.credentials.as_ref();
        Client::new(&self.reference, self.plain_http, push, self.timeout, credentials, cancel)
    }

    /// Pushes what `write` writes, and the image with this name.
    ///
    /// # Errors
    /// What the store, `write` or the registry says.
    pub fn push(
        &self,
        store: &Store,
        image: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        progress: &dyn Progress,
        cancel: &Cancel,
    ) -> Result<Pushed> {
        if self.reference.digest().is_some() {
            return Err(Error::invalid(self.reference.to_string(), "a push needs a tag, not a digest"));
        }
        let blobs = Blobs::open(store)?;
        let client = self.client(true, cancel);
        let (digest, bytes, its) = manifest_of(store, &blobs, image, progress)?;
        progress.event(Event::Resolved { manifest: &digest, layers: its.layers.len() + 1 });
        let mut counts = push::send_all(&client, &blobs, its.blobs(), progress, cancel)?;
        client.put_manifest(&digest.to_string(), its.media_type(), &bytes)?;

        progress.event(Event::Write);
        let file = blobs.create()?;
        let (layer, size) = pack(file.as_file(), write).doing("write", file.path())?;
        blobs.keep(file, &layer)?;
        let manifest = Manifest {
            schema_version: 2,
            media_type: OCI_MANIFEST.into(),
            artifact_type: self.kind.artifact_type.into(),
            config: descriptor(EMPTY, blobs.put(EMPTY_CONFIG)?, EMPTY_CONFIG.len() as u64),
            layers: vec![descriptor(self.kind.media_type, layer.clone(), size)],
            annotations: BTreeMap::from([(IMAGE.to_owned(), digest.to_string())]),
        };
        let sent = push::send_all(
            &client,
            &blobs,
            manifest.layers.iter().chain([&manifest.config]),
            progress,
            cancel,
        );
        // It is nobody's blob here.
        blobs.forget(&layer)?;
        let (sent, existed) = sent?;
        counts = (counts.0 + sent, counts.1 + existed);
        let bytes = push::encode(&manifest)?;
        client.put_manifest(&self.reference.manifest(), OCI_MANIFEST, &bytes)?;
        let (sent, existed) = counts;
        Ok(Pushed { reference: self.reference.to_string(), manifest: Digest::of(&bytes), sent, existed })
    }

    /// Pulls it: `image` is told what the image that goes with it is called in its registry, then `read` reads the file. Of either form, neither
    /// may be larger than `most` bytes.
    ///
    /// # Errors
    /// What is there is something else, or what the registry, the store, `image` or `read` says.
    pub fn pull<T, E: From<Error>>(
        &self,
        store: &Store,
        most: u64,
        image: impl FnOnce(Reference) -> std::result::Result<(), E>,
        read: impl FnOnce(&mut dyn Read) -> std::result::Result<T, E>,
        progress: &dyn Progress,
        cancel: &Cancel,
    ) -> std::result::Result<T, E> {
        let client = self.client(false, cancel);
        let (bytes, digest) = client.manifest(&self.reference.manifest(), self.reference.digest())?;
        let (layer, its) = self.check(&bytes, most)?;
        progress.event(Event::Resolved { manifest: &digest, layers: 1 });
        image(self.reference.clone().with_digest(its))?;
        let blobs = Blobs::open(store)?;
        let fetched = Fetch::new(&client, &blobs, progress, cancel).one(&layer);
        let opened = fetched.and_then(|()| blobs.get(&layer.digest));
        let done = opened.map_err(E::from).and_then(|(file, _)| read(&mut Bounded::new(file, most)));
        // It is nobody's blob here.
        blobs.forget(&layer.digest)?;
        done
    }

    /// The layer of a manifest that is one of this kind, and the image's manifest.
    fn check(&self, bytes: &[u8], most: u64) -> Result<(Descriptor, Digest)> {
        let bad = |why: String| Error::invalid(format!("the manifest of {}", self.reference), why);
        if bytes.len() as u64 > DOCUMENT_MAX {
            return Err(bad(format!("it is longer than {DOCUMENT_MAX} bytes")));
        }
        let what = self.kind.what;
        let manifest: Manifest =
            serde_json::from_slice(bytes).map_err(|e| bad(format!("it is not {what}: {e}")))?;
        if manifest.artifact_type != self.kind.artifact_type {
            let found = match manifest.artifact_type.as_str() {
                "" => "an image: `doppel image pull` pulls those".to_owned(),
                other => format!("of type {:?}", printable(other)),
            };
            return Err(bad(format!("it is not {what}, but {found}")));
        }
        let [layer] = manifest.layers.as_slice() else {
            return Err(bad(format!("it has {} layers, not 1", manifest.layers.len())));
        };
        if layer.media_type != self.kind.media_type {
            return Err(bad(format!("its layer is of type {:?}", printable(&layer.media_type))));
        }
        if layer.size > most {
            return Err(bad(format!("it has {} bytes; {most} are allowed (--max-bytes)", layer.size)));
        }
        let image = manifest.annotations.get(IMAGE).ok_or_else(|| bad("it names no image".into()))?;
        let image = Digest::parse(image).map_err(|why| bad(format!("the image it names: {why}")))?;
        Ok((layer.clone(), image))
    }
}

/// Compresses what `write` writes; its digest and size then.
fn pack(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<(Digest, u64)> {
    let packed = Hashed { out: io::BufWriter::with_capacity(1 << 18, file), hash: Sha256::new(), len: 0 };
    let mut plain = GzEncoder::new(packed, Compression::new(1));
    write(&mut plain)?;
    let Hashed { mut out, hash, len } = plain.finish()?;
    out.flush()?;
    Ok((Digest::finish(hash), len))
}

/// Decompresses, so many bytes at most.
struct Bounded {
    from: MultiGzDecoder<io::BufReader<File>>,
    left: u64,
}

impl Bounded {
    fn new(file: File, most: u64) -> Self {
        Self { from: MultiGzDecoder::new(io::BufReader::with_capacity(1 << 18, file)), left: most }
    }
}

impl Read for Bounded {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(buf)?;
        let left = self.left.checked_sub(n as u64);
        self.left =
            left.ok_or_else(|| io::Error::other("decompressed, it is larger than allowed (--max-bytes)"))?;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: ArtifactKind = ArtifactKind { artifact_type: "a/b", media_type: "c/d+gzip", what: "a thing" };

    fn artifact() -> Artifact {
        let reference = "localhost:1/team/thing:1".parse().unwrap();
        let timeout = Duration::from_secs(1);
        Artifact { kind: KIND, reference, plain_http: false, credentials: None, timeout }
    }

    fn manifest(change: impl FnOnce(&mut Manifest)) -> Vec<u8> {
        let layer = descriptor(KIND.media_type, Digest::of(b"x"), 100);
        let mut manifest = Manifest {
            schema_version: 2,
            media_type: OCI_MANIFEST.into(),
            artifact_type: KIND.artifact_type.into(),
            config: descriptor(EMPTY, Digest::of(EMPTY_CONFIG), 2),
            layers: vec![layer],
            annotations: BTreeMap::from([(IMAGE.into(), Digest::of(b"image").to_string())]),
        };
        change(&mut manifest);
        serde_json::to_vec(&manifest).unwrap()
    }

    #[test]
    fn what_is_another_thing_is_refused() {
        let why = |bytes: &[u8]| artifact().check(bytes, 1000).unwrap_err().to_string();
        assert_eq!(artifact().check(&manifest(|_| {}), 1000).unwrap().1, Digest::of(b"image"));
        assert!(why(&manifest(|m| m.artifact_type.clear())).contains("but an image: `doppel image pull`"));
        assert!(why(&manifest(|m| m.artifact_type = "x\x1b".into())).contains("of type \"x"));
        assert!(why(&manifest(|m| m.layers.clear())).contains("0 layers"));
        assert!(
            why(&manifest(|m| m.layers[0].media_type = "e".into())).contains("its layer is of type \"e\"")
        );
        assert!(why(&manifest(|m| m.layers[0].size = 1001)).contains("1000 are allowed"));
        assert!(why(&manifest(|m| m.annotations.clear())).contains("names no image"));
        assert!(
            why(&manifest(|m| drop(m.annotations.insert(IMAGE.into(), "sha256:0".into()))))
                .contains("the image it names")
        );
        assert!(why(b"{}").contains("is not a thing"));
        assert!(why(&vec![b' '; DOCUMENT_MAX as usize + 1]).contains("longer"));
    }

    #[test]
    fn what_is_packed_is_read_again_as_far_as_that_is_allowed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let data = vec![7; 100_000];
        let (digest, size) = pack(file.as_file(), |out| out.write_all(&data)).unwrap();
        assert_eq!((digest, size), {
            let bytes = std::fs::read(file.path()).unwrap();
            (Digest::of(&bytes), bytes.len() as u64)
        });
        let read = |most| {
            let mut back = Vec::new();
            Bounded::new(File::open(file.path()).unwrap(), most).read_to_end(&mut back).map(|_| back)
        };
        assert!(read(100_000).unwrap() == data);
        assert!(read(99_999).unwrap_err().to_string().contains("--max-bytes"));
    }
}
