//! The layer in which changes of the root file system are kept, so that files stay when the domain ends (`doppel_layer`).
//!
//! Files are in memory. Changes are noted as they happen: names as records, at once and in order; files in a list, whose attributes and
//! changed pages are looked at when they are written. One [`Layer::commit`] writes all of it as one transaction: what is found after a
//! crash is the tree as it was at one moment. fsync and sync make one and wait for the disk; else there is one some seconds after a
//! change, and one at the domain's end.
//! Pages that are in the layer are brought in when they are needed, and given up when memory is (`objects::pages`).
//!
//! Key types: [`Layer`], [`Pending`] (what was noted).
//! Lock order: the writer → names → what was noted → a file's own locks.

mod commit;
mod disk;
mod freeze;
mod log;
mod restore;
mod room;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_layer::{BLOCK, Record};
use doppel_machine::sync::{ReadGuard, RwSpin, SpinLock};

use super::{Fs, Node};
use crate::core::sched::{Mutex, MutexGuard, can_wait, wait_until_uninterruptible};
use crate::core::time::{self, Expire};
use crate::core::work;
use crate::objects::block::Device;
use crate::objects::pages::Store;
use crate::objects::storage::{self, RawFile};
use crate::objects::vfs::mount::vfs;
use crate::{Errno, Result, kernel};

use log::{Disk, Log};

pub use disk::{DISKS, DiskOptions, NAME as DISK_TYPE};
pub use disk::{allow_writes, mount as mount_disk, settle, unmounted};
pub use disk::{close as close_disks, sync as sync_disks, sync_mapped as sync_mapped_disks};
use freeze::Frozen;
pub use freeze::{
    Going, begin_above, go_on, is_as_wanted, pause, ready_to_freeze, share, takes_memory, write_still,
};
pub use restore::open;
use room::Room;

/// How long after a change it is written at the latest, in nanoseconds.
const AFTER_NS: u64 = 5_000_000_000;
/// The same for what is only written through mappings, in which nothing was found again and again.
const RARELY_NS: u64 = 80_000_000_000;
/// Bytes of noted names after which they are written at once.
const MANY: usize = 4 << 20;
/// How long PID 1 waits for somebody who is just writing, in nanoseconds.
const PATIENCE_NS: u64 = 5_000_000_000;

/// What of a file has to be written, as bits of `Node::unwritten`.
pub(super) mod unwritten {
    /// It is in the list: attributes, and pages that say so themselves.
    pub const FILE: u8 = 1;
    /// Extended attributes.
    pub const XATTRS: u8 = 2;
    /// It is among those that are mapped.
    pub const MAPPED: u8 = 4;
}

/// A layer that is in use.
pub(super) struct Layer {
    /// The device it is on; none: it is in a file of the storage service's.
    device: Option<Arc<Disk>>,
    /// Where files' pages are.
    store: Arc<dyn Store>,
    /// Whoever writes holds it. There is always one in it.
    writer: Mutex<Option<Box<Log>>>,
    /// It may be written.
    writable: AtomicBool,
    /// Shared by whoever changes names, for the whole of one change; exclusive to take what was noted.
    names: RwSpin<()>,
    pending: SpinLock<Pending>,
    frozen: Frozen,
    room: Room,
}

/// What was noted since the last transaction.
#[derive(Default)]
struct Pending {
    /// Changes of names, as records.
    names: Vec<u8>,
    /// Files that have lost their last name.
    gone: Vec<u64>,
    /// Files that were changed.
    files: BTreeMap<u64, Arc<Node>>,
    /// Files that may be written through mappings.
    mapped: Vec<Arc<Node>>,
    /// A [`Flush`] is armed.
    armed: bool,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.gone.is_empty() && self.files.is_empty()
    }

    /// Nothing will be found that has to be written.
    fn is_quiet(&self) -> bool {
        self.is_empty() && self.mapped.is_empty()
    }
}

/// Writes what was noted when its time has come.
struct Flush {
    fs: Weak<Fs>,
    /// How long it waited.
    after: u64,
}

impl Flush {
    fn arm(fs: &Weak<Fs>, after: u64) {
        let flush = Arc::new(Self { fs: fs.clone(), after });
        kernel().timekeeper.arm(time::monotonic_ns() + after, flush);
    }
}

impl Expire for Flush {
    fn expire(self: Arc<Self>, _now: u64) {
        let flush = self.clone();
        let begun = work::START.get()(Box::new(move || {
            let Some(fs) = flush.fs.upgrade() else { return };
            if let Some(layer) = fs.layer() {
                layer.flush(&fs, flush.after);
            }
        }));
        if !begun {
            Self::arm(&self.fs, AFTER_NS);
        }
    }
}

impl Layer {
    /// Held by whoever changes names.
    pub fn changes(&self) -> ReadGuard<'_, ()> {
        self.names.read()
    }

    /// Notes a change of a name. The caller holds [`Self::changes`].
    pub fn note_name(&self, fs: &Arc<Fs>, record: &Record<'_>) {
        let mut pending = self.pending.lock();
        record.encode(&mut pending.names);
        let many = pending.names.len() > MANY;
        arm(&mut pending, fs, if many { 0 } else { AFTER_NS });
    }

    /// Notes that a file was changed.
    #[cold]
    pub fn note_file(&self, fs: &Arc<Fs>, node: Arc<Node>) {
        let mut pending = self.pending.lock();
        pending.files.insert(node.ino(), node);
        arm(&mut pending, fs, AFTER_NS);
    }

    /// Notes that a file has no name any more.
    pub fn note_gone(&self, ino: u64) {
        let file = {
            let mut pending = self.pending.lock();
            pending.gone.push(ino);
            pending.files.remove(&ino)
        };
        // Its memory may go here.
        drop(file);
    }

    /// Notes that a file is being mapped so that it may be written through the mapping; the caller holds its pages.
    pub fn note_mapped(&self, fs: &Arc<Fs>, node: &Arc<Node>) {
        let mut pending = self.pending.lock();
        if node.unwritten.fetch_or(unwritten::MAPPED, Ordering::AcqRel) & unwritten::MAPPED == 0 {
            pending.mapped.push(node.clone());
        }
        arm(&mut pending, fs, AFTER_NS);
    }

    /// The writer. Who has no thread waits for another one for some seconds only.
    fn hold(&self) -> Result<MutexGuard<'_, Option<Box<Log>>>> {
        let frozen = &self.frozen;
        while can_wait() {
            // A domain that stands still has no writer.
            let going = || (!frozen.paused.load(Ordering::SeqCst)).then_some(());
            wait_until_uninterruptible(&frozen.goes_on, going);
            let held = self.writer.lock();
            if held.is_some() || self.is_detached() {
                return Ok(held);
            }
        }
        let until = time::monotonic_ns() + PATIENCE_NS;
        loop {
            if let Some(held) = self.writer.try_lock() {
                return Ok(held);
            }
            if time::monotonic_ns() > until {
                return Err(Errno::EIO);
            }
            storage::nap();
        }
    }

    /// Whether this is a clone, whose files are in memory alone.
    #[inline]
    pub fn is_detached(&self) -> bool {
        self.frozen.detached.load(Ordering::Relaxed)
    }

    /// Writes all that was noted, and waits until it is on the disk.
    ///
    /// # Errors
    /// What the service says. What could not be written is tried again later.
    pub fn sync(&self, fs: &Arc<Fs>) -> Result<()> {
        if !self.writable.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut held = self.hold()?;
        // In a clone there is none.
        let Some(writer) = held.as_mut() else { return Ok(()) };
        self.commit(fs, writer, true)?;
        writer.sync()
    }

    /// The same if something may be written through mappings.
    fn sync_mapped(&self, fs: &Arc<Fs>) -> Result<()> {
        let any = !self.pending.lock().mapped.is_empty();
        if any { self.sync(fs) } else { Ok(()) }
    }

    /// The device it is on, if it is on one.
    pub fn device(&self) -> Option<&Arc<Device>> {
        self.device.as_ref().map(|disk| &*disk.0)
    }

    /// The domain ends: the same, and leaves a layer that is read fast.
    pub fn close(&self, fs: &Arc<Fs>) -> Result<()> {
        if !self.writable.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut held = self.hold()?;
        let Some(writer) = held.as_mut() else { return Ok(()) };
        self.commit(fs, writer, true)?;
        writer.close()
    }

    /// The timer's work.
    fn flush(&self, fs: &Arc<Fs>, after: u64) {
        let before = {
            let mut pending = self.pending.lock();
            pending.armed = false;
            !pending.is_empty()
        };
        // Nobody waits for it: whoever syncs is told.
        let failed = self.sync(fs).is_err();
        let mut pending = self.pending.lock();
        if failed {
            arm(&mut pending, fs, AFTER_NS);
        } else if !pending.mapped.is_empty() {
            arm(&mut pending, fs, if before { AFTER_NS } else { (after * 2).clamp(AFTER_NS, RARELY_NS) });
        }
    }
}

impl Store for RawFile {
    fn read(&self, block: u64, bytes: &mut [u8]) -> Result<()> {
        let read = Self::read(self, block * BLOCK, bytes)?;
        if read == bytes.len() { Ok(()) } else { Err(Errno::EIO) }
    }
}

/// Arms the timer, if it is not.
fn arm(pending: &mut Pending, fs: &Arc<Fs>, after: u64) {
    if !pending.armed {
        pending.armed = true;
        Flush::arm(&Arc::downgrade(fs), after);
    }
}

/// Calls `f` if the root file system has a layer.
fn with_root<T>(f: impl FnOnce(&Layer, &Arc<Fs>) -> T) -> Option<T> {
    let root: Arc<dyn Any + Send + Sync> = vfs().root().inode().clone();
    let root = root.downcast::<Node>().ok()?;
    root.layer().map(|layer| f(layer, &root.fs))
}

/// Writes the root file system's changes, and waits until they are on the disk (`sync(2)`).
///
/// # Errors
/// What the service says.
pub fn sync() -> Result<()> {
    with_root(Layer::sync).unwrap_or(Ok(()))
}

/// The same if something may be written through mappings (`msync(2)`).
///
/// # Errors
/// What the service says.
pub fn sync_mapped() -> Result<()> {
    with_root(Layer::sync_mapped).unwrap_or(Ok(()))
}

/// The domain ends: writes the root file system's changes.
pub fn close() {
    if let Some(Err(e)) = with_root(Layer::close) {
        crate::core::log::log(&alloc::format!("doppel: files of this domain were not kept: {}\n", e.words()));
    }
}

impl Node {
    /// The root file system's layer, if this file is its and it has one.
    #[inline]
    pub(super) fn layer(&self) -> Option<&Layer> {
        self.fs.layer()
    }

    /// To be called after a change: sees to it that this file is written.
    #[inline]
    pub(super) fn changed(&self, what: u8) {
        if let Some(layer) = self.layer()
            && self.unwritten.load(Ordering::Acquire) & what != what
        {
            self.note_changed(layer, what);
        }
    }

    #[cold]
    fn note_changed(&self, layer: &Layer, what: u8) {
        let before = self.unwritten.fetch_or(what, Ordering::AcqRel);
        if before & unwritten::FILE == 0
            && let Some(me) = self.me.upgrade()
        {
            layer.note_file(&self.fs, me);
        }
    }

    /// Writes what was changed of its file system, and waits until that is on the disk.
    pub(super) fn sync_layer(&self) -> Result<()> {
        self.layer().map_or(Ok(()), |layer| layer.sync(&self.fs))
    }
}
