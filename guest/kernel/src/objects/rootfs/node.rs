//! One file of a [`Fs`]: identity, attributes, and the [`Inode`] operations.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use doppel_erofs as erofs;
use doppel_machine::sync::{ReadGuard, RwSpin, SpinLock};

use super::dir::Dir;
use super::layer::unwritten;
use super::regular::Content;
use super::{Fs, broken, now};
use crate::objects::lookup::perm::Perm;
use crate::objects::pages::{Object, PAGE, Seals, Store};
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

impl Meta {
    /// As a layer has kept it.
    fn restored(a: &doppel_layer::Attributes) -> Self {
        let doppel_layer::Attributes { mode, uid, gid, nlink, atime, mtime, ctime, btime, .. } = *a;
        Self { mode, uid, gid, nlink, atime, mtime, ctime, btime, linkable: false }
    }
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
    /// What of it has to be written to the layer.
    pub(super) unwritten: AtomicU8,
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
        let (kind, meta) = Self::image_meta(fs, &i)?;
        let body = Self::image_body(fs, &i, kind)?;
        Ok(Self::assemble(fs, i.nid, kind, Some(i), false, meta, body, None))
    }

    fn image_body(fs: &Arc<Fs>, i: &erofs::Inode, kind: FileType) -> Result<Body> {
        let image = fs.image()?;
        Ok(match kind {
            FileType::Regular => Body::Regular(Content::in_image(image.data_range(i).map_err(broken)?)),
            FileType::Directory => Body::Dir(Box::new(RwSpin::new(Dir::over(*i)))),
            FileType::Symlink => Body::Symlink(image.symlink(i).map_err(broken)?.into()),
            _ => {
                let (major, minor) = i.device();
                Body::Special { rdev: makedev(major, minor) }
            }
        })
    }

    fn image_meta(fs: &Arc<Fs>, i: &erofs::Inode) -> Result<(FileType, Meta)> {
        let mode = u32::from(i.mode);
        let kind = FileType::from_mode(mode).ok_or(Errno::EIO)?;
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
        Ok((kind, meta))
    }

    /// A file that a layer has kept; none if that says too little of it.
    pub(super) fn restored(
        fs: &Arc<Fs>,
        ino: u64,
        lower: Option<erofs::Inode>,
        file: &doppel_layer::File,
        store: &Arc<dyn Store>,
    ) -> Option<Arc<Self>> {
        let meta = match (&file.attributes, &lower) {
            (Some(a), _) => Meta::restored(a),
            (None, Some(i)) => Self::image_meta(fs, i).ok()?.1,
            (None, None) => return None,
        };
        let kind = FileType::from_mode(meta.mode)?;
        let body = match (kind, &file.content, &lower) {
            (FileType::Regular, Some(c), _) => {
                Body::Regular(Content::stored(Object::stored(c.size, store.clone(), c.blocks.clone())))
            }
            (_, _, Some(i)) => Self::image_body(fs, i, kind).ok()?,
            (FileType::Regular, None, None) => Body::Regular(Content::new(None)),
            (FileType::Directory, ..) => Body::Dir(Box::default()),
            (FileType::Symlink, ..) => Body::Symlink(file.target.clone()?.into()),
            _ => Body::Special { rdev: file.attributes?.rdev },
        };
        if lower.is_none() {
            fs.inodes.fetch_add(1, Ordering::Relaxed);
        }
        let xattrs = file.xattrs.clone().or_else(|| lower.is_none().then(Xattrs::default));
        Some(Self::assemble(fs, ino, kind, lower, true, meta, body, xattrs))
    }

    /// What a layer has kept of an image's directory.
    pub(super) fn restore_attributes(&self, file: &doppel_layer::File) {
        if let Some(a) = &file.attributes {
            *self.meta.lock() = Meta::restored(a);
        }
        if let Some(xattrs) = &file.xattrs {
            *self.xattrs.lock() = Some(xattrs.clone());
        }
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
            unwritten: AtomicU8::new(0),
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
        let mode = {
            let mut m = self.meta.lock();
            m.mtime = t;
            m.ctime = t;
            m.mode
        };
        self.changed(unwritten::FILE);
        mode
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
        self.changed(unwritten::FILE);
        if left == 0 {
            self.lose_last_name();
        }
        Ok(())
    }

    /// The last name is gone: a removed directory counts as having none.
    pub(super) fn lose_last_name(&self) {
        self.meta.lock().nlink = 0;
        self.fs.handled.unnamed(self.ino);
        if let Some(layer) = self.layer() {
            layer.note_gone(self.ino);
        }
        if let Some(i) = &self.lower {
            self.fs.let_go(i.nid);
        }
    }

    /// Held over a change of names, so that a transaction has it whole or not at all.
    fn changes(&self) -> Option<ReadGuard<'_, ()>> {
        self.layer().map(|layer| layer.changes())
    }

    /// What is about to be said of a name or an attribute finds room in the layer, if it has a limit.
    #[inline]
    fn make_name_room(&self, text: usize) -> Result<()> {
        self.layer().map_or(Ok(()), |layer| layer.make_name_room(&self.fs, text))
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

    /// Size and 512-byte blocks; asks nobody.
    pub(super) fn extent(&self) -> (u64, u64) {
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
            && self.object_if_written().is_some_and(|o| o.seals().contains(Seals::EXEC))
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
        drop(m);
        self.changed(unwritten::FILE);
        Ok(())
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        Ok(self.find(name)?)
    }

    fn create(&self, name: &[u8], mode: u32, uid: u32, gid: u32, rdev: u64) -> Result<Arc<dyn Inode>> {
        self.fs.room_for_inode()?;
        self.make_name_room(name.len())?;
        let _changes = self.changes();
        Ok(self.add(name, Node::make(&self.fs, mode, uid, gid, rdev, None))?)
    }

    fn symlink(&self, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Arc<dyn Inode>> {
        self.fs.room_for_inode()?;
        self.make_name_room(name.len() + target.len())?;
        let _changes = self.changes();
        let mode = FileType::Symlink as u32 | 0o777;
        Ok(self.add(name, Node::make(&self.fs, mode, uid, gid, 0, Some(target)))?)
    }

    fn link(&self, name: &[u8], inode: &Arc<dyn Inode>) -> Result<()> {
        let node = self.same_fs(inode)?;
        self.make_name_room(name.len())?;
        let _changes = self.changes();
        self.link_node(name, &node)
    }

    fn unlink(&self, name: &[u8], _unused: bool) -> Result<()> {
        let _changes = self.changes();
        self.remove(name, false)
    }

    fn rmdir(&self, name: &[u8], _unused: bool) -> Result<()> {
        let _changes = self.changes();
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
        self.make_name_room(new_name.len())?;
        let _changes = self.changes();
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
        self.make_name_room(name.len() + value.len())?;
        self.xattr_set(name, value, how)
    }

    fn listxattr(&self) -> Result<Vec<u8>> {
        self.xattr_list()
    }

    fn removexattr(&self, name: &[u8]) -> Result<()> {
        self.xattr_remove(name)
    }

    fn handle(&self) -> Option<[u32; 3]> {
        let ino = self.give_handle();
        Some([self.generation(), ino as u32, (ino >> 32) as u32])
    }

    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }

    fn in_memory(&self) -> bool {
        true
    }
}
