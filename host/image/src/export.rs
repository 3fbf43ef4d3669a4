//! Reads images back: as a tar archive (one layer), also with what a domain has changed of them, and single small files.

mod diff;
mod kept;
mod upper;
mod view;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use doppel_erofs::{Erofs, Kind};
use tar::{Builder, EntryType, Header};

use crate::error::IoContext;
use crate::export::kept::Kept;
use crate::export::upper::Upper;
use crate::export::view::{Id, Image, Item, View};
use crate::{Error, Result};

/// Largest file `small_file` reads.
const SMALL: u64 = 1 << 20;
/// Longest path in bytes.
const PATH: usize = 4096;
/// Most bytes of a name in a header; longer ones go to a PAX record.
const NAME_FIELD: usize = 100;

/// The content of the regular file at `path` of an image file; `None` if there is none, or it is larger than 1 MiB.
/// Symbolic links are not followed.
pub fn small_file(image: &File, path: &str) -> Option<Vec<u8>> {
    let map = doppel_sys::FileMap::new(image).ok()?;
    let fs = Erofs::open(&map).ok()?;
    let mut at = fs.inode(fs.root_nid()).ok()?;
    for name in path.split('/').filter(|n| !n.is_empty()) {
        at = fs.inode(fs.lookup(&at, name.as_bytes()).ok()??.0).ok()?;
    }
    if at.kind != Kind::Regular || at.size > SMALL {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(at.size).ok()?];
    let mut done = 0;
    while done < bytes.len() {
        match fs.read_at(&at, done as u64, &mut bytes[done..]).ok()? {
            0 => return None,
            n => done += n,
        }
    }
    Some(bytes)
}

/// What a domain has changed of an image's files, while no domain runs on it.
#[derive(Clone, Copy)]
pub enum Changes<'a> {
    /// In an overlay's directory (a paene domain's).
    Upper(&'a Path),
    /// In a layer, as `common/layer` has it (a para domain's): a file, or several as one.
    Layer(&'a dyn FileExt),
}

/// How a file differs from the image's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The image has none of this name.
    Added,
    /// It is another one, or has other attributes; of a directory: or something below differs.
    Changed,
    /// It is not there any more.
    Deleted,
}

/// Writes all of an image file as a tar archive, from which the same image can be made. Sockets, which archives cannot
/// hold, are left out. `path` is for messages.
pub fn write_tar(image: &File, path: &Path, out: impl Write) -> Result<()> {
    let map = doppel_sys::FileMap::new(image).doing("map", path)?;
    write_view(&Image::open(&map, path)?, path, out)
}

/// The same of an image with what a domain has changed.
pub fn write_changed_tar(image: &File, path: &Path, changes: Changes<'_>, out: impl Write) -> Result<()> {
    let map = doppel_sys::FileMap::new(image).doing("map", path)?;
    write_view(&*view(&map, path, changes)?, path, out)
}

/// What a domain has changed of an image: paths, a directory before what is below it.
pub fn differences(image: &File, path: &Path, changes: Changes<'_>) -> Result<Vec<(Difference, Vec<u8>)>> {
    let map = doppel_sys::FileMap::new(image).doing("map", path)?;
    diff::differences(&Image::open(&map, path)?, &*view(&map, path, changes)?)
}

fn view<'a>(image: &'a [u8], path: &'a Path, changes: Changes<'a>) -> Result<Box<dyn View + 'a>> {
    let bytes = image.len() as u64;
    let image = Image::open(image, path)?;
    Ok(match changes {
        // No domain has run on it.
        Changes::Upper(dir) if !dir.exists() => Box::new(image),
        Changes::Upper(dir) => Box::new(Upper { image, dir }),
        Changes::Layer(file) => Box::new(Kept::open(image, bytes, file)?),
    })
}

fn write_view(view: &dyn View, path: &Path, out: impl Write) -> Result<()> {
    let mut tar = Builder::new(out);
    let mut links: HashMap<Id, Vec<u8>> = HashMap::new();
    let mut entered = HashSet::new();
    let mut todo = vec![(view.root()?, b"./".to_vec())];
    while let Some((item, name)) = todo.pop() {
        if item.kind == Kind::Directory {
            enter(&mut entered, item.id, &name)?;
            // The first name comes off the stack first.
            for (child, item) in view.list(&item)?.into_iter().rev() {
                let child = if name == b"./" { child } else { [&name[..], &child].concat() };
                let is_dir = item.kind == Kind::Directory;
                todo.push((item, if is_dir { [&child[..], b"/"].concat() } else { child }));
            }
        } else if item.nlink > 1 {
            if let Some(first) = links.get(&item.id) {
                let mut header = header(&item, EntryType::Link);
                header.set_size(0);
                append(&mut tar, header, &name, Some(first), Vec::new(), io::empty()).doing("write", path)?;
                continue;
            }
            links.insert(item.id, name.clone());
        }
        let of_xattr =
            |(name, value): (Vec<u8>, _)| (format!("SCHILY.xattr.{}", String::from_utf8_lossy(&name)), value);
        let mut records: Vec<_> = view.xattrs(&item)?.into_iter().map(of_xattr).collect();
        if item.mtime_nsec != 0 || item.mtime_sec < 0 {
            records.push(("mtime".into(), mtime(item.mtime_sec, item.mtime_nsec).into_bytes()));
        }
        let (kind, target) = match item.kind {
            Kind::Regular => (EntryType::Regular, None),
            Kind::Directory => (EntryType::Directory, None),
            Kind::Symlink => (EntryType::Symlink, Some(view.target(&item)?)),
            Kind::CharDevice => (EntryType::Char, None),
            Kind::BlockDevice => (EntryType::Block, None),
            Kind::Fifo => (EntryType::Fifo, None),
            Kind::Socket => continue,
        };
        let header = header(&item, kind);
        let data = Data { view, item: &item, at: 0 };
        append(&mut tar, header, &name, target.as_deref(), records, data).doing("write", path)?;
    }
    tar.finish().doing("write", path)
}

/// Refuses a directory that is its own parent, or has several, and one that is too deep.
fn enter(entered: &mut HashSet<Id>, dir: Id, name: &[u8]) -> Result<()> {
    if !entered.insert(dir) {
        return Err(Error::source(name, "a directory with several names"));
    }
    if name.len() > PATH { Err(Error::source(name, "it is too deep")) } else { Ok(()) }
}

fn header(item: &Item, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(item.mode);
    header.set_uid(item.uid.into());
    header.set_gid(item.gid.into());
    header.set_mtime(u64::try_from(item.mtime_sec).unwrap_or(0));
    header.set_size(if kind == EntryType::Regular { item.size } else { 0 });
    if matches!(kind, EntryType::Char | EntryType::Block)
        && let Some(gnu) = header.as_gnu_mut()
    {
        let (major, minor) = item.device;
        gnu.set_device_major(major);
        gnu.set_device_minor(minor);
    }
    header
}

/// Seconds as PAX writes them.
fn mtime(sec: i64, nsec: u32) -> String {
    match (sec, nsec) {
        (_, 0) => sec.to_string(),
        (0.., _) => format!("{sec}.{nsec:09}"),
        _ => format!("-{}.{:09}", -(sec + 1), 1_000_000_000 - nsec),
    }
}

fn append<W: Write>(
    tar: &mut Builder<W>,
    mut header: Header,
    name: &[u8],
    target: Option<&[u8]>,
    mut records: Vec<(String, Vec<u8>)>,
    data: impl Read,
) -> io::Result<()> {
    if name.len() > NAME_FIELD {
        records.push(("path".into(), name.to_vec()));
    }
    if let Some(target) = target.filter(|t| t.len() > NAME_FIELD) {
        records.push(("linkpath".into(), target.to_vec()));
    }
    if !records.is_empty() {
        tar.append_pax_extensions(records.iter().map(|(k, v)| (k.as_str(), v.as_slice())))?;
    }
    let raw = header.as_old_mut();
    let n = name.len().min(NAME_FIELD);
    raw.name[..n].copy_from_slice(&name[..n]);
    if let Some(target) = target {
        let n = target.len().min(NAME_FIELD);
        raw.linkname[..n].copy_from_slice(&target[..n]);
    }
    header.set_cksum();
    tar.append(&header, data)
}

/// The bytes of a regular file.
struct Data<'a> {
    view: &'a dyn View,
    item: &'a Item,
    at: u64,
}

impl Read for Data<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.item.kind != Kind::Regular {
            return Ok(0);
        }
        let n = self.view.read(self.item, self.at, buf).map_err(|e| io::Error::other(e.to_string()))?;
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests;
