//! Files that the storage service keeps: volumes (docs/services.md, `doppel_abi_service::storage`).
//!
//! Key types: [`Storage`] (the kernel's end of the channel), [`Call`] (one request, with the slot it lies in), [`Node`] (a file
//! there). A thread that asks waits for the answer, whatever signals come: the service is there or is replaced, and what was
//! under way is asked of its successor, which does nothing twice.
//! Under a lease (`doppel_abi_service::storage::Leases`) nobody else has the volume: then names, attributes and pages are kept, and each
//! is worth something as long as the lease is the one it was found under. Without one nothing is kept but names, which are looked up
//! again at each walk: other domains may change them.
//! What these change in files that programs watch the service tells (`events`).
//! Lock order: a directory's names → a node's pages → a slot → a volume's changes of names → the table of nodes → the link.

mod call;
mod events;
mod file;
pub mod freeze;
mod kept;
mod link;
mod locks;
mod mapped;
mod names;
mod node;
mod raw;
mod reads;
mod unwritten;
mod watch;
mod writes;
mod xattr;

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use doppel_abi_service::sleeps;
use doppel_abi_service::storage::{Answer, SLOTS};
use doppel_machine::storage as channel;
use doppel_machine::sync::SpinLock;
use doppel_machine::{clock, host};

use crate::Result;
use crate::core::part::Part;
use crate::core::sched::{WaitQueue, can_wait, goes_outside, wait_until_uninterruptible};
use crate::core::time;
use crate::kernel;
use crate::objects::pages::PAGE;

use call::{Before, Call};
use events::Watched;
use kept::Kept;
use link::Link;
pub use mapped::settle;
use node::Volume;
pub use node::{Node, mount};
pub use raw::RawFile;
use unwritten::Unwritten;
pub use watch::{SOURCE, Watch};

/// The kernel's end of the channel.
pub struct Storage {
    link: SpinLock<Link>,
    /// By slot: who waits for its answer.
    waiting: Vec<WaitQueue>,
    /// Who waits for a slot.
    wanting: WaitQueue,
    /// The channel's bell when it was last listened to.
    heard: AtomicU32,
    /// Whether a vCPU has a [`Watch`].
    watched: AtomicBool,
    /// Threads that sleep until an answer comes: for them PID 1 has to be woken.
    asleep: AtomicU32,
    /// Files by node number.
    nodes: SpinLock<BTreeMap<u64, Weak<Node>>>,
    /// The volumes' topmost files.
    roots: SpinLock<Vec<Weak<Node>>>,
    /// How many files have been forgotten.
    drops: AtomicU32,
    /// Pages that are kept under leases.
    kept: Kept,
    /// Bytes that were written and wait.
    unwritten: Unwritten,
    /// Volumes with changes of names that wait.
    changed: SpinLock<Vec<Arc<Volume>>>,
    /// Files with mappings through which they may have been written, and how many.
    mapped: SpinLock<Vec<Arc<Node>>>,
    maps: AtomicU32,
    freezing: Freezing,
    /// Files that programs watch.
    watched_files: Watched,
    /// How long answers took lately that wait for the host's device.
    device_ns: AtomicU64,
    /// How many answers in a row did not come while somebody looked for them.
    vain: AtomicU32,
    /// Number of the last lease of the channels before this one.
    leases_before: AtomicU32,
}

/// What the storage keeps for the freezer (freeze.rs).
#[derive(Default)]
struct Freezing {
    /// The domain is about to stand still: what programs write waits no more.
    closing: AtomicBool,
    /// What waits is being written.
    writes: AtomicBool,
    /// It was; what comes until the domain stands still is little.
    written: AtomicBool,
    /// Number of the last lease when the domain stood still.
    last_lease: AtomicU32,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            link: SpinLock::default(),
            waiting: (0..SLOTS).map(|_| WaitQueue::new()).collect(),
            wanting: WaitQueue::new(),
            heard: AtomicU32::new(0),
            watched: AtomicBool::new(false),
            asleep: AtomicU32::new(0),
            nodes: SpinLock::default(),
            roots: SpinLock::default(),
            drops: AtomicU32::new(0),
            kept: Kept::default(),
            unwritten: Unwritten::default(),
            changed: SpinLock::default(),
            mapped: SpinLock::default(),
            maps: AtomicU32::new(0),
            freezing: Freezing::default(),
            watched_files: Watched::default(),
            device_ns: AtomicU64::new(0),
            vain: AtomicU32::new(0),
            leases_before: AtomicU32::new(0),
        }
    }
}

/// The domain's.
pub static STORAGE: Part<Storage> = Part::new();

/// The storage, if this domain has volumes.
pub fn storage() -> Option<&'static Storage> {
    channel::is_there().then(|| STORAGE.get())
}

/// How long a thread looks for an answer before it sleeps: two wake-ups cost more.
const LOOK_NS: u64 = 30_000;
/// The same for an answer that waits for the host's device, if these have come within that lately.
const LOOK_LONG_NS: u64 = 150_000;
/// So many times in vain, and only each so many-th answer is looked for.
const VAIN: u32 = 4;
/// See [`VAIN`].
const AGAIN: u32 = 16;
/// Looks between two looks at the clock.
const LOOKS: u32 = 16;
/// Memory that is only kept is not given back by smaller pieces, in bytes.
const RECLAIM_LEAST: u64 = 1 << 20;
/// How long somebody that cannot be told sleeps at most before it looks.
const NAP_NS: u64 = 1_000_000;

impl Storage {
    /// Begins a request: waits for a slot.
    fn call(&'static self) -> Call {
        self.call_at(Before::default())
    }

    /// The same, of which it matters when it was begun.
    fn call_at(&'static self, before: Before) -> Call {
        let slot = self.wait(&self.wanting, || self.take_slot());
        let before = Before { drops: self.drops.load(Ordering::SeqCst), ..before };
        Call::new(self, slot, before)
    }

    /// The same in what may have become a clone without a service: none then.
    fn call_if_there(&'static self) -> Option<Call> {
        let there = || if channel::is_there() { self.take_slot().map(Some) } else { Some(None) };
        let slot = self.wait(&self.wanting, there)?;
        Some(Call::new(self, slot, Before::default()))
    }

    /// PID 1 has one also while the domain is being frozen.
    fn take_slot(&self) -> Option<u16> {
        let mut link = self.link.lock();
        if can_wait() { link.take_for_thread() } else { link.take() }
    }

    /// The same for who does not wait: none if few are free.
    fn try_call(&'static self, before: Before) -> Option<Call> {
        let slot = self.link.lock().take_spare()?;
        Some(Call::new(self, slot, before))
    }

    /// The answer to what was asked in a slot.
    fn answer(&self, slot: u16) -> Answer {
        let begun = time::monotonic_ns();
        let device = self.link.lock().waits_for_device(slot);
        let lately = self.device_ns.load(Ordering::Relaxed);
        let until = begun + if device && lately < LOOK_LONG_NS { LOOK_LONG_NS } else { self.worth_looking() };
        let answer = self.look_until(slot, until);
        if !device {
            self.looked(answer.is_some());
        }
        let answer =
            answer.unwrap_or_else(|| self.wait(&self.waiting[usize::from(slot)], || self.look(slot)));
        if device {
            let took = time::monotonic_ns() - begun;
            self.device_ns.store((lately * 7 + took.min(LOOK_LONG_NS * 8)) / 8, Ordering::Relaxed);
        }
        answer
    }

    /// How long to look for an answer that waits for no device, in nanoseconds: where the service seldom has a CPU while this one looks, it
    /// had better have this one.
    fn worth_looking(&self) -> u64 {
        let vain = self.vain.load(Ordering::Relaxed);
        if vain < VAIN || vain.is_multiple_of(AGAIN) { LOOK_NS } else { 0 }
    }

    /// Notes whether the answer came while somebody looked, or was there at once.
    fn looked(&self, came: bool) {
        if came {
            self.vain.store(0, Ordering::Relaxed);
        } else {
            self.vain.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Looks for an answer, as long as no other thread wants the CPU.
    fn look_until(&self, slot: u16, until: u64) -> Option<Answer> {
        while kernel().cpus.may_spin() && time::monotonic_ns() < until {
            for _ in 0..LOOKS {
                if self.rings()
                    && let Some(answer) = self.look(slot)
                {
                    return Some(answer);
                }
                core::hint::spin_loop();
            }
        }
        None
    }

    /// Takes what has come, and the answer in a slot, if it is there.
    fn look(&self, slot: u16) -> Option<Answer> {
        self.hear();
        self.link.lock().answered(slot)
    }

    /// Waits in any case, also where there is no thread: at boot.
    fn wait<T>(&self, queue: &WaitQueue, mut done: impl FnMut() -> Option<T>) -> T {
        if !can_wait() {
            loop {
                if let Some(value) = done() {
                    return value;
                }
                self.nap();
            }
        }
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let value = wait_until_uninterruptible(queue, || {
            // From the first look on the service wakes this vCPU or PID 1, which tells this thread.
            self.listen();
            let value = done();
            if value.is_none() {
                goes_outside(SOURCE);
            }
            value
        });
        self.asleep.fetch_sub(1, Ordering::SeqCst);
        value
    }

    /// PID 1 waits for the service's news, a moment at most, and takes them.
    fn nap(&self) {
        let nap = Some(clock::host_monotonic_ns() + NAP_NS);
        host::futex_wait(&channel::CHANNEL.header().bell, self.heard.load(Ordering::SeqCst), nap);
        self.hear();
    }

    /// A thread asks, and looks for the answer by itself for a while: PID 1 need not be woken, unless others sleep.
    fn will_look(&self) {
        if self.asleep.load(Ordering::SeqCst) == 0 {
            channel::CHANNEL.header().guest_sleeps.store(sleeps::SOON, Ordering::SeqCst);
        }
    }

    /// Whether the service has said something since it was last listened to.
    pub fn rings(&self) -> bool {
        channel::CHANNEL.header().bell.load(Ordering::SeqCst) != self.heard.load(Ordering::Relaxed)
    }

    /// Takes all answers, and tells those who wait for them.
    fn hear(&self) {
        let bell = channel::CHANNEL.header().bell.load(Ordering::SeqCst);
        let mut done = [false; SLOTS as usize];
        self.link.lock().hear(&mut done);
        self.heard.store(bell, Ordering::SeqCst);
        for (queue, _) in self.waiting.iter().zip(done).filter(|(_, done)| *done) {
            queue.notify_all();
        }
        self.watched_files.tell(&self.link, |file| {
            let any: Arc<dyn Any + Send + Sync> = file.clone();
            any.downcast::<Node>().into_iter().for_each(|node| node.distrust());
        });
    }

    /// From here on the service tells of its news.
    fn listen(&self) {
        channel::CHANNEL.header().guest_sleeps.store(sleeps::IDLE, Ordering::SeqCst);
        if self.rings() {
            self.hear();
        }
    }

    /// A slot is free again.
    fn give_back(&self, slot: u16) {
        self.link.lock().give_back(slot);
        self.wanting.notify_one();
    }

    /// Takes the news; who else waits is told of what comes later.
    pub fn look_in_place(&self) {
        self.hear();
        if self.asleep.load(Ordering::SeqCst) > 0 {
            self.listen();
        }
    }

    /// PID 1 sleeps until `word` is not `seen` any more, the service has news that threads wait for and nobody watches, or the
    /// deadline (of the host's clock) passes.
    pub fn sleep(&'static self, word: &AtomicU32, seen: u32, deadline: Option<u64>) {
        let posted = &channel::CHANNEL.registers().event_seq;
        let before = posted.load(Ordering::SeqCst);
        self.listen();
        self.look_at_leases();
        if !host::futex_wait_either([(word, seen), (posted, before)], deadline) {
            // An older host: PID 1 looks by itself while somebody waits.
            let waits = self.asleep.load(Ordering::SeqCst) != 0;
            let nap = waits.then(|| clock::host_monotonic_ns() + NAP_NS);
            host::futex_wait(word, seen, [deadline, nap].into_iter().flatten().min());
        }
        if self.rings() {
            self.hear();
        }
    }
}

/// Writes all volumes to where they survive a power cut (`sync(2)`).
pub fn sync() {
    let Some(storage) = storage() else { return };
    let roots: Vec<Arc<Node>> = storage.roots.lock().iter().filter_map(Weak::upgrade).collect();
    for root in roots {
        // sync(2) tells of no errors.
        let _ = root.sync_all();
    }
}

/// Where there is no thread that could wait: takes what the service has said, and waits a moment.
pub fn nap() {
    match storage() {
        Some(storage) => storage.nap(),
        None => core::hint::spin_loop(),
    }
}

/// What the service gives as an errno.
fn result(answer: Answer) -> Result<Answer> {
    if answer.error == 0 { Ok(answer) } else { Err(crate::Errno(answer.error)) }
}

/// The node that is known by a number, or one made by `make`; whether it was known.
fn known(storage: &Storage, id: u64, make: impl FnOnce() -> Arc<Node>) -> (Arc<Node>, bool) {
    let mut nodes = storage.nodes.lock();
    if let Some(node) = nodes.get(&id).and_then(Weak::upgrade) {
        return (node, true);
    }
    let node = make();
    nodes.insert(id, Arc::downgrade(&node));
    (node, false)
}

/// The domain ends: nothing of what was written waits any longer. The caller holds no lock.
pub fn end() {
    let Some(storage) = storage() else { return };
    if can_wait() {
        storage.write_all_out();
    } else {
        storage.write_at_the_end();
    }
    settle(true);
}

/// Bytes of files that are not written yet.
pub fn unwritten_bytes() -> u64 {
    storage().map_or(0, |storage| storage.unwritten.bytes())
}

/// Gives back memory that is only kept, `bytes` of it if there is as much; whether there was some.
pub fn reclaim(bytes: u64) -> bool {
    storage().is_some_and(|storage| storage.kept.give_back(bytes.max(RECLAIM_LEAST).div_ceil(PAGE)))
}

/// Bytes of files that are only kept.
pub fn kept_bytes() -> u64 {
    storage().map_or(0, |storage| storage.kept.pages() * PAGE)
}
