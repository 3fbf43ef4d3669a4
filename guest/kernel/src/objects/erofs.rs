//! EROFS file systems on block devices, read-only.
//!
//! Key types: [`Image`] (a file system that is mounted), [`Node`] (one of its files). The image is read into memory when it is
//! mounted, a quarter of the domain's memory at most: what is on the device later changes nothing. Mapped files have pages of their
//! own. The image is hostile; the reader (`doppel_erofs`) checks all it says.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use doppel_erofs::{DirEntry, Erofs, Extent, Inode as Entry};
use doppel_machine::sync::SpinLock;

use super::block::{Device, Used};
use super::pages::{Object, PAGE, page_file};
use super::rootfs::{kind_of, makedev};
use super::vfs::attach::Attachments;
use super::vfs::attr::StatFs;
use super::vfs::file::{DirSink, File, FileOps, Splice, Whence, seek_from};
use super::vfs::flags::{OpenFlags, SetXattr};
use super::vfs::inode::{FileType, Inode, SetAttr, Stat};
use super::vfs::io::{Input, Output};
use crate::memory::MapSource;
use crate::{Errno, Result};

/// `statfs(2)`.
const MAGIC: u64 = 0xe0f5_e1e2;
/// An image has at most one in so many bytes of the domain's memory.
const SHARE: u64 = 4;
/// Bytes of an image that say how long it is.
const HEAD: usize = 4096;

/// A mounted file system.
struct Image {
    bytes: Vec<u8>,
    /// What its superblock says.
    layout: Erofs<'static>,
    dev: u64,
    /// Files that somebody uses, by number.
    nodes: SpinLock<BTreeMap<u64, Weak<Node>>>,
    _device: Used,
}

/// A file.
struct Node {
    fs: Arc<Image>,
    entry: Entry,
    attachments: Attachments,
    /// Its bytes, while they are mapped.
    pages: SpinLock<Weak<Object>>,
}

/// What a broken image looks like to a program.
fn broken(_: doppel_erofs::Error) -> Errno {
    Errno::EIO
}

/// The root directory of the file system on a device.
///
/// # Errors
/// EINVAL: there is none; EFBIG: it has no room in memory; or what the device says.
pub fn mount(device: &Arc<Device>) -> Result<Arc<dyn Inode>> {
    let used = device.used();
    let mut head = [0; HEAD];
    device.read_whole(0, &mut head)?;
    let len = doppel_erofs::size_of(&head).map_err(|_| Errno::EINVAL)?;
    if len > device.size() {
        return Err(Errno::EINVAL);
    }
    if len > page_file().usage().1.saturating_mul(PAGE) / SHARE {
        return Err(Errno::EFBIG);
    }
    let len = usize::try_from(len).map_err(|_| Errno::EFBIG)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(len, 0);
    device.read_whole(0, &mut bytes)?;
    let layout = Erofs::open(&bytes).map_err(|_| Errno::EINVAL)?.detached();
    let (major, minor) = device.number;
    let dev = makedev(major, minor);
    let fs = Arc::new(Image { bytes, layout, dev, nodes: SpinLock::default(), _device: used });
    let root = fs.node(layout.root_nid())?;
    Ok(root)
}

impl Image {
    fn erofs(&self) -> Erofs<'_> {
        self.layout.attached(&self.bytes)
    }

    fn node(self: &Arc<Self>, nid: u64) -> Result<Arc<Node>> {
        let mut nodes = self.nodes.lock();
        if let Some(node) = nodes.get(&nid).and_then(Weak::upgrade) {
            return Ok(node);
        }
        let entry = self.erofs().inode(nid).map_err(broken)?;
        if FileType::from_mode(entry.mode.into()).is_none() {
            return Err(Errno::EIO);
        }
        let node = Arc::new(Node {
            fs: self.clone(),
            entry,
            attachments: Attachments::default(),
            pages: SpinLock::default(),
        });
        nodes.insert(nid, Arc::downgrade(&node));
        Ok(node)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut nodes = self.fs.nodes.lock();
        // Somebody may have made it anew.
        if nodes.get(&self.entry.nid).is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&self.entry.nid);
        }
    }
}

impl Node {
    fn file_type(&self) -> FileType {
        // `Image::node` has looked.
        FileType::from_mode(self.entry.mode.into()).unwrap_or(FileType::Regular)
    }

    /// Its pages, which are filled when it is mapped.
    fn object(&self) -> Result<Arc<Object>> {
        if let Some(object) = self.pages.lock().upgrade() {
            return Ok(object);
        }
        let object = Object::new(0);
        let mut page = [0; PAGE as usize];
        let mut at = 0;
        while at < self.entry.size {
            let n = self.fs.erofs().read_at(&self.entry, at, &mut page).map_err(broken)?;
            if n == 0 {
                return Err(Errno::EIO);
            }
            let (wrote, _) = object.write(&mut Input::kernel(&page[..n]), at, false, u64::MAX)?;
            if wrote < n {
                return Err(Errno::ENOMEM);
            }
            at += n as u64;
        }
        *self.pages.lock() = Arc::downgrade(&object);
        Ok(object)
    }
}

impl Inode for Node {
    fn stat(&self) -> Stat {
        let e = &self.entry;
        let time = e.mtime_sec.saturating_mul(1_000_000_000).saturating_add(e.mtime_nsec.into());
        let (major, minor) = e.device();
        Stat {
            dev: self.fs.dev,
            ino: e.nid,
            mode: e.mode.into(),
            nlink: e.nlink,
            uid: e.uid,
            gid: e.gid,
            rdev: makedev(major, minor),
            size: e.size,
            blksize: PAGE as u32,
            blocks: e.size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        }
    }

    fn kind(&self) -> FileType {
        self.file_type()
    }

    fn statfs(&self) -> StatFs {
        let blocks = self.fs.layout.blocks().into();
        StatFs { magic: MAGIC, block_size: PAGE, blocks, dev: self.fs.dev, ..StatFs::default() }
    }

    fn set_attr(&self, _attr: &SetAttr) -> Result<()> {
        Err(Errno::EROFS)
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if self.file_type() != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        let found = self.fs.erofs().lookup(&self.entry, name).map_err(broken)?;
        let (nid, _) = found.ok_or(Errno::ENOENT)?;
        let node = self.fs.node(nid)?;
        Ok(node)
    }

    fn unlink(&self, _name: &[u8], _unused: bool) -> Result<()> {
        Err(Errno::EROFS)
    }

    fn rmdir(&self, _name: &[u8], _unused: bool) -> Result<()> {
        Err(Errno::EROFS)
    }

    fn readlink(&self) -> Result<Vec<u8>> {
        if self.file_type() != FileType::Symlink {
            return Err(Errno::EINVAL);
        }
        self.fs.erofs().symlink(&self.entry).map(<[u8]>::to_vec).map_err(broken)
    }

    fn link_text(&self) -> Option<&[u8]> {
        if self.file_type() == FileType::Symlink { self.fs.erofs().symlink(&self.entry).ok() } else { None }
    }

    fn open(&self, _flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
        match self.file_type() {
            FileType::Regular | FileType::Directory => {
                let node = self.fs.node(self.entry.nid)?;
                Ok(node)
            }
            _ => Err(Errno::ENXIO),
        }
    }

    fn getxattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        let found = self.fs.erofs().xattr(&self.entry, name).map_err(broken)?;
        found.map(<[u8]>::to_vec).ok_or(Errno::ENODATA)
    }

    fn setxattr(&self, _name: &[u8], _value: &[u8], _how: SetXattr) -> Result<()> {
        Err(Errno::EROFS)
    }

    fn listxattr(&self) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        let each = |prefix: &[u8], name: &[u8], _: &[u8]| {
            names.extend([prefix, name, &[0]].concat());
            true
        };
        self.fs.erofs().xattrs(&self.entry, each).map_err(broken)?;
        Ok(names)
    }

    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
}

impl FileOps for Node {
    fn splice(&self) -> Splice {
        if self.file_type() == FileType::Directory { Splice::Neither } else { Splice::Both }
    }

    fn read(&self, _file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        if self.file_type() == FileType::Directory {
            return Err(Errno::EISDIR);
        }
        let erofs = self.fs.erofs();
        let mut done = 0;
        while out.remaining() > 0 {
            let most = out.remaining() as u64;
            let got = match erofs.extent(&self.entry, offset + done as u64).map_err(broken)? {
                None => break,
                Some(Extent::Hole { len }) => out.zero(len.min(most) as usize)?,
                Some(Extent::Data { offset, len }) => {
                    let from = offset as usize;
                    out.write(&erofs.image()[from..from + len.min(most) as usize])?
                }
            };
            if got == 0 {
                break;
            }
            done += got;
        }
        Ok(done)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        let size = self.entry.size;
        let base = match whence {
            Whence::Set => 0,
            Whence::Cur => file.pos.get(),
            Whence::End => size,
            Whence::Data | Whence::Hole => {
                let at = u64::try_from(offset).ok().filter(|at| *at < size).ok_or(Errno::ENXIO)?;
                return Ok(if whence == Whence::Data { at } else { size });
            }
        };
        seek_from(base, offset)
    }

    fn pollable(&self) -> bool {
        false
    }

    fn map(&self, _file: &File) -> Result<MapSource> {
        if self.file_type() != FileType::Regular {
            return Err(Errno::ENODEV);
        }
        Ok(MapSource::Pages(self.object()?))
    }

    fn readdir(&self, _file: &File, pos: u64, sink: &mut DirSink<'_>) -> Result<()> {
        if self.file_type() != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        let each = |e: DirEntry<'_>| sink(e.nid, e.next, kind_of(e.file_type), e.name);
        self.fs.erofs().readdir(&self.entry, pos, each).map_err(broken)
    }

    fn fsync(&self, _file: &File) -> Result<()> {
        Ok(())
    }
}
