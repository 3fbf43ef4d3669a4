//! File systems on block devices (`doppelfs`): the same files over nothing, with a log on a device (`doppel_layer::disk`).

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_layer::disk::{FEWEST, Loaded, ROOT, Writer, format, load};
use doppel_layer::{Attributes, BLOCK, Error};
use doppel_machine::sync::{RwSpin, SpinLock};

use super::log::{Blocks, Disk, Log};
use super::restore::{Reader, Restore};
use super::{Frozen, Layer, Pending, Room};
use crate::core::part::Part;
use crate::core::random;
use crate::core::sched::Mutex;
use crate::objects::block::Device;
use crate::objects::pages::{PAGE, Store, page_file};
use crate::objects::rootfs::{Fs, Node, now};
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::drop_cached;
use crate::objects::vfs::mount::{Mount, vfs};
use crate::{Errno, Result};

/// Its name for mount(2).
pub const NAME: &str = "doppelfs";
/// Records have at most one in so many bytes of the domain's memory: in memory they take far more.
const SHARE: u64 = 32;
/// Bytes at a device's beginning that are zero if nobody has written anything there.
const BLANK: usize = 1 << 20;
/// Blocks that files leave free, so that what is in them can be overwritten: one in so many, and the bounds of that.
const RESERVE: (u64, u64, u64) = (32, 8, 4096);

/// File systems of devices that are mounted, or still in use.
#[derive(Default)]
pub struct Disks {
    all: SpinLock<Vec<(Weak<Fs>, Weak<Dentry>)>>,
}

/// The domain's.
pub static DISKS: Part<Disks> = Part::new();

/// Those that there are.
fn all() -> Vec<Arc<Fs>> {
    let mut all = DISKS.all.lock();
    all.retain(|(fs, _)| fs.strong_count() > 0);
    all.iter().filter_map(|(fs, _)| fs.upgrade()).collect()
}

/// The one on a device.
fn find(device: &Arc<Device>) -> Option<Arc<Fs>> {
    all()
        .into_iter()
        .find(|fs| fs.layer().and_then(Layer::device).is_some_and(|here| Arc::ptr_eq(here, device)))
}

/// Lets go of one that is mounted nowhere, unless programs use it.
fn let_go(fs: Arc<Fs>) -> Result<()> {
    // What was noted holds it.
    fs.layer().map_or(Ok(()), |layer| layer.sync(&fs))?;
    let known = |(one, _): &&(Weak<Fs>, Weak<Dentry>)| core::ptr::eq(one.as_ptr(), Arc::as_ptr(&fs));
    let root = DISKS.all.lock().iter().find(known).and_then(|(_, root)| root.upgrade());
    drop(fs);
    root.inspect(drop_cached);
    Ok(())
}

/// How one is mounted.
#[derive(Clone, Copy, Default)]
pub struct DiskOptions {
    /// Nothing is written.
    pub read_only: bool,
    /// One is made first, if nothing was ever written to the device.
    pub mkfs: bool,
}

impl DiskOptions {
    /// From mount options.
    ///
    /// # Errors
    /// EINVAL: there is no such option.
    pub fn parse(data: &[u8], read_only: bool) -> Result<Self> {
        let mut options = Self { read_only, mkfs: false };
        for word in data.split(|byte| *byte == b',').filter(|word| !word.is_empty()) {
            match word {
                b"mkfs" => options.mkfs = true,
                b"discard" | b"ro" | b"rw" => {}
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok(options)
    }
}

/// The root directory of the file system on a device. One that is mounted already has one tree with that.
///
/// # Errors
/// EINVAL: there is none; EUCLEAN: it is damaged; EACCES: it can only be read; EFBIG: it has too many files for the domain's memory;
/// EBUSY: it was unmounted, and programs still use it; or what the device says.
pub fn mount(device: &Arc<Device>, options: DiskOptions) -> Result<Arc<Dentry>> {
    if !options.read_only && device.is_read_only() {
        return Err(Errno::EACCES);
    }
    if let Some(fs) = find(device) {
        if let Some(root) = mounted_root(&fs) {
            if let Some(layer) = fs.layer().filter(|_| !options.read_only) {
                layer.writable.store(true, Ordering::SeqCst);
            }
            return Ok(root);
        }
        let_go(fs)?;
        if find(device).is_some() {
            return Err(Errno::EBUSY);
        }
    }
    let disk = Arc::new(Disk(device.used()));
    let blocks = device.size() / BLOCK;
    let loaded = match read(device, blocks) {
        Err(Errno::EINVAL) if options.mkfs && !options.read_only => {
            make(device, blocks)?;
            read(device, blocks)?
        }
        read => read?,
    };
    let root = open(&disk, loaded, blocks, options)?;
    let fs = Arc::downgrade(&root.fs);
    let root = Dentry::root(root);
    DISKS.all.lock().push((fs, Arc::downgrade(&root)));
    Ok(root)
}

/// The root of a file system, if it is mounted anywhere.
fn mounted_root(fs: &Arc<Fs>) -> Option<Arc<Dentry>> {
    let is_root = |mount: &Arc<Mount>| {
        of_root(&mount.root).is_some_and(|node| Arc::ptr_eq(&node.fs, fs) && node.ino() == ROOT)
    };
    vfs().list().iter().find(|mount| is_root(mount)).map(|mount| mount.root.clone())
}

/// The file, if it is of such a file system.
fn of_root(root: &Dentry) -> Option<Arc<Node>> {
    let inode: Arc<dyn Any + Send + Sync> = root.inode().clone();
    inode.downcast::<Node>().ok().filter(|node| node.layer().is_some_and(|layer| layer.device().is_some()))
}

fn read(device: &Device, blocks: u64) -> Result<Loaded> {
    let most = page_file().usage().1.saturating_mul(PAGE) / SHARE;
    let read = |at: u64, bytes: &mut [u8]| device.read_up_to(at, bytes);
    load(&mut Reader::new(read), blocks, usize::try_from(most).unwrap_or(usize::MAX)).map_err(|e| match e {
        Error::Io => Errno::EIO,
        Error::NotLayer | Error::Version(_) => Errno::EINVAL,
        Error::TooLarge => Errno::EFBIG,
        Error::Damaged | Error::Corrupt(_) => Errno::EUCLEAN,
    })
}

/// Makes an empty one, if nothing was ever written there.
fn make(device: &Device, blocks: u64) -> Result<()> {
    if blocks < FEWEST {
        return Err(Errno::EINVAL);
    }
    let mut beginning = alloc::vec![0; BLANK.min((blocks * BLOCK) as usize)];
    device.read_whole(0, &mut beginning)?;
    if beginning.iter().any(|byte| *byte != 0) {
        return Err(Errno::EINVAL);
    }
    let (mut salt, mut uuid, t) = ([0; 8], [0; 16], now());
    random::fill(&mut salt);
    random::fill(&mut uuid);
    let times = Attributes { atime: t, mtime: t, ctime: t, btime: t, ..Attributes::default() };
    let root = Attributes { mode: 0o040_755, nlink: 2, ..times };
    format(&mut Blocks(device), blocks, u64::from_le_bytes(salt), uuid, root)
}

/// The root directory of one that was read.
fn open(disk: &Arc<Disk>, loaded: Loaded, blocks: u64, options: DiskOptions) -> Result<Arc<Node>> {
    let writer = Writer::open(loaded, blocks);
    let fs = Fs::on_device(disk.0.number);
    let store: Arc<dyn Store> = disk.clone();
    let mut restore = Restore::new(&fs, &store);
    restore.all(writer.tree())?;
    let root = restore.node(ROOT).ok_or(Errno::EUCLEAN)?;
    let gone = restore.lost();
    let (share, fewest, most) = RESERVE;
    let reserve = (writer.capacity() / share).clamp(fewest, most);
    let limit = writer.capacity().saturating_sub(reserve) * BLOCK;
    let log = Log::Disk(Box::new(writer), disk.clone());
    let layer = Layer {
        device: Some(disk.clone()),
        store,
        room: Room::of(&log, limit),
        writer: Mutex::default(),
        writable: AtomicBool::new(!options.read_only),
        names: RwSpin::default(),
        pending: SpinLock::new(Pending { gone, ..Pending::default() }),
        frozen: Frozen::default(),
    };
    *layer.writer.lock() = Some(Box::new(log));
    fs.layer.set(layer).map_err(|_| Errno::EBUSY)?;
    Ok(root)
}

/// Writes all file systems on devices (`sync(2)`). Nobody is told what fails.
pub fn sync() {
    for fs in all() {
        let _ = fs.layer().map(|layer| layer.sync(&fs));
    }
}

/// The same of what may be written through mappings (`msync(2)`).
///
/// # Errors
/// What a device says.
pub fn sync_mapped() -> Result<()> {
    for fs in all() {
        fs.layer().map_or(Ok(()), |layer| layer.sync_mapped(&fs))?;
    }
    Ok(())
}

/// The domain ends: writes them all. One on a file of another is newer than that.
pub fn close() {
    for fs in all().iter().rev() {
        if let Some(Err(e)) = fs.layer().map(|layer| layer.close(fs)) {
            crate::core::log::log(&alloc::format!("doppel: a file system was not written: {}\n", e.words()));
        }
    }
}

/// A mount is about to be changed or taken away: writes its file system, if it is on a device.
///
/// # Errors
/// What the device says.
pub fn settle(root: &Dentry) -> Result<Option<Arc<Node>>> {
    let node = of_root(root);
    if let Some(node) = &node {
        node.sync_layer()?;
    }
    Ok(node)
}

/// It was taken away: leaves what is read fast.
pub fn unmounted(root: &Node) {
    // It was written before.
    let _ = root.layer().map(|layer| layer.close(&root.fs));
}

/// A mount is to be written to from here on.
///
/// # Errors
/// EACCES: its device can only be read.
pub fn allow_writes(root: &Dentry) -> Result<()> {
    let node = of_root(root);
    if let Some(layer) = node.as_ref().and_then(|node| node.layer()) {
        if layer.device().is_some_and(|device| device.is_read_only()) {
            return Err(Errno::EACCES);
        }
        layer.writable.store(true, Ordering::SeqCst);
    }
    Ok(())
}
