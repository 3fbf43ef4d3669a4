//! Writing an image as an archive that Docker, podman, skopeo and umoci read: an OCI layout in a tar, with the
//! `manifest.json` of `docker save` beside it.

use std::collections::BTreeSet;
use std::io::{Read, Write};

use doppel_image::Store;
use tar::{Builder, EntryType, Header};

use crate::error::IoContext;
use crate::push::{descriptor, manifest_of};
use crate::{Blobs, Digest, Error, Progress, Reference, Result};

/// Writes image `name` to `out`. Returns the digest of its manifest.
pub fn save(store: &Store, name: &str, out: impl Write, progress: &dyn Progress) -> Result<Digest> {
    let blobs = Blobs::open(store)?;
    let (digest, bytes, manifest) = manifest_of(store, &blobs, name, progress)?;
    let mut entry = descriptor(manifest.media_type(), digest.clone(), bytes.len() as u64);
    entry.annotations.insert("org.opencontainers.image.ref.name".into(), name.into());
    let index =
        serde_json::json!({ "schemaVersion": 2, "mediaType": crate::model::OCI_INDEX, "manifests": [entry] });
    let blob = |d: &Digest| format!("blobs/sha256/{}", d.hex());
    let tags: Vec<String> =
        name.parse::<Reference>().iter().filter(|r| r.tag().is_some()).map(Reference::familiar).collect();
    let layers: Vec<String> = manifest.layers.iter().map(|l| blob(&l.digest)).collect();
    let docker =
        serde_json::json!([{ "Config": blob(&manifest.config.digest), "RepoTags": tags, "Layers": layers }]);
    let mut tar = Builder::new(out);
    let doing = |r: std::io::Result<()>| {
        r.map_err(|source| Error::Io { what: format!("write the archive of {name}"), source })
    };
    for (path, text) in [
        ("oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}".to_owned()),
        ("index.json", index.to_string()),
        ("manifest.json", docker.to_string()),
    ] {
        doing(append(&mut tar, path, text.len() as u64, text.as_bytes()))?;
    }
    let all: BTreeSet<&Digest> = manifest.blobs().map(|d| &d.digest).chain([&digest]).collect();
    for digest in all {
        let (file, size) = blobs.get(digest)?;
        doing(append(&mut tar, &blob(digest), size, file))?;
    }
    let mut out = tar.into_inner().doing("write", name.as_ref())?;
    out.flush().doing("write", name.as_ref())?;
    Ok(digest)
}

fn append(tar: &mut Builder<impl Write>, path: &str, size: u64, data: impl Read) -> std::io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_path(path)?;
    header.set_mode(0o644);
    header.set_size(size);
    header.set_mtime(0);
    header.set_cksum();
    tar.append(&header, data)
}
