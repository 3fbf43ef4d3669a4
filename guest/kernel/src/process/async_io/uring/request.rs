//! Requests of io_uring that have not completed.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use doppel_machine::sync::SpinLock;

use super::Uring;
use super::layout::{Cqe, Sqe, SqeFlags};
use crate::core::sched::{PollEvents, PollTable, Wake};
use crate::core::time::{Expire, TimerId};
use crate::process::async_io::held::HeldFile;
use crate::process::task::Process;
use crate::{Result, kernel};

/// A request.
pub struct Request {
    me: Weak<Self>,
    /// Its instance.
    pub ring: Arc<Uring>,
    /// The process that has submitted it, whose memory it means.
    pub process: Weak<Process>,
    /// It waits for all before it.
    pub drains: AtomicBool,
    /// Tells it from others.
    pub number: u64,
    /// What the program asked for.
    pub sqe: Sqe,
    /// Its file, from when it begins.
    pub file: SpinLock<Option<Arc<HeldFile>>>,
    /// The one that begins when it has completed.
    pub next: SpinLock<Option<Arc<Request>>>,
    /// The one whose time it has (IORING_OP_LINK_TIMEOUT).
    pub limit: SpinLock<Option<Arc<Request>>>,
    /// The one that it is the time of.
    pub limited: SpinLock<Weak<Request>>,
    /// Events it waits for, while it is armed.
    wanted: SpinLock<PollEvents>,
    table: SpinLock<Option<PollTable>>,
    timer: SpinLock<Option<TimerId>>,
    /// What wake-ups have told.
    told: AtomicU32,
    /// It counts among those that have begun.
    counted: AtomicBool,
    /// It has begun.
    pub started: AtomicBool,
    /// It is in the ready list.
    due: AtomicBool,
    /// Its time has come.
    pub expired: AtomicBool,
    /// It has completed, or was taken back.
    over: AtomicBool,
    /// Completions of the instance at which a timeout is fulfilled; 0 if it counts none.
    pub target: AtomicU64,
    /// What a worker has found.
    pub found: SpinLock<Option<i64>>,
    /// It has waited, so that it completes later than its submission.
    pub later: AtomicBool,
}

impl Request {
    /// A request that has not begun.
    pub fn new(ring: &Arc<Uring>, process: &Process, sqe: Sqe) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            ring: ring.clone(),
            process: process.me.clone(),
            drains: AtomicBool::new(sqe.flags().contains(SqeFlags::DRAIN)),
            number: kernel().next_id(),
            sqe,
            file: SpinLock::new(None),
            next: SpinLock::new(None),
            limit: SpinLock::new(None),
            limited: SpinLock::new(Weak::new()),
            wanted: SpinLock::new(PollEvents::empty()),
            table: SpinLock::new(None),
            timer: SpinLock::new(None),
            told: AtomicU32::new(0),
            counted: AtomicBool::new(false),
            started: AtomicBool::new(false),
            due: AtomicBool::new(false),
            expired: AtomicBool::new(false),
            over: AtomicBool::new(false),
            target: AtomicU64::new(0),
            found: SpinLock::new(None),
            later: AtomicBool::new(false),
        })
    }

    /// Whether a thread of `process` goes on with it: it is the one that has submitted it, or that one has ended.
    pub fn is_for(&self, process: &Process) -> bool {
        !self.process.upgrade().is_some_and(|p| p.pid != process.pid && !p.is_zombie())
    }

    /// Whether its process has ended.
    pub fn is_orphan(&self) -> bool {
        self.process.upgrade().is_none_or(|p| p.is_zombie())
    }

    /// Its file, once it has begun.
    pub fn file(&self) -> Option<Arc<HeldFile>> {
        self.file.lock().clone()
    }

    /// Waits for its file, and gives the events that hold already. It stays armed until [`Self::stop`].
    pub fn arm(&self, file: &HeldFile, wanted: PollEvents) -> PollEvents {
        self.later.store(true, Ordering::SeqCst);
        let wanted = wanted | PollEvents::ALWAYS;
        *self.wanted.lock() = wanted;
        let Some(me) = self.me.upgrade() else { return PollEvents::empty() };
        let mut table = PollTable::new(me);
        let events = file.poll(Some(&mut table)) & wanted;
        let old = self.table.lock().replace(table);
        drop(old);
        events
    }

    /// Whether it is armed for its file.
    pub fn is_armed(&self) -> bool {
        self.table.lock().is_some()
    }

    /// What wake-ups have told since this was asked before: it counts, though somebody else may have taken it meanwhile.
    pub fn take_told(&self) -> PollEvents {
        PollEvents::from_bits_retain(self.told.swap(0, Ordering::SeqCst))
    }

    /// Waits for a time on the domain's clock.
    pub fn arm_timer(&self, deadline: u64) {
        self.later.store(true, Ordering::SeqCst);
        if let Some(me) = self.me.upgrade() {
            let timer = kernel().timekeeper.arm(deadline, me);
            let old = self.timer.lock().replace(timer);
            if let Some(old) = old {
                kernel().timekeeper.cancel(old);
            }
        }
    }

    /// Counts it among those that have begun, once; it has, or nothing but its turn keeps it from that.
    pub fn count(&self) {
        if !self.counted.swap(true, Ordering::SeqCst) {
            self.ring.begun.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether it waits for a time.
    pub fn is_timed(&self) -> bool {
        self.timer.lock().is_some()
    }

    /// Waits for nothing any more.
    pub fn disarm(&self) {
        let table = self.table.lock().take();
        drop(table);
        let timer = self.timer.lock().take();
        if let Some(timer) = timer {
            kernel().timekeeper.cancel(timer);
        }
    }

    /// Takes it for its completion, or for taking it back; false if somebody else has.
    pub fn claim(&self) -> bool {
        !self.over.swap(true, Ordering::SeqCst)
    }

    /// Whether it has completed.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// It is to be gone on with.
    pub fn wake_up(&self) {
        if !self.is_over()
            && !self.due.swap(true, Ordering::SeqCst)
            && let Some(me) = self.me.upgrade()
        {
            self.ring.make_ready(me);
        }
    }

    /// Somebody goes on with it now: what wakes it from now on does so again.
    pub fn taken_up(&self) {
        self.due.store(false, Ordering::SeqCst);
    }

    /// Tells its program of a completion.
    pub fn tell(&self, result: i64, flags: u32) -> Result<()> {
        let cqe = Cqe { user_data: self.sqe.user_data, result: result as i32, flags };
        self.ring.post(cqe, self.later.load(Ordering::SeqCst))
    }

    /// Ends it without a completion.
    pub fn stop(&self) {
        if self.claim() {
            self.disarm();
            let (next, limit) = (self.next.lock().take(), self.limit.lock().take());
            drop((next, limit));
        }
    }
}

impl Wake for Request {
    fn wake(&self, events: PollEvents) -> bool {
        let wanted = *self.wanted.lock();
        if events.is_empty() || events.intersects(wanted) {
            self.told.fetch_or((events & wanted).bits(), Ordering::SeqCst);
            self.wake_up();
        }
        false
    }
}

impl Expire for Request {
    fn expire(self: Arc<Self>, _now: u64) {
        self.expired.store(true, Ordering::SeqCst);
        self.wake_up();
    }
}
