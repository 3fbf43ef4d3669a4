//! Data of regular files, and what open files and directories of a [`Node`] do.

use crate::core::subject::subject;
use crate::objects::vfs::flags::{FallocateFlags, MountFlags, OpenFlags};
use alloc::sync::Arc;

use doppel_machine::sync::{Once, SpinLock};

use super::broken;
use super::layer::unwritten;
use super::node::{Body, Node};
use crate::memory::MapSource;
use crate::objects::lookup::perm;
use crate::objects::pages::{Object, PAGE, Quota};
use crate::objects::vfs::file::{DirSink, File, FileOps, Splice, Whence, seek_from};
use crate::objects::vfs::inode::{FileType, Inode, Stat};
use crate::objects::vfs::io::{Input, Output};
use crate::{Errno, Result};

/// Where a regular file's bytes come from.
#[derive(Default)]
enum Origin {
    /// Nowhere, or they are scattered in the image.
    #[default]
    Other,
    /// They are one mappable range of the image: its offset and length.
    Image(u64, u64),
}

/// Where a regular file's bytes are.
#[derive(Default)]
pub(super) struct Content {
    origin: Origin,
    /// In the page file, from the first change on; for ever then.
    pages: Once<Arc<Object>>,
    /// Held while the pages are made.
    making: SpinLock<()>,
}

impl Content {
    /// The content of a new file, with this bound on its pages.
    pub fn new(quota: Option<Arc<Quota>>) -> Self {
        let c = Self::default();
        let first = c.pages.set(Object::within(0, quota));
        debug_assert!(first.is_ok());
        c
    }

    /// Content in the image; where, if it is one mappable range.
    pub fn in_image(image: Option<(u64, u64)>) -> Self {
        Self { origin: image.map_or(Origin::Other, |(at, len)| Origin::Image(at, len)), ..Self::default() }
    }

    /// Content that is somewhere else, and is brought in when it is needed.
    pub fn stored(object: Arc<Object>) -> Self {
        let c = Self::default();
        let first = c.pages.set(object);
        debug_assert!(first.is_ok());
        c
    }

    /// Where it is in the image, if it is one mappable range.
    fn in_one_range(&self) -> Option<(u64, u64)> {
        if let Origin::Image(at, len) = self.origin { Some((at, len)) } else { None }
    }

    /// The page object, if there is one.
    #[inline]
    pub fn pages(&self) -> Option<&Arc<Object>> {
        self.pages.get()
    }
}

impl Node {
    /// The page object, made from the image at the first call; at most `keep` bytes are kept.
    #[inline]
    pub(super) fn pages(&self, keep: u64) -> Result<&Arc<Object>> {
        let content = self.content()?;
        match content.pages() {
            Some(o) => Ok(o),
            None => self.make_pages(content, keep),
        }
    }

    #[cold]
    fn make_pages<'a>(&self, content: &'a Content, keep: u64) -> Result<&'a Arc<Object>> {
        self.changing()?;
        let _one = content.making.lock();
        if let Some(o) = content.pages() {
            return Ok(o);
        }
        let object = match content.in_one_range() {
            Some((offset, len)) => Object::from_image(offset, keep.min(len))?,
            None => self.gather(keep)?,
        };
        let first = content.pages.set(object);
        debug_assert!(first.is_ok());
        content.pages().ok_or(Errno::EIO)
    }

    /// The page object that holds (or from now on holds) the data of a regular file.
    pub fn object(&self) -> Result<Arc<Object>> {
        self.pages(u64::MAX).cloned()
    }

    /// The page object, if the data is in one.
    pub fn object_if_written(&self) -> Option<Arc<Object>> {
        self.content().ok()?.pages().cloned()
    }

    /// The same, borrowed.
    pub(super) fn object_in_memory(&self) -> Option<&Arc<Object>> {
        match &self.body {
            Body::Regular(c) => c.pages(),
            _ => None,
        }
    }

    /// Copies data that is scattered in the image.
    fn gather(&self, keep: u64) -> Result<Arc<Object>> {
        let Some(inode) = &self.lower else { return Err(Errno::EIO) };
        let size = inode.size.min(keep);
        let object = Object::new(0);
        let mut buf = alloc::vec![0u8; PAGE as usize];
        let mut at = 0;
        while at < size {
            let n = self.fs.image()?.read_at(inode, at, &mut buf).map_err(broken)?;
            let n = n.min((size - at) as usize);
            if n == 0 {
                return Err(Errno::EIO);
            }
            let (wrote, _) = object.write(&mut Input::kernel(&buf[..n]), at, false, u64::MAX)?;
            at += wrote as u64;
            if wrote < n {
                return Err(Errno::ENOSPC);
            }
        }
        Ok(object)
    }

    /// Truncates or extends a regular file.
    pub(super) fn resize(&self, size: u64) -> Result<()> {
        self.pages(size)?.truncate(size)
    }

    /// Reads from wherever the data is.
    fn read_data(&self, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let content = self.content()?;
        match content.pages() {
            Some(object) => object.read(out, offset),
            None => self.read_image(content.in_one_range(), out, offset),
        }
    }

    fn read_image(&self, range: Option<(u64, u64)>, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let Some(inode) = &self.lower else { return Err(Errno::EIO) };
        let n = (out.remaining() as u64).min(inode.size.saturating_sub(offset)) as usize;
        if n == 0 {
            return Ok(0);
        }
        let image = self.fs.image()?;
        if let Some((start, _)) = range {
            let from = (start + offset) as usize;
            return out.write(&image.image()[from..from + n]);
        }
        let mut done = 0;
        while done < n {
            let got = match image.extent(inode, offset + done as u64).map_err(broken)? {
                None => break,
                Some(doppel_erofs::Extent::Hole { len }) => out.zero((len as usize).min(n - done))?,
                Some(doppel_erofs::Extent::Data { offset, len }) => {
                    let len = (len as usize).min(n - done);
                    out.write(&image.image()[offset as usize..offset as usize + len])?
                }
            };
            if got == 0 {
                break;
            }
            done += got;
        }
        Ok(done)
    }

    /// An open file was read.
    fn accessed(&self, file: &File) {
        let flags = file.path.as_ref().map_or(MountFlags::RELATIME, |p| p.mount().flags());
        let quiet = flags.intersects(MountFlags::NOATIME | MountFlags::RDONLY);
        if quiet || file.flags().contains(OpenFlags::NOATIME) {
            return;
        }
        if flags.contains(MountFlags::RELATIME) {
            self.touch_atime();
        } else {
            self.meta.lock().atime = super::now();
        }
    }

    /// Bytes that are about to be written at a place, or at the end, find room in the layer, if it has a limit.
    #[inline]
    fn make_room(&self, at: Option<u64>, bytes: u64) -> Result<()> {
        let absent = |object: &Arc<Object>| object.absent(at.unwrap_or_else(|| object.len()), bytes);
        let new = || self.object_in_memory().map_or(bytes, absent);
        self.layer().map_or(Ok(()), |layer| layer.make_room(&self.fs, bytes, new))
    }

    fn write_data(
        &self,
        file: &File,
        input: &mut Input<'_>,
        offset: u64,
        append: bool,
    ) -> Result<(usize, u64)> {
        self.make_room((!append).then_some(offset), input.remaining() as u64)?;
        let object = self.pages(u64::MAX)?;
        let mut r = object.write(input, offset, append, file.size_limit());
        if matches!(r, Err(Errno::ENOSPC)) && self.layer().is_some() {
            // What is in the layer can be given up.
            self.sync_layer()?;
            r = object.write(input, offset, append, file.size_limit());
        }
        let r = r?;
        if r.0 > 0 && self.modified() & 0o6000 != 0 {
            self.drop_setid();
        }
        if self.layer().is_some() && file.flags().intersects(OpenFlags::DSYNC | OpenFlags::SYNC) {
            self.sync_layer()?;
        }
        Ok(r)
    }

    /// Writing takes set-user-ID and set-group-ID away, unless a privileged process writes.
    pub(super) fn drop_setid(&self) {
        let p = self.perm();
        if p.mode & 0o6000 == 0 {
            return;
        }
        let cred = subject().cred();
        if !cred.capable_over(p.uid, p.gid, perm::cap::FSETID) {
            self.meta.lock().mode &= !perm::lost_setid(&cred, p);
            self.changed(unwritten::FILE);
        }
    }

    fn size(&self) -> u64 {
        match &self.body {
            Body::Regular(_) => self.extent().0,
            _ => 0,
        }
    }
}

impl FileOps for Node {
    fn splice(&self) -> Splice {
        if self.kind() == FileType::Directory { Splice::Neither } else { Splice::Both }
    }

    fn read(&self, file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let r = self.read_data(out, offset);
        self.accessed(file);
        r
    }

    fn write(&self, file: &File, input: &mut Input<'_>, offset: u64) -> Result<usize> {
        self.write_data(file, input, offset, file.flags().contains(OpenFlags::APPEND)).map(|r| r.0)
    }

    fn append(&self, file: &File, input: &mut Input<'_>, offset: u64) -> Result<(usize, u64)> {
        self.write_data(file, input, offset, true)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        let size = self.size();
        let base = match whence {
            Whence::Set => 0,
            Whence::Cur => file.pos.get(),
            Whence::End if self.kind() == FileType::Directory => i64::MAX.cast_unsigned(),
            Whence::End => size,
            Whence::Data | Whence::Hole => {
                let at = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                if let Body::Regular(c) = &self.body
                    && let Some(o) = c.pages()
                {
                    return o.seek(at, whence == Whence::Data);
                }
                if at >= size {
                    return Err(Errno::ENXIO);
                }
                return Ok(if whence == Whence::Data { at } else { size });
            }
        };
        seek_from(base, offset)
    }

    fn pollable(&self) -> bool {
        false
    }

    fn ioctl(&self, file: &File, cmd: u32, arg: u64) -> Result<u64> {
        const FIONREAD: u32 = 0x541b;
        const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
        match cmd {
            FIONREAD if self.kind() == FileType::Regular => {
                let left = self.size().saturating_sub(file.pos.get());
                File::copy_out(arg, &(left.min(i32::MAX as u64) as i32))
            }
            FS_IOC_GETFLAGS => File::copy_out(arg, &0u32),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn map(&self, file: &File) -> Result<MapSource> {
        let Body::Regular(c) = &self.body else { return Err(Errno::ENODEV) };
        if !file.writable() {
            match (c.pages(), c.in_one_range()) {
                (Some(o), _) => return Ok(MapSource::Pages(o.clone())),
                (None, Some((offset, len))) => return Ok(MapSource::Image { offset, len }),
                (None, None) => {}
            }
        }
        // It may be written through the mapping, or is scattered in the image, or in the layer.
        let object = self.object()?;
        if file.writable()
            && let Some(layer) = self.layer()
        {
            layer.note_mapped(&self.fs, &self.this()?);
        }
        Ok(MapSource::Pages(object))
    }

    fn readdir(&self, file: &File, pos: u64, sink: &mut DirSink<'_>) -> Result<()> {
        self.accessed(file);
        self.list(pos, sink)
    }

    fn fsync(&self, _file: &File) -> Result<()> {
        self.sync_layer()
    }

    fn fallocate(&self, file: &File, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|e| i64::try_from(*e).is_ok()).ok_or(Errno::EFBIG)?;
        let keep = mode.contains(FallocateFlags::KEEP_SIZE);
        if !keep && end > file.size_limit() {
            return Err(Errno::EFBIG);
        }
        if !mode.contains(FallocateFlags::PUNCH_HOLE) {
            self.make_room(Some(offset), len)?;
        }
        let object = self.pages(u64::MAX)?;
        match mode - FallocateFlags::KEEP_SIZE {
            FallocateFlags::ALLOCATE => object.reserve(offset, len, keep)?,
            FallocateFlags::PUNCH_HOLE if keep => object.punch(offset, len)?,
            FallocateFlags::ZERO_RANGE => {
                object.punch(offset, len)?;
                object.reserve(offset, len, keep)?;
            }
            _ => return Err(Errno::EOPNOTSUPP),
        }
        self.modified();
        self.drop_setid();
        Ok(())
    }

    fn truncate(&self, _file: &File, len: u64) -> Result<()> {
        self.resize(len)?;
        self.modified();
        self.drop_setid();
        Ok(())
    }

    fn stat(&self, _file: &File) -> Result<Stat> {
        Ok(Inode::stat(self))
    }
}
