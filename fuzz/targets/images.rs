//! Arbitrary bytes as an archive of images, as a tree's archive, and as the documents and layers of an archive whose
//! digests are right, so that what lies behind them is reached: an error or an image that holds together, nothing else.
//!
//! Parts of an input are separated by a line of `--`: manifest, configuration, layers. In the manifest and the
//! configuration `@0`, `@1`... stand for the digests of the configuration and the layers.
#![no_main]

use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::sync::LazyLock;

use doppel_image::{Limits, Store};
use doppel_oci::{Cancel, Event, Import, Platform, Progress};
use sha2::{Digest, Sha256};

/// What an input may grow to.
const LIMITS: Limits = Limits { bytes: 1 << 20, nodes: 1000 };

struct Quiet;

impl Progress for Quiet {
    fn event(&self, _: Event<'_>) {}
}

static STORE: LazyLock<(tempfile::TempDir, Store)> = LazyLock::new(|| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("room in memory");
    let store = Store::at(dir.path().to_owned()).without_patches();
    (dir, store)
});

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile_in("/dev/shm").expect("room in memory");
    file.write_all(bytes).expect("room in memory");
    file.rewind().expect("a file");
    file
}

fn import(bytes: &[u8]) {
    let store = &STORE.1;
    let import = Import {
        path: PathBuf::from("fuzz"),
        file: Some(file(bytes)),
        name: "fuzz".into(),
        pick: None,
        platform: Platform::default(),
        limits: LIMITS,
    };
    if doppel_oci::import(store, import, &Quiet, &Cancel::default()).is_ok() {
        let image = store.open("fuzz").expect("it is there");
        image.verify().expect("it holds together");
        store.remove("fuzz").expect("it goes again");
        doppel_oci::Blobs::prune(store).expect("its layers too");
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The parts of an input.
fn parts(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut all, mut rest) = (Vec::new(), bytes);
    while let Some(at) = rest.windows(4).position(|w| w == b"\n--\n") {
        all.push(&rest[..at]);
        rest = &rest[at + 4..];
    }
    all.push(rest);
    all
}

/// A document with digests in their places.
fn filled(text: &[u8], digests: &[String]) -> Vec<u8> {
    let mut text = String::from_utf8_lossy(text).into_owned();
    for (n, digest) in digests.iter().enumerate() {
        text = text.replace(&format!("@{n}"), &format!("sha256:{digest}"));
    }
    text.into_bytes()
}

fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, bytes.as_slice()).expect("in memory");
    }
    tar.into_inner().expect("in memory")
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    import(bytes);
    let spool = file(b"");
    let _ = doppel_image::from_tar(bytes, &spool, LIMITS);
    let _ = std::str::from_utf8(bytes).map(|text| text.parse::<doppel_oci::Reference>().map(|r| r.familiar()));

    let parts = parts(bytes);
    let [manifest, config, layers @ ..] = parts.as_slice() else { return };
    let layer_digests: Vec<String> = layers.iter().map(|l| digest(l)).collect();
    // The configuration names layers 1, 2...; itself it cannot name.
    let known: Vec<String> = std::iter::once(String::new()).chain(layer_digests.clone()).collect();
    let config = filled(config, &known);
    let known: Vec<String> = std::iter::once(digest(&config)).chain(layer_digests.clone()).collect();
    let manifest = filled(manifest, &known);
    let (name, size) = (digest(&manifest), manifest.len());
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{{"digest":"sha256:{name}","size":{size}}}]}}"#);
    let blob = |digest: &String, bytes: &[u8]| (format!("blobs/sha256/{digest}"), bytes.to_vec());
    let mut files = vec![
        ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
        ("index.json".to_owned(), index.into_bytes()),
        blob(&name, &manifest),
        blob(&known[0], &config),
    ];
    files.extend(layer_digests.iter().zip(layers).map(|(digest, layer)| blob(digest, layer)));
    import(&archive(&files));
});
