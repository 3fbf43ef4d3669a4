//! Instances of io_uring (`io_uring(7)`): the rings, and the requests that have not completed.
//!
//! Key types: [`Uring`] (an instance, what its descriptor refers to), [`request::Request`], [`rings::Rings`] (the memory that
//! is shared with the program).
//!
//! A request that must wait for its file or for a time is armed. What wakes it puts it into the ready list. A thread of
//! the program that waits in a call goes on with it; without one a worker does, but for what makes descriptors or begins (accept,
//! linked requests): that waits for the next call, of which IORING_SQ_TASKRUN tells, and the descriptor of the instance.
//! Boundary: what requests do is the personality's (`personality::async_io::uring`).
//! Lock order: a file's wait queue → `ready` → `Rings`; `pending` and the others are leaves.

pub mod layout;
mod queue;
pub mod request;
pub mod rings;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use doppel_machine::sync::SpinLock;

use self::layout::{Cqe, SetupFlags};
use self::queue::Queue;
use self::request::Request;
use self::rings::Rings;
use super::held::HeldFile;
use super::workers::{self, Job};
use crate::core::hook::Hook;
use crate::core::sched::{Mutex, PollEvents, PollTable, WaitQueue};
use crate::core::subject::Cred;
use crate::memory::MapSource;
use crate::objects::ipc::eventfd::EventFd;
use crate::objects::vfs::file::{Flight, Splice};
use crate::objects::vfs::{File, FileOps};
use crate::process::task::Process;
use crate::{Errno, Result};

/// Goes on with what needs no thread of the program.
pub static GO_ON: Hook<fn(&Arc<Uring>)> = Hook::new();

/// A buffer of the program's, which a request may name by its number.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Its address.
    pub at: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its number.
    pub id: u16,
}

/// An event counter that is told of completions.
struct Counter {
    file: HeldFile,
    /// Only of those that did not complete while they were submitted (IORING_REGISTER_EVENTFD_ASYNC).
    later_only: bool,
}

/// An instance.
pub struct Uring {
    me: Weak<Self>,
    /// Shared memory.
    pub rings: Rings,
    /// How it was set up.
    pub flags: SetupFlags,
    /// IORING_SETUP_R_DISABLED, until it is enabled.
    pub disabled: AtomicBool,
    /// Held by who submits or goes on with requests.
    pub working: Mutex<()>,
    /// Threads that wait for completions.
    pub entered: WaitQueue,
    /// Those who poll the descriptor.
    pollers: Arc<WaitQueue>,
    ready: Queue,
    /// Requests that wait, by number.
    pending: SpinLock<BTreeMap<u64, Arc<Request>>>,
    /// Requests that wait until all before them have completed (IOSQE_IO_DRAIN), and those behind them.
    pub drained: Queue,
    /// Requests that have begun and not completed.
    pub begun: AtomicU64,
    /// Completions so far.
    pub completed: AtomicU64,
    /// The next request waits for all before it, as it is behind a chain that did.
    pub drain_next: AtomicBool,
    /// Thread that submits, of an instance with IORING_SETUP_SINGLE_ISSUER; 0 if that is not known yet.
    pub issuer: AtomicI32,
    /// Registered identities, by number less one.
    pub identities: SpinLock<Vec<Option<Arc<Cred>>>>,
    /// Timeouts count completions.
    pub counting: AtomicBool,
    /// Registered files.
    pub files: SpinLock<Vec<Option<Arc<HeldFile>>>>,
    /// Registered buffers.
    pub buffers: SpinLock<Option<Vec<Buffer>>>,
    /// Buffers that requests take from a group.
    pub provided: SpinLock<BTreeMap<u16, VecDeque<Buffer>>>,
    counter: SpinLock<Option<Arc<Counter>>>,
    /// There has been one.
    counted: AtomicBool,
    /// A worker has been sent.
    telling: AtomicBool,
}

impl Uring {
    /// An instance.
    pub fn new(rings: Rings, flags: SetupFlags) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            rings,
            flags,
            disabled: AtomicBool::new(flags.contains(SetupFlags::R_DISABLED)),
            working: Mutex::default(),
            entered: WaitQueue::new(),
            pollers: Arc::default(),
            ready: Queue::default(),
            pending: SpinLock::default(),
            drained: Queue::default(),
            begun: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            drain_next: AtomicBool::new(false),
            issuer: AtomicI32::new(0),
            identities: SpinLock::default(),
            counting: AtomicBool::new(false),
            files: SpinLock::default(),
            buffers: SpinLock::default(),
            provided: SpinLock::default(),
            counter: SpinLock::default(),
            counted: AtomicBool::new(false),
            telling: AtomicBool::new(false),
        })
    }

    /// The registered file at a place; EBADF if there is none.
    pub fn file_at(&self, place: i32) -> Result<Arc<HeldFile>> {
        let place = usize::try_from(place).map_err(|_| Errno::EBADF)?;
        self.files.lock().get(place).cloned().flatten().ok_or(Errno::EBADF)
    }

    /// Whether a request that comes now waits for others.
    pub fn is_draining(&self) -> bool {
        self.drain_next.load(Ordering::SeqCst) || !self.drained.is_empty()
    }

    /// Notes a request that waits.
    pub fn wait_for(&self, request: &Arc<Request>) {
        self.pending.lock().insert(request.number, request.clone());
    }

    /// Requests that wait and are meant.
    pub fn waiting(&self, mut meant: impl FnMut(&Request) -> bool) -> Vec<Arc<Request>> {
        self.pending.lock().values().filter(|r| meant(r)).cloned().collect()
    }

    /// A request waits no more.
    pub fn forget(&self, request: &Request) {
        let gone = self.pending.lock().remove(&request.number);
        drop(gone);
    }

    /// A request can go on. Called under the lock of a file's wait queue.
    pub fn make_ready(&self, request: Arc<Request>) {
        let process = request.process.upgrade();
        self.ready.lock().push_back(request);
        self.rings.set_work_flag(true);
        self.entered.wake_all(PollEvents::READABLE);
        if let Some(process) = process
            && self.entered.is_idle()
        {
            self.send_worker(&process);
        }
    }

    /// Has a worker go on with what it can, as no thread of the program waits in a call.
    fn send_worker(&self, process: &Arc<Process>) {
        if !self.telling.swap(true, Ordering::SeqCst)
            && let Some(me) = self.me.upgrade()
        {
            workers::soon(process, me);
        }
    }

    /// A thread of the program leaves: a worker goes on with what is left.
    pub fn pass_work(&self, process: &Arc<Process>) {
        if self.has_work(process) {
            self.send_worker(process);
        }
    }

    /// The next request of this process that can go on, or of one that has ended, among those that are meant.
    pub fn next_ready(&self, process: &Process, meant: impl Fn(&Request) -> bool) -> Option<Arc<Request>> {
        let mut ready = self.ready.lock();
        let i = ready.iter().position(|r| r.is_for(process) && meant(r));
        let next = i.and_then(|i| ready.remove(i));
        if ready.is_empty() {
            self.rings.set_work_flag(false);
        }
        next
    }

    /// Whether a request of this process can go on.
    pub fn has_work(&self, process: &Process) -> bool {
        !self.ready.is_empty() && self.ready.lock().iter().any(|r| r.is_for(process))
    }

    fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Tells the program of a completion; `later`: the request did not complete while it was submitted.
    pub fn post(&self, cqe: Cqe, later: bool) -> Result<()> {
        self.completed.fetch_add(1, Ordering::SeqCst);
        self.rings.post(cqe)?;
        self.entered.wake_all(PollEvents::READABLE);
        self.tell(later);
        Ok(())
    }

    /// Tells those who do not wait in a call.
    fn tell(&self, later: bool) {
        self.pollers.wake_all(PollEvents::READABLE);
        if !self.counted.load(Ordering::Acquire) {
            return;
        }
        let counter = self.counter.lock().clone();
        if let Some(counter) = counter.filter(|c| later || !c.later_only)
            && self.rings.wants_counter()
            && let Some(e) = counter.file.downcast::<EventFd>()
        {
            e.signal(1);
        }
    }

    /// Sets the event counter, or takes it away; EBUSY if there is one, ENXIO if there is none.
    pub fn set_counter(&self, file: Option<HeldFile>, later_only: bool) -> Result<()> {
        let mut counter = self.counter.lock();
        match file {
            Some(_) if counter.is_some() => Err(Errno::EBUSY),
            Some(file) => {
                *counter = Some(Arc::new(Counter { file, later_only }));
                self.counted.store(true, Ordering::Release);
                Ok(())
            }
            None => {
                let old = counter.take();
                drop(counter);
                old.map(drop).ok_or(Errno::ENXIO)
            }
        }
    }

    /// Ends everything that waits; nobody is told.
    fn end(&self) {
        let all = core::mem::take(&mut *self.pending.lock());
        for request in all.into_values() {
            request.stop();
        }
        let (ready, drained) =
            (core::mem::take(&mut *self.ready.lock()), core::mem::take(&mut *self.drained.lock()));
        drop((ready, drained));
        let counter = self.counter.lock().take();
        drop(counter);
        let files = core::mem::take(&mut *self.files.lock());
        drop(files);
    }
}

/// What a worker does where no thread of the program is in a call: it goes on with what it can, and tells those who poll of the
/// rest.
impl Job for Uring {
    fn run(self: Arc<Self>, _begun: Option<Box<dyn Flight>>) {
        self.telling.store(false, Ordering::SeqCst);
        (GO_ON.get())(&self);
        if self.is_ready() {
            self.tell(true);
        }
    }
}

impl FileOps for Uring {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn map(&self, _file: &File) -> Result<MapSource> {
        Ok(MapSource::Pages(self.rings.pages()))
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&self.pollers);
        }
        PollEvents::READABLE.when(self.rings.waiting() > 0 || self.is_ready())
            | PollEvents::WRITABLE.when(!self.rings.is_full())
    }

    fn release(&self, _file: &File) {
        self.end();
    }
}
