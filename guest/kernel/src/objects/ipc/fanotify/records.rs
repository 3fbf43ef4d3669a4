//! Events as they are read.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::flags::{FanMask, InitFlags};
use crate::objects::vfs::Inode;
use crate::objects::vfs::attach::handle::Handle;
use crate::objects::vfs::dentry::Dentry;

/// Size of `struct fanotify_event_metadata`.
pub(super) const METADATA: usize = 24;
const VERSION: u8 = 3;
/// The descriptor of an event that has none.
pub(super) const NO_FD: i32 = -1;

/// Kinds of records behind an event.
mod kind {
    pub(super) const FID: u8 = 1;
    pub(super) const DFID_NAME: u8 = 2;
    pub(super) const DFID: u8 = 3;
    pub(super) const PIDFD: u8 = 4;
    pub(super) const OLD_DFID_NAME: u8 = 10;
    pub(super) const NEW_DFID_NAME: u8 = 12;
}

/// A file by its file system and handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Fid {
    fsid: [i32; 2],
    handle: Handle,
}

impl Fid {
    pub(super) fn of(inode: &Arc<dyn Inode>, at: Option<&Arc<Dentry>>) -> Self {
        let (dev, ino) = inode.place();
        Self { fsid: [dev as i32, 0], handle: Handle::of(&**inode, at).unwrap_or(Handle::compared(ino)) }
    }
}

/// Files of an event that is told by handles.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Files {
    /// A directory, with the name in it that the event is about, if names are told.
    pub(super) dir: Option<(Fid, Option<Vec<u8>>)>,
    /// Where a name went to.
    pub(super) new: Option<(Fid, Vec<u8>)>,
    /// The file itself.
    pub(super) object: Option<Fid>,
}

fn put_fid(out: &mut Vec<u8>, kind: u8, fid: &Fid, name: Option<&[u8]>) {
    let start = out.len();
    out.extend_from_slice(&[kind, 0, 0, 0]);
    fid.fsid.iter().for_each(|w| out.extend_from_slice(&w.to_ne_bytes()));
    let words = fid.handle.words();
    out.extend_from_slice(&(4 * words.len() as u32).to_ne_bytes());
    out.extend_from_slice(&fid.handle.kind.to_ne_bytes());
    words.iter().for_each(|w| out.extend_from_slice(&w.to_ne_bytes()));
    if let Some(name) = name {
        out.extend_from_slice(name);
        out.push(0);
    }
    let len = (out.len() - start).next_multiple_of(4);
    out.resize(start + len, 0);
    out[start + 2..start + 4].copy_from_slice(&(len as u16).to_ne_bytes());
}

impl Files {
    fn put(&self, out: &mut Vec<u8>, mask: FanMask, how: InitFlags) {
        if let Some((dir, name)) = &self.dir {
            let kind = match name {
                _ if mask.contains(FanMask::RENAME) => kind::OLD_DFID_NAME,
                Some(_) => kind::DFID_NAME,
                None => kind::DFID,
            };
            put_fid(out, kind, dir, name.as_deref());
        }
        if let Some((dir, name)) = &self.new {
            put_fid(out, kind::NEW_DFID_NAME, dir, Some(name));
        }
        let Some(object) = &self.object else { return };
        let alone = self.dir.is_none() && self.new.is_none();
        let of_dir = mask.intersects(FanMask::ENTRY | FanMask::ONDIR);
        if !alone || how & InitFlags::FID == InitFlags::REPORT_FID {
            put_fid(out, kind::FID, object, None);
        } else if how.contains(InitFlags::REPORT_NAME) && mask.contains(FanMask::ONDIR) {
            put_fid(out, kind::DFID_NAME, object, Some(b"."));
        } else {
            put_fid(out, if of_dir { kind::DFID } else { kind::FID }, object, None);
        }
    }

    /// The records as they are read.
    pub(super) fn bytes(&self, mask: FanMask, how: InitFlags) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out, mask, how);
        out
    }
}

/// All of an event but its records of files, which are given.
pub(super) fn whole(mask: FanMask, fd: i32, pid: i32, files: &[u8], pidfd: Option<i32>) -> Vec<u8> {
    let len = METADATA + files.len() + if pidfd.is_some() { 8 } else { 0 };
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&(len as u32).to_ne_bytes());
    out.extend_from_slice(&[VERSION, 0]);
    out.extend_from_slice(&(METADATA as u16).to_ne_bytes());
    out.extend_from_slice(&mask.bits().to_ne_bytes());
    out.extend_from_slice(&fd.to_ne_bytes());
    out.extend_from_slice(&pid.to_ne_bytes());
    out.extend_from_slice(files);
    if let Some(pidfd) = pidfd {
        out.extend_from_slice(&[kind::PIDFD, 0, 8, 0]);
        out.extend_from_slice(&pidfd.to_ne_bytes());
    }
    out
}
