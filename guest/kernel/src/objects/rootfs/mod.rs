//! The root file system and tmpfs: files in memory, over an image or over nothing.
//!
//! Key types: [`Fs`], [`Node`] (one file). A file of the image is one `Node` whose parts (attributes, data,
//! entries) come from the image until first changed, so inode numbers, hard links and open files stay the
//! same across the change. A changed node of the image is kept by [`Fs::keep`]; a clean one lives only as
//! long as somebody holds it. New nodes are held by their directory's entries.
//! Lock order: directory body (of two: by address) → node table → meta → content → page object; the table of handles
//! is taken alone.

mod dir;
mod handled;
mod layer;
mod node;
mod regular;
mod xattr;

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_erofs::Erofs;
use doppel_machine::boot;
use doppel_machine::sync::{Once, SpinLock};

pub use dir::kind_of;
pub use layer::{
    DISK_TYPE, DISKS, DiskOptions, allow_writes, close_disks, mount_disk, settle, sync_disks,
    sync_mapped_disks, unmounted,
};
pub use layer::{Going, begin_above as begin_above_layer, go_on as layer_goes_on};
pub use layer::{close as close_layer, open as open_layer, sync as sync_layer, sync_mapped};
pub use layer::{
    is_as_wanted, pause as pause_layer, ready_to_freeze, share as share_layer, takes_memory,
    write_still as write_layer,
};
pub use node::{Node, makedev};

use super::pages::{PAGE, Quota, page_file};
use super::vfs::inode::{FileType, StatFs, Time};
use crate::{Errno, Result};

/// The node of an image inode.
enum Slot {
    /// Unchanged: made again when needed.
    Clean(Weak<Node>),
    /// Changed: this is the only copy of the change.
    Kept(Arc<Node>),
}

/// A file system in memory.
pub struct Fs {
    dev: u64,
    image: Option<Erofs<'static>>,
    next_ino: AtomicU64,
    nodes: SpinLock<BTreeMap<u64, Slot>>,
    handled: handled::Handled,
    /// What its files may hold; none: as much as the domain.
    quota: Option<Arc<Quota>>,
    /// Inodes that are not the image's, and the most there may be.
    inodes: AtomicU64,
    inode_limit: AtomicU64,
    mounted: Time,
    /// Where its changes are kept, if they are.
    layer: Once<layer::Layer>,
}

/// Inodes shown for a file system that bounds them only by memory.
const INODES: u64 = 1 << 20;

/// Device number of the root file system.
const ROOT_DEV: u64 = 0x15;

/// The image's file system: its root directory. Panics if the host gave a broken image.
pub(crate) fn from_image() -> Arc<Node> {
    let erofs = match Erofs::open(boot::image()) {
        Ok(e) => e,
        Err(e) => panic!("root image: {e}"),
    };
    let fs = Arc::new(Fs {
        dev: ROOT_DEV,
        image: Some(erofs),
        next_ino: AtomicU64::new(boot::start_info().image_size / 32 + 1),
        nodes: SpinLock::default(),
        handled: handled::Handled::default(),
        quota: None,
        inodes: AtomicU64::new(0),
        inode_limit: AtomicU64::new(INODES),
        mounted: now(),
        layer: Once::new(),
    });
    match fs.image_node(erofs.root_nid()) {
        Ok(n) => n,
        Err(e) => panic!("root image: no root directory: {}", e.0),
    }
}

/// What a tmpfs is mounted with.
#[derive(Clone, Copy, Debug)]
pub struct TmpfsOptions {
    /// Permissions of its root directory.
    pub mode: u32,
    /// Owner of that.
    pub uid: u32,
    /// Group of that.
    pub gid: u32,
    /// Most bytes its files may hold, 0 for no limit of its own.
    pub size: u64,
    /// Most inodes, 0 for no limit.
    pub inodes: u64,
}

impl Default for TmpfsOptions {
    fn default() -> Self {
        Self { mode: 0o1777, uid: 0, gid: 0, size: 0, inodes: INODES }
    }
}

/// A new empty tmpfs: its root directory.
pub fn tmpfs(o: TmpfsOptions) -> Arc<Node> {
    let fs = Arc::new(Fs {
        dev: super::vfs::mount::new_dev(),
        image: None,
        next_ino: AtomicU64::new(1),
        nodes: SpinLock::default(),
        handled: handled::Handled::default(),
        quota: Some(Arc::new(Quota::new(page_limit(o.size)))),
        inodes: AtomicU64::new(0),
        inode_limit: AtomicU64::new(inode_limit(o.inodes)),
        mounted: now(),
        layer: Once::new(),
    });
    Node::make(&fs, FileType::Directory as u32 | o.mode, o.uid, o.gid, 0, None)
}

fn inode_limit(inodes: u64) -> u64 {
    if inodes == 0 { u64::MAX } else { inodes }
}

fn page_limit(size: u64) -> u64 {
    if size == 0 { u64::MAX } else { size.div_ceil(PAGE) }
}

/// Changes what the tmpfs of which `root` is the root may hold: bytes and inodes, 0 for no limit of its own.
///
/// # Errors
/// EINVAL: it holds more already.
pub fn set_limits(root: &Arc<dyn super::vfs::Inode>, size: Option<u64>, inodes: Option<u64>) -> Result<()> {
    let root: Arc<dyn core::any::Any + Send + Sync> = root.clone();
    let Ok(root) = root.downcast::<Node>() else { return Ok(()) };
    let fs = &root.fs;
    let (pages, inodes) = (size.map(page_limit), inodes.map(inode_limit));
    let quota = fs.quota.as_ref();
    if pages.is_some_and(|p| quota.is_some_and(|q| q.usage().0 > p))
        || inodes.is_some_and(|i| fs.inodes.load(Ordering::Relaxed) > i)
    {
        return Err(Errno::EINVAL);
    }
    if let (Some(pages), Some(quota)) = (pages, quota) {
        quota.set_limit(pages);
    }
    if let Some(inodes) = inodes {
        fs.inode_limit.store(inodes, Ordering::Relaxed);
    }
    Ok(())
}

impl Fs {
    /// One on a device, that is empty.
    fn on_device((major, minor): (u32, u32)) -> Arc<Self> {
        Arc::new(Self {
            dev: makedev(major, minor),
            image: None,
            next_ino: AtomicU64::new(1),
            nodes: SpinLock::default(),
            handled: handled::Handled::default(),
            quota: None,
            inodes: AtomicU64::new(0),
            inode_limit: AtomicU64::new(u64::MAX),
            mounted: now(),
            layer: Once::new(),
        })
    }
}

/// Wall clock time.
pub fn now() -> Time {
    crate::core::time::coarse_realtime_ns().cast_signed()
}

/// What a broken image looks like to a program.
fn broken(_: doppel_erofs::Error) -> Errno {
    Errno::EIO
}

impl Fs {
    fn image(&self) -> Result<&Erofs<'static>> {
        self.image.as_ref().ok_or(Errno::EIO)
    }

    #[inline]
    fn layer(&self) -> Option<&layer::Layer> {
        self.layer.get().filter(|layer| !layer.is_detached())
    }

    /// ENOSPC when there may be no more inodes.
    fn room_for_inode(&self) -> Result<()> {
        if self.image.is_none()
            && self.inodes.load(Ordering::Relaxed) >= self.inode_limit.load(Ordering::Relaxed)
        {
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    fn new_ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }

    /// The node of an image inode.
    fn image_node(self: &Arc<Self>, nid: u64) -> Result<Arc<Node>> {
        let mut nodes = self.nodes.lock();
        match nodes.get(&nid) {
            Some(Slot::Kept(n)) => return Ok(n.clone()),
            Some(Slot::Clean(w)) => {
                if let Some(n) = w.upgrade() {
                    return Ok(n);
                }
            }
            None => {}
        }
        let n = Node::from_image(self, self.image()?.inode(nid).map_err(broken)?)?;
        nodes.insert(nid, Slot::Clean(Arc::downgrade(&n)));
        Ok(n)
    }

    /// Keeps a changed node of the image.
    fn keep(&self, nid: u64, node: Arc<Node>) {
        self.nodes.lock().insert(nid, Slot::Kept(node));
    }

    /// Lets go of a kept node that has lost its last name: it lives on while it is open.
    fn let_go(&self, nid: u64) {
        let mut nodes = self.nodes.lock();
        let kept = match nodes.get_mut(&nid) {
            Some(s @ Slot::Kept(_)) => {
                let Slot::Kept(n) = core::mem::replace(s, Slot::Clean(Weak::new())) else { return };
                *s = Slot::Clean(Arc::downgrade(&n));
                n
            }
            _ => return,
        };
        drop(nodes);
        drop(kept);
    }

    /// A clean node is gone: drops its slot if nobody made the node anew.
    fn forget(&self, nid: u64) {
        let mut nodes = self.nodes.lock();
        if let Some(Slot::Clean(w)) = nodes.get(&nid)
            && w.strong_count() == 0
        {
            nodes.remove(&nid);
        }
    }

    fn statfs(&self) -> StatFs {
        const DISK_MAGIC: u64 = 0x6470_6673;
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
        let left = |(used, limit): (u64, u64)| limit.saturating_sub(used);
        let all = page_file().usage();
        let own = self.quota.as_ref().map(|q| q.usage()).filter(|(_, most)| *most != u64::MAX);
        let kept = self.layer().and_then(layer::Layer::room).map(|(used, limit)| (used / PAGE, limit / PAGE));
        let total = kept.or(own).map_or(all.1, |o| o.1);
        let free = match kept {
            Some(kept) => left(kept),
            None => own.map_or(u64::MAX, left).min(left(all)),
        };
        let most = self.inode_limit.load(Ordering::Relaxed);
        let files = if most == u64::MAX { 0 } else { most };
        let files_free = files.saturating_sub(self.inodes.load(Ordering::Relaxed));
        let bounded = self.layer().and_then(layer::Layer::files);
        let (files, files_free) = bounded.unwrap_or((files, files_free));
        StatFs {
            magic: match (&self.image, bounded) {
                (Some(_), _) => OVERLAYFS_MAGIC,
                (None, Some(_)) => DISK_MAGIC,
                (None, None) => TMPFS_MAGIC,
            },
            block_size: PAGE,
            blocks: total,
            free,
            files,
            files_free,
            dev: self.dev,
        }
    }
}
