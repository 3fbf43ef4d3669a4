//! One file of a [`Fs`]: identity, attributes, and the [`Inode`] operations.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_erofs as erofs;
use doppel_machine::sync::{RwSpin, SpinLock};

use super::dir::Dir;
use super::regular::Content;
use super::{Fs, broken, now};
use crate::objects::lookup::perm::Perm;
use crate::objects::pages::{PAGE, seal};
use crate::objects::vfs::file::FileOps;
use crate::objects::vfs::flags::{OpenFlags, RenameFlags, SetXattr};
use crate::objects::vfs::inode::{Attachments, FileType, Inode, SetAttr, Stat, StatFs, Time};
use crate::{Errno, Result};

/// Attributes that change.
#[derive(Clone, Copy)]
pub(super) struct Meta {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
    /// An O_TMPFILE that may still be given a name.
    pub linkable: bool,
}

pub(super) enum Body {
    Regular(Content),
    /// In a box, because most nodes are files, and smaller.
    Dir(Box<RwSpin<Dir>>),
    Symlink(Box<[u8]>),
    Special {
        rdev: u64,
    },
}

/// Extended attributes by name.
pub(super) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A file, directory, link or device.
pub struct Node {
    pub(super) fs: Arc<Fs>,
    pub(super) me: Weak<Node>,
    ino: u64,
    kind: FileType,
    /// Its inode in the image, if it came from there.
    pub(super) lower: Option<erofs::Inode>,
    kept: AtomicBool,
    pub(super) meta: SpinLock<Meta>,
    pub(super) body: Body,
    /// `None` while they are the image's.
    pub(super) xattrs: SpinLock<Option<Xattrs>>,
    attachments: Attachments,
}

// With its counts it is just one of the arena's small blocks; there are very many.
const _: () = assert!(size_of::<Node>() + 16 <= 336);

/// `makedev(3)`.
pub const fn makedev(major: u32, minor: u32) -> u64 {
    let (ma, mi) = (major as u64, minor as u64);
    (ma & 0xfff) << 8 | (ma & !0xfff) << 32 | (mi & 0xff) | (mi & !0xff) << 12
}

impl Node {
    /// A new node. `target` is a symbolic link's.
    pub(super) fn make(
        fs: &Arc<Fs>,
        mode: u32,
        uid: u32,
        gid: u32,
        rdev: u64,
        target: Option<&[u8]>,
    ) -> Arc<Self> {
        let kind = FileType::from_mode(mode).unwrap_or(FileType::Regular);
        let t = now();
        let body = match kind {
            FileType::Regular => Body::Regular(Content::new(fs.quota.clone())),
            FileType::Directory => Body::Dir(Box::default()),
            FileType::Symlink => Body::Symlink(target.unwrap_or_default().into()),
            _ => Body::Special { rdev },
        };
        let nlink = if kind == FileType::Directory { 2 } else { 1 };
        let mode = kind as u32 | (mode & 0o7777);
        let meta = Meta { mode, uid, gid, nlink, atime: t, mtime: t, ctime: t, btime: t, linkable: false };
        let xattrs = Some(Xattrs::default());
        fs.inodes.fetch_add(1, Ordering::Relaxed);
        Self::assemble(fs, fs.new_ino(), kind, None, true, meta, body, xattrs)
    }

    /// The node of an inode of the image.
    pub(super) fn from_image(fs: &Arc<Fs>, i: erofs::Inode) -> Result<Arc<Self>> {
        let image = fs.image()?;
        let mode = u32::from(i.mode);
        let kind = FileType::from_mode(mode).ok_or(Errno::EIO)?;
        let body = match kind {
            FileType::Regular => Body::Regular(Content::in_image(image.data_range(&i).map_err(broken)?)),
            FileType::Directory => Body::Dir(Box::new(RwSpin::new(Dir::over(i)))),
            FileType::Symlink => Body::Symlink(image.symlink(&i).map_err(broken)?.into()),
            _ => {
                let (major, minor) = i.device();
                Body::Special { rdev: makedev(major, minor) }
            }
        };
        let t = i.mtime_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(i.mtime_nsec));
        let meta = Meta {
            mode,
            uid: i.uid,
            gid: i.gid,
            nlink: i.nlink,
            atime: fs.mounted.max(t),
            mtime: t,
            ctime: t,
            btime: t,
            linkable: false,
        };
        Ok(Self::assemble(fs, i.nid, kind, Some(i), false, meta, body, None))
    }

    #[allow(clippy::too_many_arguments)]
    fn assemble(
        fs: &Arc<Fs>,
        ino: u64,
        kind: FileType,
        lower: Option<erofs::Inode>,
        kept: bool,
        meta: Meta,
        body: Body,
        xattrs: Option<Xattrs>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            fs: fs.clone(),
            me: me.clone(),
            ino,
            kind,
            lower,
            kept: AtomicBool::new(kept),
            meta: SpinLock::new(meta),
            body,
            xattrs: SpinLock::new(xattrs),
            attachments: Attachments::default(),
        })
    }

    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Itself, for handing out.
    pub(super) fn this(&self) -> Result<Arc<Self>> {
        self.me.upgrade().ok_or(Errno::EIO)
    }

    /// To be called before the first change: keeps the node if it came from the image.
    pub(super) fn changing(&self) -> Result<()> {
        if !self.kept.load(Ordering::Acquire)
            && let Some(i) = &self.lower
            && !self.kept.swap(true, Ordering::AcqRel)
        {
            self.fs.keep(i.nid, self.this()?);
        }
        Ok(())
    }

    /// Marks data as changed now; returns the mode.
    pub(super) fn modified(&self) -> u32 {
        let t = now();
        let mut m = self.meta.lock();
        m.mtime = t;
        m.ctime = t;
        m.mode
    }

    /// Changes the link count by `by`; a node without names is no longer kept.
    pub(super) fn add_links(&self, by: i32) -> Result<()> {
        self.changing()?;
        let left = {
            let mut m = self.meta.lock();
            m.nlink = m.nlink.saturating_add_signed(by);
            m.ctime = now();
            m.nlink
        };
        if left == 0 {
            self.lose_last_name();
        }
        Ok(())
    }

    /// The last name is gone: a removed directory counts as having none.
    pub(super) fn lose_last_name(&self) {
        self.meta.lock().nlink = 0;
        self.fs.handled.unnamed(self.ino);
        if let Some(i) = &self.lower {
            self.fs.let_go(i.nid);
        }
    }

    /// The content of a regular file.
    pub(super) fn content(&self) -> Result<&Content> {
        match &self.body {
            Body::Regular(c) => Ok(c),
            Body::Dir(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The body of a directory.
    pub(super) fn dir(&self) -> Result<&RwSpin<Dir>> {
        match &self.body {
            Body::Dir(d) => Ok(d),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Size and 512-byte blocks.
    fn extent(&self) -> (u64, u64) {
        let size = self.lower.map_or(0, |i| i.size);
        match &self.body {
            Body::Regular(c) => match c.pages() {
                None => (size, size.div_ceil(PAGE) * 8),
                Some(o) => (o.len(), o.blocks()),
            },
            Body::Dir(d) => (d.read().size(size), 0),
            Body::Symlink(t) => (t.len() as u64, 0),
            Body::Special { .. } => (0, 0),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        match &self.lower {
            Some(i) => self.fs.forget(i.nid),
            None => {
                self.fs.inodes.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.fs.handled.gone(self.ino);
        // A tree of directories (an unmounted tmpfs) is taken apart without recursion.
        if let Body::Dir(d) = &mut self.body {
            let mut stack: Vec<Arc<Self>> = d.write().take_nodes();
            while let Some(n) = stack.pop() {
                if let Some(n) = Arc::into_inner(n)
                    && let Body::Dir(d) = &n.body
                {
                    stack.append(&mut d.write().take_nodes());
                }
            }
        }
    }
}

impl Inode for Node {
    fn stat(&self) -> Stat {
        let (size, blocks) = self.extent();
        let m = *self.meta.lock();
        Stat {
            dev: self.fs.dev,
            ino: self.ino,
            mode: m.mode,
            nlink: m.nlink,
            uid: m.uid,
            gid: m.gid,
            rdev: if let Body::Special { rdev } = self.body { rdev } else { 0 },
            size,
            blksize: 4096,
            blocks,
            atime: m.atime,
            mtime: m.mtime,
            ctime: m.ctime,
            btime: m.btime,
        }
    }

    fn kind(&self) -> FileType {
        self.kind
    }

    fn perm(&self) -> Perm {
        let m = self.meta.lock();
        Perm { mode: m.mode, uid: m.uid, gid: m.gid }
    }

    fn statfs(&self) -> StatFs {
        self.fs.statfs()
    }

    fn touch_atime(&self) {
        const DAY: Time = 86_400_000_000_000;
        // relatime. A clean node forgets this when it goes, which nobody can rely on.
        let t = now();
        let mut m = self.meta.lock();
        if m.atime <= m.mtime.max(m.ctime) || t - m.atime >= DAY {
            m.atime = t;
        }
    }

    fn set_attr(&self, a: &SetAttr) -> Result<()> {
        self.changing()?;
        if let Some(mode) = a.mode
            && (mode ^ self.meta.lock().mode) & 0o111 != 0
            && self.object_if_written().is_some_and(|o| o.seals() & seal::EXEC != 0)
        {
            return Err(Errno::EPERM);
        }
        if let Some(size) = a.size {
            self.resize(size)?;
            self.drop_setid();
        }
        let t = now();
        let mut m = self.meta.lock();
        if let Some(mode) = a.mode {
            m.mode = (m.mode & 0o170000) | (mode & 0o7777);
        }
        m.uid = a.uid.unwrap_or(m.uid);
        m.gid = a.gid.unwrap_or(m.gid);
        m.atime = a.atime.unwrap_or(m.atime);
        m.mtime = a.mtime.unwrap_or(if a.size.is_some() { t } else { m.mtime });
        m.ctime = t;
        Ok(())
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        Ok(self.find(name)?)
    }

    fn create(&self, name: &[u8], mode: u32, uid: u32, gid: u32, rdev: u64) -> Result<Arc<dyn Inode>> {
        self.fs.room_for_inode()?;
        Ok(self.add(name, Node::make(&self.fs, mode, uid, gid, rdev, None))?)
    }

    fn symlink(&self, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Arc<dyn Inode>> {
        self.fs.room_for_inode()?;
        let mode = FileType::Symlink as u32 | 0o777;
        Ok(self.add(name, Node::make(&self.fs, mode, uid, gid, 0, Some(target)))?)
    }

    fn link(&self, name: &[u8], inode: &Arc<dyn Inode>) -> Result<()> {
        let node = self.same_fs(inode)?;
        self.link_node(name, &node)
    }

    fn unlink(&self, name: &[u8], _unused: bool) -> Result<()> {
        self.remove(name, false)
    }

    fn rmdir(&self, name: &[u8], _unused: bool) -> Result<()> {
        self.remove(name, true)
    }

    fn rename(
        &self,
        name: &[u8],
        new_dir: &Arc<dyn Inode>,
        new_name: &[u8],
        flags: RenameFlags,
        _unused: bool,
    ) -> Result<()> {
        let new_dir = self.same_fs(new_dir)?;
        self.rename_to(name, &new_dir, new_name, flags)
    }

    fn tmpfile(&self, mode: u32, uid: u32, gid: u32) -> Result<Arc<dyn Inode>> {
        self.fs.room_for_inode()?;
        let n = Node::make(&self.fs, FileType::Regular as u32 | mode, uid, gid, 0, None);
        {
            let mut m = n.meta.lock();
            m.nlink = 0;
            m.linkable = true;
        }
        Ok(n)
    }

    fn never_link(&self) {
        self.meta.lock().linkable = false;
    }

    fn readlink(&self) -> Result<Vec<u8>> {
        match &self.body {
            Body::Symlink(t) => Ok(t.to_vec()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn link_text(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Symlink(t) => Some(t),
            _ => None,
        }
    }

    fn open(&self, _flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
        match self.kind {
            FileType::Regular | FileType::Directory => Ok(self.this()?),
            _ => Err(Errno::ENXIO),
        }
    }

    fn getxattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.xattr_get(name)
    }

    fn setxattr(&self, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        self.xattr_set(name, value, how)
    }

    fn listxattr(&self) -> Result<Vec<u8>> {
        self.xattr_list()
    }

    fn removexattr(&self, name: &[u8]) -> Result<()> {
        self.xattr_remove(name)
    }

    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }

    fn in_memory(&self) -> bool {
        true
    }
}
