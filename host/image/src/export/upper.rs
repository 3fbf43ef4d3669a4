//! An image with what an overlay has above it: the files of a paene domain.
//!
//! Names in the overlay's directory hide those of the image; a character device 0:0 hides one and is none, an opaque directory
//! hides all below it. No domain has the directory meanwhile, and links in it are not followed.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use doppel_erofs::{Inode, Kind};
use rustix::io::Errno;

use crate::error::IoContext;
use crate::export::view::{Id, Image, Item, Source, View, impossible, kind_of, of_image};
use crate::{Error, Result};

/// The overlay's own attributes.
const OVERLAY: &[u8] = b"trusted.overlay.";
const OPAQUE: &str = "trusted.overlay.opaque";
/// O_NOFOLLOW.
const NO_FOLLOW: i32 = 0o400_000;
/// Most bytes of names and values of extended attributes that the host gives.
const MOST: usize = 1 << 16;

pub(crate) struct Upper<'a> {
    pub image: Image<'a>,
    pub dir: &'a Path,
}

impl Upper<'_> {
    fn item(&self, path: PathBuf, meta: &Metadata, below: Option<Inode>) -> Result<Item> {
        let kind = kind_of(meta.mode())
            .ok_or_else(|| Error::source(path.as_os_str().as_bytes(), "unknown kind of file"))?;
        Ok(Item {
            id: Id::Own(meta.ino()),
            kind,
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            nlink: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
            size: if kind == Kind::Regular { meta.len() } else { 0 },
            mtime_sec: meta.mtime(),
            mtime_nsec: u32::try_from(meta.mtime_nsec()).unwrap_or(0),
            device: (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())),
            source: Source::Host(path, below),
        })
    }
}

/// A mark that hides what the image has of this name.
fn is_whiteout(item: &Item) -> bool {
    item.kind == Kind::CharDevice && item.device == (0, 0)
}

fn is_opaque(dir: &Path) -> Result<bool> {
    let mut value = [0; 1];
    match rustix::fs::lgetxattr(dir, OPAQUE, &mut value) {
        Ok(n) => Ok(value[..n] == *b"y"),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(e) => Err(e).doing("read the attributes of", dir),
    }
}

fn host(path: &Path) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; MOST];
    let len = match rustix::fs::llistxattr(path, names.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) => 0,
        len => len.doing("list the attributes of", path)?,
    };
    let mut all = Vec::new();
    for name in names[..len].split(|b| *b == 0).filter(|n| !n.is_empty() && !n.starts_with(OVERLAY)) {
        let mut value = vec![0; MOST];
        let len =
            rustix::fs::lgetxattr(path, name, value.as_mut_slice()).doing("read the attributes of", path)?;
        value.truncate(len);
        all.push((name.to_vec(), value));
    }
    all.sort_unstable();
    Ok(all)
}

impl View for Upper<'_> {
    fn root(&self) -> Result<Item> {
        let meta = fs::symlink_metadata(self.dir).doing("examine", self.dir)?;
        let Source::Image(below) = self.image.root()?.source else {
            return Err(impossible("no root directory"));
        };
        self.item(self.dir.to_owned(), &meta, Some(below))
    }

    fn list(&self, dir: &Item) -> Result<Vec<(Vec<u8>, Item)>> {
        let (path, below) = match &dir.source {
            Source::Host(path, below) => (path, below),
            _ => return self.image.list(dir),
        };
        let below = below.map(|inode| self.image.list(&of_image(inode))).transpose()?.unwrap_or_default();
        let mut all: BTreeMap<Vec<u8>, Item> = below.into_iter().collect();
        for entry in fs::read_dir(path).doing("list", path)? {
            let entry = entry.doing("list", path)?;
            let (path, name) = (entry.path(), entry.file_name().into_vec());
            let meta = fs::symlink_metadata(&path).doing("examine", &path)?;
            let hidden = all.remove(&name);
            let below = match hidden.map(|item| item.source) {
                Some(Source::Image(inode)) if inode.is_dir() && meta.is_dir() && !is_opaque(&path)? => {
                    Some(inode)
                }
                _ => None,
            };
            let item = self.item(path, &meta, below)?;
            if !is_whiteout(&item) {
                all.insert(name, item);
            }
        }
        Ok(all.into_iter().collect())
    }

    fn target(&self, link: &Item) -> Result<Vec<u8>> {
        match &link.source {
            Source::Host(path, _) => Ok(fs::read_link(path).doing("read", path)?.into_os_string().into_vec()),
            _ => self.image.target(link),
        }
    }

    fn xattrs(&self, of: &Item) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match &of.source {
            Source::Host(path, _) => host(path),
            _ => self.image.xattrs(of),
        }
    }

    fn read(&self, file: &Item, at: u64, buf: &mut [u8]) -> Result<usize> {
        let Source::Host(path, _) = &file.source else { return self.image.read(file, at, buf) };
        let open = File::options().read(true).custom_flags(NO_FOLLOW).open(path).doing("open", path)?;
        let mut done = 0;
        while done < buf.len() {
            match open.read_at(&mut buf[done..], at + done as u64).doing("read", path)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    fn is_unchanged(&self, file: &Item) -> bool {
        matches!(file.source, Source::Image(_))
    }
}
