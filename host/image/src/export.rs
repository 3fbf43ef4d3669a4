//! Reads images back: as a tar archive (one layer), and single small files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use doppel_erofs::{Erofs, Inode, Kind};
use tar::{Builder, EntryType, Header};

use crate::error::Doing;
use crate::{Error, Result};

/// Largest file `small_file` reads.
const SMALL: u64 = 1 << 20;
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

/// Writes all of an image file as a tar archive, from which the same image can be made. Sockets, which archives cannot
/// hold, are left out. `path` is for messages.
pub fn write_tar(image: &File, path: &Path, out: impl Write) -> Result<()> {
    let map = doppel_sys::FileMap::new(image).doing("map", path)?;
    let damaged =
        |e: doppel_erofs::Error| Error::Damaged { image: path.display().to_string(), why: e.to_string() };
    let fs = Erofs::open(&map).map_err(damaged)?;
    let mut tar = Builder::new(out);
    let mut links: HashMap<u64, Vec<u8>> = HashMap::new();
    let root = fs.inode(fs.root_nid()).map_err(damaged)?;
    let mut todo = vec![(root, b"./".to_vec())];
    while let Some((inode, name)) = todo.pop() {
        if inode.is_dir() {
            let mut children = Vec::new();
            fs.readdir(&inode, 0, |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    children.push((entry.nid, entry.name));
                }
                true
            })
            .map_err(damaged)?;
            // The first name comes off the stack first. Depth is bounded by the reader's path check.
            for (nid, child) in children.into_iter().rev() {
                let child = if name == b"./" { child.to_vec() } else { [&name[..], child].concat() };
                let inode = fs.inode(nid).map_err(damaged)?;
                if child.len() > 4096 {
                    return Err(Error::Damaged {
                        image: path.display().to_string(),
                        why: "it is too deep".into(),
                    });
                }
                todo.push((inode, if inode.is_dir() { [&child[..], b"/"].concat() } else { child }));
            }
        } else if inode.nlink > 1 {
            if let Some(first) = links.get(&inode.nid) {
                let mut header = header(&inode, EntryType::Link);
                header.set_size(0);
                append(&mut tar, header, &name, Some(first), Vec::new(), io::empty()).doing("write", path)?;
                continue;
            }
            links.insert(inode.nid, name.clone());
        }
        let mut records = Vec::new();
        fs.xattrs(&inode, |prefix, rest, value| {
            records.push((
                format!("SCHILY.xattr.{}", String::from_utf8_lossy(&[prefix, rest].concat())),
                value.to_vec(),
            ));
            true
        })
        .map_err(damaged)?;
        if inode.mtime_nsec != 0 || inode.mtime_sec < 0 {
            records.push(("mtime".into(), mtime(inode.mtime_sec, inode.mtime_nsec).into_bytes()));
        }
        let (kind, target) = match inode.kind {
            Kind::Regular => (EntryType::Regular, None),
            Kind::Directory => (EntryType::Directory, None),
            Kind::Symlink => (EntryType::Symlink, Some(fs.symlink(&inode).map_err(damaged)?)),
            Kind::CharDevice => (EntryType::Char, None),
            Kind::BlockDevice => (EntryType::Block, None),
            Kind::Fifo => (EntryType::Fifo, None),
            Kind::Socket => continue,
        };
        let header = header(&inode, kind);
        let data = Data { fs: &fs, inode, at: 0 };
        append(&mut tar, header, &name, target, records, data).doing("write", path)?;
    }
    tar.finish().doing("write", path)
}

fn header(inode: &Inode, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(u32::from(inode.mode & 0o7777));
    header.set_uid(inode.uid.into());
    header.set_gid(inode.gid.into());
    header.set_mtime(u64::try_from(inode.mtime_sec).unwrap_or(0));
    header.set_size(if kind == EntryType::Regular { inode.size } else { 0 });
    if matches!(kind, EntryType::Char | EntryType::Block)
        && let Some(gnu) = header.as_gnu_mut()
    {
        let (major, minor) = inode.device();
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
struct Data<'a, 'b> {
    fs: &'a Erofs<'b>,
    inode: Inode,
    at: u64,
}

impl Read for Data<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.inode.kind != Kind::Regular {
            return Ok(0);
        }
        let n = self.fs.read_at(&self.inode, self.at, buf).map_err(|e| io::Error::other(e.to_string()))?;
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests;
