//! `tar-out PATH`: a tree as a tar archive on standard output (docs/sessions.md). File systems mounted below are left out,
//! as are sockets.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use doppel_tar::{self as tar, Entry, Kind};
use rustix::io::Errno;

use super::outcome::{About, Failure, Outcome, os};
use super::{CHUNK, files};

/// Most files with several names whose other names are remembered.
const LINKS_MAX: usize = 100_000;
const OUT: &[u8] = b"standard output";

pub fn run(out: &mut dyn Write, name: &[u8]) -> Outcome {
    let last = name.split(|&b| b == b'/').rfind(|p| !p.is_empty()).unwrap_or(b".");
    if last == b".." {
        return Err(Failure { what: name.to_vec(), errno: Errno::INVAL });
    }
    // A directory named with a slash or a dot behind it is meant, not a link to it.
    let follow = name.ends_with(b"/") || last == b".";
    let top = if follow { fs::canonicalize(os(name)).about(name)? } else { PathBuf::from(os(name)) };
    let device = fs::symlink_metadata(&top).about(name)?.dev();
    let mut links = HashMap::new();
    let mut todo = vec![(top, last.to_vec())];
    while let Some((path, name)) = todo.pop() {
        let meta = match fs::symlink_metadata(&path) {
            // It has gone meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            meta => meta.about(&name)?,
        };
        entry(out, &path, &meta, &name, &mut links)?;
        if meta.dev() == device && meta.is_dir() {
            // Taken from the end.
            for one in files::names(&path).about(&name)?.into_iter().rev() {
                todo.push((path.join(os(&one)), [&name[..], b"/", &one].concat()));
            }
        }
    }
    out.write_all(&tar::END).about(OUT)
}

fn entry(
    out: &mut dyn Write,
    path: &Path,
    meta: &Metadata,
    name: &[u8],
    links: &mut HashMap<(u64, u64), Vec<u8>>,
) -> Outcome {
    let kind = match meta.file_type() {
        t if t.is_file() => Kind::File,
        t if t.is_dir() => Kind::Directory,
        t if t.is_symlink() => Kind::Symlink,
        t if t.is_char_device() => Kind::CharDevice,
        t if t.is_block_device() => Kind::BlockDevice,
        t if t.is_fifo() => Kind::Fifo,
        _ => return Ok(()),
    };
    let mut e = Entry::new(name.to_vec(), kind);
    (e.mode, e.uid, e.gid) = (meta.mode() & 0o7777, meta.uid(), meta.gid());
    e.mtime = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
    match kind {
        Kind::Symlink => e.link = fs::read_link(path).about(name)?.as_os_str().as_bytes().to_vec(),
        Kind::CharDevice | Kind::BlockDevice => {
            e.device = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        }
        _ => {}
    }
    if kind != Kind::Directory && meta.nlink() > 1 {
        if let Some(first) = links.get(&(meta.dev(), meta.ino())) {
            (e.kind, e.link) = (Kind::HardLink, first.clone());
            return out.write_all(&tar::header(&e)).about(OUT);
        }
        if links.len() < LINKS_MAX {
            links.insert((meta.dev(), meta.ino()), name.to_vec());
        }
    }
    e.xattrs = xattrs(path);
    if kind != Kind::File {
        return out.write_all(&tar::header(&e)).about(OUT);
    }
    let file = File::open(path).about(name)?;
    e.size = meta.size();
    out.write_all(&tar::header(&e)).about(OUT)?;
    let mut from = file.take(e.size);
    let mut buf = vec![0; CHUNK];
    let mut left = e.size;
    while left > 0 {
        let most = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        // One that became shorter meanwhile ends in zeros: its size has been told.
        let n = match from.read(&mut buf[..most]).about(name)? {
            0 => {
                buf[..most].fill(0);
                most
            }
            n => n,
        };
        out.write_all(&buf[..n]).about(OUT)?;
        left -= n as u64;
    }
    out.write_all(&[0; tar::BLOCK][..tar::padding(e.size)]).about(OUT)
}

/// Extended attributes as far as they can be read; most files have none.
fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut list = vec![0; 64 << 10];
    let Ok(n) = rustix::fs::llistxattr(path, &mut list[..]) else { return Vec::new() };
    let names =
        list[..n].split(|&b| b == 0).filter(|n| n.starts_with(b"user.") || *n == b"security.capability");
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let n = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
        value.truncate(n);
        Some((name.to_vec(), value))
    };
    names.filter_map(value).collect()
}
