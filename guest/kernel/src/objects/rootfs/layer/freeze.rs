//! A layer and the freezer. When the domain stands still its layer says what its memory says: it can also be started from the layer.
//!
//! A domain that is woken goes on with its own layer. If the host keeps what the layer has, and that is more than [`FEW`], files stay in
//! it: a clone reads what there was then from the same file ([`RawFile::begin_above`](crate::objects::storage::RawFile::begin_above)),
//! and writes to one of its own. Else a frozen image holds all files in memory, and a clone of it has no layer.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use doppel_abi_machine::layer_files;
use doppel_layer::BLOCK;
use doppel_machine::boot;
use doppel_machine::sync::SpinLock;

use super::log::{Log, Raw};
use super::{Layer, with_root};
use crate::core::sched::WaitQueue;
use crate::core::work;
use crate::objects::pages::EVICTABLE;
use crate::objects::rootfs::Fs;
use crate::{Errno, Result};

/// Bytes of files that are rather copied into a frozen image.
const FEW: u64 = 16 << 20;
/// Most files that a clone's layer may lie on.
const DEEP: usize = 8;

/// How a domain goes on that was frozen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Going {
    /// As it was.
    On,
    /// It was woken: only its own layer has what it had.
    Woken,
    /// As a clone.
    Cloned,
}

/// What a layer keeps for the freezer.
#[derive(Default)]
pub(super) struct Frozen {
    /// Where the host wants files to be ([`layer_files`]).
    wanted: AtomicU32,
    /// Pages that are in the layer alone are being read.
    reading: AtomicBool,
    /// They could not be read.
    failed: AtomicBool,
    /// What was noted before is on the disk; what comes until the domain stands still is little.
    written: AtomicBool,
    /// Files stay in the layer.
    stays: AtomicBool,
    /// The domain stands still, or will: nobody writes.
    pub paused: AtomicBool,
    /// The writer meanwhile.
    aside: SpinLock<Option<Box<Log>>>,
    /// Who waits until it goes on.
    pub goes_on: WaitQueue,
    /// This is a clone, whose files are in memory alone.
    pub detached: AtomicBool,
}

/// Whether the domain can be frozen at once. If not, kept files are read first and changes written, and `again` is called when that is
/// done.
pub fn ready_to_freeze(again: fn()) -> bool {
    with_root(|layer, fs| layer.ready(fs, again)).unwrap_or(true)
}

/// Nobody writes to the layer from here on, until [`go_on`]. Runs on PID 1.
///
/// # Errors
/// ENOSPC: not all files fit in memory; or what the service says.
pub fn pause() -> Result<()> {
    with_root(|layer, _| layer.pause()).unwrap_or(Ok(()))
}

/// Writes what is left, and says how much of the layer the domain's memory refers to. The domain stands still. Runs on PID 1.
pub fn write_still() {
    let end = with_root(Layer::write_still).unwrap_or(0);
    boot::vregs().layer_end.store(end, Ordering::SeqCst);
}

/// What is in the layer is somebody else's too: a frozen image's, and its clones'.
pub fn share() {
    let share = |layer: &Layer, _: &Arc<Fs>| {
        if let Some(Log::File(writer, _)) = layer.writer.lock().as_deref_mut() {
            writer.share();
        }
    };
    with_root(share);
}

/// The domain is a clone: what was in the layer is read from below its own. Runs on PID 1, before anything else does.
pub fn begin_above() {
    with_root(|layer, _| layer.begin_above());
}

/// The domain goes on. Runs on PID 1.
pub fn go_on(how: Going) {
    with_root(|layer, _| layer.go_on(how));
}

/// Where the host wants files to be when the domain stands still.
fn files_wanted() -> u32 {
    boot::vregs().layer_stays.load(Ordering::SeqCst)
}

/// Whether the domain's memory will be somebody else's too: if not, it only stands still.
pub fn takes_memory() -> bool {
    files_wanted() != layer_files::AS_THEY_ARE
}

/// Whether files are where the host wants them by now. The domain stands still. Runs on PID 1.
pub fn is_as_wanted() -> bool {
    with_root(|layer, _| layer.wanted() == files_wanted()).unwrap_or(true)
}

impl Layer {
    fn ready(&self, fs: &Arc<Fs>, again: fn()) -> bool {
        let f = &self.frozen;
        if f.reading.load(Ordering::Acquire) {
            return false;
        }
        let wanted = files_wanted();
        if f.wanted.swap(wanted, Ordering::AcqRel) != wanted {
            // What was made ready was for something else, of which the host has had no patience to see the end.
            f.written.store(false, Ordering::Release);
        }
        if f.written.load(Ordering::Acquire) {
            return true;
        }
        if wanted == layer_files::AS_THEY_ARE {
            f.stays.store(false, Ordering::Release);
            return true;
        }
        EVICTABLE.allow(false);
        f.stays.store(false, Ordering::Release);
        let whole = EVICTABLE.all().iter().all(|file| file.is_whole());
        // Somebody writes just now.
        let may_stay = self.writer.try_lock().is_none_or(|held| self.may_stay(held.as_deref()));
        if whole && !may_stay && self.pending.lock().is_quiet() {
            return true;
        }
        f.reading.store(true, Ordering::Release);
        let fs = fs.clone();
        let begun = work::START.get()(Box::new(move || {
            if let Some(layer) = fs.layer() {
                layer.make_ready(&fs);
                layer.frozen.reading.store(false, Ordering::Release);
            }
            again();
        }));
        if !begun {
            f.reading.store(false, Ordering::Release);
            f.failed.store(!whole, Ordering::Release);
        }
        !begun
    }

    /// Writes what was noted; then files stay in the layer, and clean pages need not be copied, or all come to memory.
    fn make_ready(&self, fs: &Arc<Fs>) {
        let f = &self.frozen;
        // It is in memory too: what cannot be written now is written later.
        let _ = self.sync(fs);
        let stays = self.may_stay(self.writer.lock().as_deref());
        f.stays.store(stays, Ordering::Release);
        if stays {
            EVICTABLE.allow(true);
            EVICTABLE.give_up_all(&self.store);
        } else {
            let failed = EVICTABLE.all().iter().any(|file| !file.is_whole() && file.bring_all().is_err());
            f.failed.store(failed, Ordering::Release);
        }
        f.written.store(true, Ordering::Release);
    }

    /// Whether files can stay in the layer, and are so many that they should.
    fn may_stay(&self, log: Option<&Log>) -> bool {
        let Some(Log::File(writer, file)) = log else { return false };
        self.wanted() == layer_files::MAY_STAY && writer.tree().pages() * BLOCK >= FEW && file.depth() < DEEP
    }

    fn write_still(&self, fs: &Arc<Fs>) -> u64 {
        let writer = self.frozen.aside.lock().take();
        let Some(mut writer) = writer else { return 0 };
        if self.wanted() == layer_files::AS_THEY_ARE {
            *self.frozen.aside.lock() = Some(writer);
            return 0;
        }
        // As above.
        let _ = self.commit(fs, &mut writer, false);
        if let Log::File(writer, file) = &mut *writer {
            writer.trim(&mut Raw(file));
        }
        let end = match &mut *writer {
            Log::File(writer, _) if self.frozen.stays.load(Ordering::Acquire) => {
                writer.share();
                writer.len()
            }
            _ => 0,
        };
        *self.frozen.aside.lock() = Some(writer);
        end
    }

    fn begin_above(&self) {
        if self.frozen.stays.load(Ordering::Acquire)
            && let Some(Log::File(writer, file)) = self.frozen.aside.lock().as_deref()
        {
            file.begin_above(writer.len());
        }
    }

    fn wanted(&self) -> u32 {
        self.frozen.wanted.load(Ordering::Acquire)
    }

    fn pause(&self) -> Result<()> {
        let f = &self.frozen;
        f.written.store(false, Ordering::Release);
        if f.failed.swap(false, Ordering::AcqRel) {
            return Err(Errno::ENOSPC);
        }
        let mut held = self.hold()?;
        f.paused.store(true, Ordering::SeqCst);
        *f.aside.lock() = held.take();
        Ok(())
    }

    fn go_on(&self, how: Going) {
        let f = &self.frozen;
        EVICTABLE.allow(true);
        // Whatever is made ready from here on is for another freeze.
        f.written.store(false, Ordering::Release);
        let stays = f.stays.swap(false, Ordering::AcqRel);
        if !f.paused.load(Ordering::SeqCst) {
            return;
        }
        let mut writer = f.aside.lock().take();
        if how == Going::Woken
            && let Some(Log::File(writer, file)) = writer.as_deref_mut()
        {
            writer.unshare(file.end_below());
        }
        if stays || how != Going::Cloned {
            // Whoever holds it finds it empty, and gives it back at once.
            let mut held = loop {
                if let Some(held) = self.writer.try_lock() {
                    break held;
                }
                core::hint::spin_loop();
            };
            *held = writer;
        } else {
            f.detached.store(true, Ordering::SeqCst);
            EVICTABLE.forget(&self.store);
            let noted = core::mem::take(&mut *self.pending.lock());
            drop(noted);
        }
        f.paused.store(false, Ordering::SeqCst);
        f.goes_on.notify_all();
    }
}
