//! Reading images from OCI layouts (a directory, or a tar of one) and from `docker save` archives.
//!
//! Boundary: archives are hostile. Of a tar only the headers are read to find what lies where; names are looked up, not
//! followed; every blob is checked against its digest before it counts.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use doppel_image::{Limits, Source, Store, decompressed};
use serde::Deserialize;
use tar::{EntryType, Header};

use crate::error::{IoContext, printable};
use crate::model::{Config, DOCUMENT_MAX, Descriptor, Document, Manifest, OCI_LAYER};
use crate::pull::{Make, Pulled, existing};
use crate::push::{descriptor, documents};
use crate::{Blobs, Cancel, Digest, Error, Event, Platform, Progress, Result};

const RECORD: u64 = 512;
/// Most entries of an archive of images.
const ENTRIES_MAX: usize = 100_000;
const REF_NAME: &str = "org.opencontainers.image.ref.name";
const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// What to import.
#[derive(Debug)]
pub struct Import {
    /// Directory, or archive; for messages if `file` is given.
    pub path: PathBuf,
    /// The archive, if it is not to be opened by its path.
    pub file: Option<File>,
    /// Name the image gets.
    pub name: String,
    /// Which of several images: a tag or reference name in the archive.
    pub pick: Option<String>,
    /// Which image of an index.
    pub platform: Platform,
    /// How much the image may hold.
    pub limits: Limits,
}

/// Whether a directory is an OCI layout.
#[must_use]
pub fn is_layout(dir: &Path) -> bool {
    dir.join("oci-layout").is_file() && dir.join("index.json").is_file()
}

/// Looks at the first entry of a (possibly compressed) tar, and says whether it is an archive of images rather than of
/// a root file system. Also returns the stream, decompressed and from its start.
pub fn sniff<'a>(source: impl Read + 'a) -> io::Result<(bool, Box<dyn Read + 'a>)> {
    let mut plain = decompressed(source)?;
    let mut head = Vec::new();
    plain.by_ref().take(RECORD).read_to_end(&mut head)?;
    let name = head.get(..100).unwrap_or_default();
    let name = name.split(|b| *b == 0).next().unwrap_or_default();
    let images = std::str::from_utf8(name).is_ok_and(is_image_entry);
    Ok((images, Box::new(io::Cursor::new(head).chain(plain))))
}

/// Whether archives of images begin with such a name, and roots do not.
fn is_image_entry(name: &str) -> bool {
    let name = name.strip_prefix("./").unwrap_or(name);
    let hex = |t: &str| t.len() == 64 && t.bytes().all(|b| b.is_ascii_hexdigit());
    let stem = name.split(['/', '.']).next().unwrap_or_default();
    matches!(name, "oci-layout" | "index.json" | "manifest.json" | "repositories" | "blobs" | "blobs/")
        || name.starts_with("blobs/sha256")
        || hex(stem)
}

/// Imports an image of a layout or archive.
pub fn import(store: &Store, import: Import, progress: &dyn Progress, cancel: &Cancel) -> Result<Pulled> {
    let blobs = Blobs::open(store)?;
    let bundle = match import.file {
        None if import.path.is_dir() => Bundle::Directory(import.path.clone()),
        file => {
            let file = match file {
                Some(file) => file,
                None => File::open(&import.path).doing("open", &import.path)?,
            };
            Bundle::archive(plain_file(store, file, import.limits, &import.path)?)?
        }
    };
    let what = import.path.display().to_string();
    let task = Task { bundle: &bundle, blobs: &blobs, what: &what, progress, cancel };
    let (bytes, manifest) = match bundle.has("index.json") {
        true => task.layout(import.pick.as_deref(), &import.platform)?,
        false => task.docker(import.pick.as_deref())?,
    };
    let digest = Digest::of(&bytes);
    progress.event(Event::Resolved { manifest: &digest, layers: manifest.layers.len() });
    if let Some(record) = existing(store, &import.name, &digest)? {
        return Ok(Pulled { record, manifest: digest, fresh: false });
    }
    let mut make =
        Make::new(store, &blobs, &manifest, &import.platform, import.limits, &what)?.told(progress);
    for (at, layer) in manifest.layers.iter().enumerate() {
        cancel.check()?;
        task.fetch(layer)?;
        make.apply(at, layer)?;
    }
    let record = make.publish(&import.name, &bytes, Source::Oci { reference: what.clone() })?;
    Ok(Pulled { record, manifest: digest, fresh: true })
}

/// The archive as a file that can be read anywhere: itself, or a decompressed copy.
fn plain_file(store: &Store, mut file: File, limits: Limits, path: &Path) -> Result<File> {
    let mut magic = [0; 4];
    let seekable = file.metadata().is_ok_and(|m| m.is_file());
    if seekable {
        let n = file.read_at(&mut magic, 0).doing("read", path)?;
        if n < 4 || !(magic.starts_with(&[0x1f, 0x8b]) || magic == [0x28, 0xb5, 0x2f, 0xfd]) {
            return Ok(file);
        }
        file.rewind().doing("read", path)?;
    }
    let mut copy = store.scratch()?;
    let most = limits.bytes.saturating_mul(2);
    let mut plain = decompressed(file).doing("read", path)?.take(most.saturating_add(1));
    if io::copy(&mut plain, &mut copy).doing("decompress", path)? > most {
        return Err(Error::invalid(
            path.display().to_string(),
            format!("is more than {most} bytes (--max-bytes)"),
        ));
    }
    copy.flush().doing("write", path)?;
    Ok(copy)
}

/// Where the files of a layout or archive are.
enum Bundle {
    Directory(PathBuf),
    Archive { file: File, index: HashMap<String, EntryKind> },
}

/// What an entry of an archive is.
enum EntryKind {
    Data { at: u64, size: u64 },
    Link(String),
}

impl Bundle {
    /// Reads the headers of a tar.
    fn archive(file: File) -> Result<Self> {
        let bad = |why: &str| Error::invalid("the archive", why);
        let mut index = HashMap::new();
        let mut at = 0u64;
        let mut block = [0; RECORD as usize];
        loop {
            match file.read_exact_at(&mut block, at) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(bad("it is no tar archive, or is cut off"));
                }
                other => other.doing("read", Path::new("the archive"))?,
            }
            if block == [0; RECORD as usize] {
                return Ok(Self::Archive { file, index });
            }
            let header = Header::from_byte_slice(&block);
            let size = header.entry_size().map_err(|_| bad("a header has no size"))?;
            let data = at + RECORD;
            let name = String::from_utf8_lossy(&header.path_bytes()).into_owned();
            let name = name.strip_prefix("./").unwrap_or(&name).trim_end_matches('/').to_owned();
            let target = || header.link_name_bytes().map(|l| String::from_utf8_lossy(&l).into_owned());
            let place = match header.entry_type() {
                EntryType::Regular | EntryType::Continuous => Some(EntryKind::Data { at: data, size }),
                EntryType::Link => target().map(EntryKind::Link),
                EntryType::Symlink => target().and_then(|t| join(&name, &t)).map(EntryKind::Link),
                _ => None,
            };
            if let Some(place) = place {
                index.insert(name, place);
            }
            if index.len() > ENTRIES_MAX {
                return Err(bad("it has too many entries"));
            }
            let next = size.checked_next_multiple_of(RECORD).and_then(|s| data.checked_add(s));
            at = next
                .filter(|n| i64::try_from(*n).is_ok())
                .ok_or_else(|| bad("a size in it is impossible"))?;
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Directory(dir) => dir.join(name).is_file(),
            Self::Archive { index, .. } => index.contains_key(name),
        }
    }

    /// Opens a file and says how long it is. `name` is ours, or is only looked up.
    fn open(&self, name: &str) -> Result<(Box<dyn Read + '_>, u64)> {
        let missing = || Error::invalid("the archive", format!("it has no {}", printable(name)));
        match self {
            Self::Directory(dir) => {
                let path = dir.join(name);
                let file = File::open(&path).doing("open", &path)?;
                let size = file.metadata().doing("read", &path)?.len();
                Ok((Box::new(file), size))
            }
            Self::Archive { file, index } => {
                let place = match index.get(name).ok_or_else(missing)? {
                    EntryKind::Link(to) => index.get(to).ok_or_else(missing)?,
                    place => place,
                };
                match place {
                    EntryKind::Data { at, size } => {
                        Ok((Box::new(Section { file, at: *at, left: *size }), *size))
                    }
                    EntryKind::Link(_) => Err(missing()),
                }
            }
        }
    }

    /// All of a small file.
    fn small(&self, name: &str) -> Result<Vec<u8>> {
        let (reader, size) = self.open(name)?;
        if size > DOCUMENT_MAX {
            return Err(Error::invalid(printable(name), format!("is longer than {DOCUMENT_MAX} bytes")));
        }
        let mut bytes = Vec::new();
        reader.take(DOCUMENT_MAX).read_to_end(&mut bytes).doing("read", Path::new(name))?;
        Ok(bytes)
    }
}

/// Part of a file.
struct Section<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).map_or(buf.len(), |l| l.min(buf.len()));
        let n = self.file.read_at(&mut buf[..want], self.at)?;
        self.at += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

/// The path a symbolic link `from` leads to, inside the archive.
fn join(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// One import.
struct Task<'a> {
    bundle: &'a Bundle,
    blobs: &'a Blobs,
    what: &'a str,
    progress: &'a dyn Progress,
    cancel: &'a Cancel,
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

impl Task<'_> {
    /// Copies a blob to the store, unless it is there.
    fn fetch(&self, wanted: &Descriptor) -> Result<()> {
        let digest = &wanted.digest;
        if self.blobs.find(digest, wanted.size).is_some() {
            self.progress.event(Event::Done { blob: digest, existed: true });
            return Ok(());
        }
        let (reader, size) = self.bundle.open(&blob_name(digest))?;
        if size != wanted.size {
            return Err(Error::invalid(
                format!("blob {digest}"),
                format!("it has {size} bytes instead of {}", wanted.size),
            ));
        }
        self.progress.event(Event::Begin { blob: digest, size, have: 0 });
        let mut tick = |done| {
            self.progress.event(Event::Bytes { blob: digest, done });
            self.cancel.check()
        };
        self.blobs.put_from(reader, size, Some(digest), &mut tick)?;
        self.progress.event(Event::Done { blob: digest, existed: false });
        Ok(())
    }

    /// The manifest an OCI layout means; its configuration is in the store then.
    fn layout(&self, pick: Option<&str>, platform: &Platform) -> Result<(Vec<u8>, Manifest)> {
        let mut bytes = self.bundle.small("index.json")?;
        let Document::Index(mut entries) = Document::parse(&bytes, self.what)? else {
            return Err(Error::invalid(self.what, "its index.json is no index"));
        };
        let names = |d: &Descriptor| {
            [REF_NAME, CONTAINERD_NAME]
                .iter()
                .filter_map(|k| d.annotations.get(*k))
                .cloned()
                .collect::<Vec<_>>()
        };
        if let Some(pick) = pick {
            entries.retain(|d| names(d).iter().any(|n| n == pick));
        }
        let all: BTreeSet<String> = entries.iter().filter_map(|d| names(d).into_iter().next()).collect();
        if entries.is_empty() || all.len() > 1 {
            return Err(several(self.what, &all));
        }
        for _ in 0..4 {
            let chosen = match entries.as_slice() {
                [one] => one,
                many => platform.choose(many, self.what)?,
            };
            bytes = self.bundle.small(&blob_name(&chosen.digest))?;
            if Digest::of(&bytes) != chosen.digest || bytes.len() as u64 != chosen.size {
                return Err(Error::invalid(
                    format!("manifest {}", chosen.digest),
                    "its data has another digest or length",
                ));
            }
            match Document::parse(&bytes, self.what)? {
                Document::Image(manifest) => {
                    self.fetch(&manifest.config)?;
                    return Ok((bytes, manifest));
                }
                Document::Index(inner) => entries = inner,
            }
        }
        Err(Error::invalid(self.what, "indexes lead to indexes without end"))
    }

    /// The manifest of a `docker save` archive, made anew: its layers are kept as they are, not compressed.
    fn docker(&self, pick: Option<&str>) -> Result<(Vec<u8>, Manifest)> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Entry {
            config: String,
            #[serde(default)]
            repo_tags: Option<Vec<String>>,
            layers: Vec<String>,
        }
        let text = self.bundle.small("manifest.json")?;
        let mut entries: Vec<Entry> = serde_json::from_slice(&text)
            .map_err(|e| Error::invalid(format!("manifest.json of {}", self.what), e.to_string()))?;
        if let Some(pick) = pick {
            entries.retain(|e| e.repo_tags.iter().flatten().any(|t| t == pick));
        }
        let [entry] = entries.as_slice() else {
            let all = entries.iter().flat_map(|e| e.repo_tags.iter().flatten()).cloned().collect();
            return Err(several(self.what, &all));
        };
        let config = Config::parse(&self.bundle.small(&entry.config)?, entry.layers.len(), self.what)?;
        let mut layers = Vec::new();
        for (name, diff_id) in entry.layers.iter().zip(&config.rootfs.diff_ids) {
            let (reader, size) = self.bundle.open(name)?;
            // Docker since 25 saves layers as it has them, named by their own digest.
            let own = name.strip_prefix("blobs/sha256/").and_then(|hex| Digest::from_hex(hex).ok());
            let digest = own.as_ref().unwrap_or(diff_id);
            if self.blobs.find(digest, size).is_none() {
                let mut tick = |done| {
                    self.progress.event(Event::Bytes { blob: digest, done });
                    self.cancel.check()
                };
                self.progress.event(Event::Begin { blob: digest, size, have: 0 });
                self.blobs.put_from(reader, size, Some(digest), &mut tick)?;
            }
            self.progress.event(Event::Done { blob: digest, existed: false });
            let kind = if digest == diff_id { OCI_LAYER.to_owned() } else { format!("{OCI_LAYER}+gzip") };
            layers.push(descriptor(&kind, digest.clone(), size));
        }
        let (bytes, (_, manifest)) = documents(self.blobs, &config, layers)?;
        Ok((bytes, manifest))
    }
}

fn several(what: &str, names: &BTreeSet<String>) -> Error {
    let names: Vec<_> = names.iter().take(20).map(|n| printable(n)).collect();
    match names.is_empty() {
        true => Error::invalid(what, "it has no such image"),
        false => Error::invalid(what, format!("choose one of its images with --ref: {}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests;
