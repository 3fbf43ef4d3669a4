//! Waits for a file to become ready.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use doppel_machine::sync::SpinLock;

use super::held::HeldFile;
use super::workers::{self, Job};
use crate::core::sched::{PollEvents, PollTable, Wake};
use crate::objects::vfs::file::Flight;
use crate::process::task::Process;

/// What waits.
pub trait OnReady: Send + Sync + 'static {
    /// The file is ready for this. Called once, by a worker of the process or by who armed it.
    fn ready(&self, file: &HeldFile, events: PollEvents);
}

/// A request that waits until its file is ready, and is then told once. Whoever wakes it holds the lock of the file's wait queue, so
/// it is a worker who looks at the file and tells the request.
pub struct Armed<T: OnReady> {
    me: Weak<Self>,
    process: Arc<Process>,
    file: HeldFile,
    wanted: PollEvents,
    /// A worker will look at it.
    seen: AtomicBool,
    /// What wake-ups have told: it counts, though somebody else may have taken it meanwhile.
    told: AtomicU32,
    /// It has been told, or is not to be told any more.
    over: AtomicBool,
    table: SpinLock<Option<PollTable>>,
    /// The request.
    pub request: T,
}

impl<T: OnReady> Armed<T> {
    /// A wait of a request of `process`, which has not begun.
    pub fn new(process: Arc<Process>, file: HeldFile, wanted: PollEvents, request: T) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            process,
            file,
            wanted: wanted | PollEvents::ALWAYS,
            seen: AtomicBool::new(false),
            told: AtomicU32::new(0),
            over: AtomicBool::new(false),
            table: SpinLock::new(None),
            request,
        })
    }

    /// Begins to wait. If the file is ready, the request is told before this returns.
    pub fn begin(self: &Arc<Self>) {
        let mut table = PollTable::new(self.clone());
        let events = self.file.poll(Some(&mut table)) & self.wanted;
        *self.table.lock() = Some(table);
        if self.over.load(Ordering::SeqCst) {
            // A worker has been faster.
            self.forget();
        } else if !events.is_empty() {
            self.tell(events);
        }
    }

    fn forget(&self) {
        let table = self.table.lock().take();
        drop(table);
    }

    /// Ends the wait; false if the request has been told, or is just being told.
    pub fn cancel(&self) -> bool {
        let first = !self.over.swap(true, Ordering::SeqCst);
        if first {
            self.forget();
        }
        first
    }

    fn tell(&self, events: PollEvents) {
        if self.cancel() {
            self.request.ready(&self.file, events);
        }
    }
}

impl<T: OnReady> Wake for Armed<T> {
    fn wake(&self, events: PollEvents) -> bool {
        let concerns = events.is_empty() || events.intersects(self.wanted);
        if concerns {
            self.told.fetch_or((events & self.wanted).bits(), Ordering::SeqCst);
        }
        if concerns
            && !self.over.load(Ordering::SeqCst)
            && !self.seen.swap(true, Ordering::SeqCst)
            && let Some(me) = self.me.upgrade()
        {
            workers::soon(&self.process, me);
        }
        false
    }
}

impl<T: OnReady> Job for Armed<T> {
    fn run(self: Arc<Self>, _begun: Option<Box<dyn Flight>>) {
        // Whoever wakes it from now on has somebody look again.
        self.seen.store(false, Ordering::SeqCst);
        let told = PollEvents::from_bits_retain(self.told.swap(0, Ordering::SeqCst));
        let events = if told.is_empty() { self.file.poll(None) & self.wanted } else { told };
        if !events.is_empty() {
            self.tell(events);
        }
    }
}
