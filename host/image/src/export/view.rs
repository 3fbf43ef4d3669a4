//! A tree of files that is read: an image's, or an image's with what a domain has changed of it.

use std::path::{Path, PathBuf};

use doppel_abi_image as abi;
use doppel_erofs::{Erofs, Inode, Kind};

use crate::{Error, Result};

/// A file of a tree.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// The same for all names of one file.
    pub id: Id,
    pub kind: Kind,
    /// Permission bits, set-id and sticky bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// Of a regular file.
    pub size: u64,
    pub mtime_sec: i64,
    pub mtime_nsec: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    pub source: Source,
}

/// Tells files apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    /// One that the image has, by its number there.
    Image(u64),
    /// Another one.
    Own(u64),
}

/// Where what it holds is.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// In the image.
    Image(Inode),
    /// In a file of the host; of a directory also what is below it in the image.
    Host(PathBuf, Option<Inode>),
    /// In a layer's file, under this number, as far as it is not in the image.
    Layer(u64, Option<Inode>),
}

/// A tree of files.
pub(crate) trait View {
    /// Its root directory.
    fn root(&self) -> Result<Item>;
    /// A directory's names, sorted.
    fn list(&self, dir: &Item) -> Result<Vec<(Vec<u8>, Item)>>;
    /// Where a symbolic link leads.
    fn target(&self, link: &Item) -> Result<Vec<u8>>;
    /// Extended attributes by name.
    fn xattrs(&self, of: &Item) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
    /// Bytes of a regular file; fewer than asked for only at its end.
    fn read(&self, file: &Item, at: u64, buf: &mut [u8]) -> Result<usize>;
    /// Whether the bytes of a regular file are those that the image's file of this number has.
    fn is_unchanged(&self, file: &Item) -> bool;
}

/// An image's.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    pub fs: Erofs<'a>,
    /// For messages.
    pub path: &'a Path,
}

impl<'a> Image<'a> {
    pub fn open(bytes: &'a [u8], path: &'a Path) -> Result<Self> {
        let fs = Erofs::open(bytes).map_err(|e| damaged(path, &e))?;
        Ok(Self { fs, path })
    }

    pub fn damaged(&self) -> impl Fn(doppel_erofs::Error) -> Error {
        |e| damaged(self.path, &e)
    }

    /// Names of a directory, and the numbers of their files.
    pub fn names(&self, dir: &Inode) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut names = Vec::new();
        let each = |entry: doppel_erofs::DirEntry<'_>| {
            if !matches!(entry.name, b"." | b"..") {
                names.push((entry.name.to_vec(), entry.nid));
            }
            true
        };
        self.fs.readdir(dir, 0, each).map_err(self.damaged())?;
        Ok(names)
    }

    pub fn attributes(&self, of: &Inode) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        let each = |prefix: &[u8], rest: &[u8], value: &[u8]| {
            all.push(([prefix, rest].concat(), value.to_vec()));
            true
        };
        self.fs.xattrs(of, each).map_err(self.damaged())?;
        Ok(all)
    }

    pub fn bytes(&self, file: &Inode, at: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read_at(file, at, buf).map_err(self.damaged())
    }
}

fn damaged(path: &Path, error: &doppel_erofs::Error) -> Error {
    Error::Damaged { image: path.display().to_string(), why: error.to_string() }
}

/// A file of the image.
pub(crate) fn of_image(inode: Inode) -> Item {
    Item {
        id: Id::Image(inode.nid),
        kind: inode.kind,
        mode: u32::from(inode.mode & 0o7777),
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.nlink,
        size: if inode.kind == Kind::Regular { inode.size } else { 0 },
        mtime_sec: inode.mtime_sec,
        mtime_nsec: inode.mtime_nsec,
        device: inode.device(),
        source: Source::Image(inode),
    }
}

/// The kind that a mode says.
pub(crate) fn kind_of(mode: u32) -> Option<Kind> {
    Some(match (mode & u32::from(abi::S_IFMT)) as u16 {
        abi::S_IFREG => Kind::Regular,
        abi::S_IFDIR => Kind::Directory,
        abi::S_IFLNK => Kind::Symlink,
        abi::S_IFCHR => Kind::CharDevice,
        abi::S_IFBLK => Kind::BlockDevice,
        abi::S_IFIFO => Kind::Fifo,
        abi::S_IFSOCK => Kind::Socket,
        _ => return None,
    })
}

/// What is said of a file that cannot be there.
pub(crate) fn impossible(why: &str) -> Error {
    Error::source(b"the domain's files", why)
}

impl View for Image<'_> {
    fn root(&self) -> Result<Item> {
        Ok(of_image(self.fs.inode(self.fs.root_nid()).map_err(self.damaged())?))
    }

    fn list(&self, dir: &Item) -> Result<Vec<(Vec<u8>, Item)>> {
        let Source::Image(inode) = &dir.source else { return Err(impossible("a directory of another tree")) };
        let child = |(name, nid)| Ok((name, of_image(self.fs.inode(nid).map_err(self.damaged())?)));
        self.names(inode)?.into_iter().map(child).collect()
    }

    fn target(&self, link: &Item) -> Result<Vec<u8>> {
        let Source::Image(inode) = &link.source else { return Err(impossible("a link of another tree")) };
        Ok(self.fs.symlink(inode).map_err(self.damaged())?.to_vec())
    }

    fn xattrs(&self, of: &Item) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let Source::Image(inode) = &of.source else { return Err(impossible("a file of another tree")) };
        self.attributes(inode)
    }

    fn read(&self, file: &Item, at: u64, buf: &mut [u8]) -> Result<usize> {
        let Source::Image(inode) = &file.source else { return Err(impossible("a file of another tree")) };
        self.bytes(inode, at, buf)
    }

    fn is_unchanged(&self, _: &Item) -> bool {
        true
    }
}
