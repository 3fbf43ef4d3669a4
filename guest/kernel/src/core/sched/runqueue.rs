//! Run queues: the guest threads of one address space on its vCPUs.
//!
//! Key types: [`Space`] (one host process: its memory, its vCPUs, its runnable threads), [`IdleThread`] (what a
//! vCPU runs when there is nothing to do). A thread runs only on the vCPUs of its space.
//!
//! How threads and vCPUs wait is in `doppel_algo::park`; wake-ups may be spurious. A thread whose waits are short
//! spins on its vCPU for a while (spin.rs) before it leaves it.
//! Lock order: wait queue → run queue → ticking list.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use doppel_abi_machine::frozen::Segment;
use doppel_algo::park::{Duty, Looker, MAX_SLOTS, VcpuSet};
use doppel_machine::cpu::{self, ThreadObject, Vcpu};
use doppel_machine::host;
use doppel_machine::sync::SpinLock;
use doppel_machine::task::Task;
use doppel_machine::wakes;

use super::halt::STANDSTILL;
use super::runnable::{Entity, Memory, Runnable, current, current_ref, switch_to};
use super::spin::{self, WaitEnd};
use super::wait::Deadline;
use crate::core::time;
use crate::core::time::Ticks;
use crate::kernel;

/// Runnable threads and those that sleep with a deadline.
pub struct RunQueue<R> {
    ready: VecDeque<Arc<R>>,
    /// How many threads at the front of `ready` were woken from a wait: they go before those that used up
    /// their time slice.
    woken: usize,
    /// How often in a row a woken thread went first.
    streak: u32,
    sleepers: BTreeMap<(u64, u64), Arc<R>>,
}

impl<R> Default for RunQueue<R> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), woken: 0, streak: 0, sleepers: BTreeMap::new() }
    }
}

/// One address space: a host process with its memory and vCPUs.
pub struct Space<R: Runnable> {
    /// Unique number.
    pub id: u64,
    /// The memory map.
    pub mm: R::Memory,
    queue: SpinLock<RunQueue<R>>,
    /// Length of the run queue, so that those who spin or go to sleep take no lock.
    ready: AtomicUsize,
    /// Whether some thread sleeps with a deadline.
    deadlines: AtomicBool,
    vcpus: SpinLock<Vec<&'static Vcpu>>,
    /// What its vCPUs do, by slot.
    pub(super) set: VcpuSet,
    /// What the vCPU of each slot sleeps on; bumped by who wakes it.
    words: Vec<AtomicU32>,
    /// Whether the timekeeper ticks this space.
    ticking: AtomicBool,
    /// Guest threads that live here; the host process ends when the last has gone.
    threads: AtomicU32,
    /// Host process id in the domain's PID namespace, 0 until it runs.
    pub host_pid: AtomicI32,
    /// The process that its host process' time belongs to, as far as no thread was charged for it.
    pub owner: AtomicI32,
    /// Under which host pid the frozen image keeps this space's memory; 0 when it has been taken from there.
    pub frozen_pid: AtomicI32,
    /// vCPUs that stand still because the domain is being frozen or the space is halted (halt.rs).
    pub(super) stopped: AtomicU32,
    /// Whether a thread of this space halts it.
    pub(super) halting: AtomicBool,
    /// Pages that a vCPU has to map from the share file while the domain stands still.
    to_share: SpinLock<Vec<Segment>>,
    /// Whether a vCPU has to leave a shadow of the process, while the domain stands still.
    pub(crate) shadow: AtomicU32,
    /// Whether a vCPU has to guard the process' mappings, while the domain stands still.
    pub(crate) to_guard: AtomicBool,
}

/// What a vCPU runs when no thread of its space is runnable.
pub struct IdleThread<R: Runnable> {
    task: Task,
    space: Arc<Space<R>>,
    slot: u32,
}

impl<R: Runnable> ThreadObject for IdleThread<R> {
    fn task(&self) -> &Task {
        &self.task
    }
}

impl<R: Runnable> IdleThread<R> {
    /// An idle thread for the vCPU of `space` with this slot.
    pub fn new(space: Arc<Space<R>>, slot: u32) -> Arc<Self> {
        Arc::new(Self { task: Task::idle(), space, slot })
    }

    /// Its space.
    pub fn space(&self) -> &Arc<Space<R>> {
        &self.space
    }
}

/// The space of this host process.
pub fn current_space<R: Runnable>() -> Arc<Space<R>> {
    let idle: Arc<dyn Any + Send + Sync> = cpu::idle();
    match idle.downcast::<IdleThread<R>>() {
        Ok(i) => i.space.clone(),
        Err(_) => unreachable!("idle objects are IdleThreads"),
    }
}

/// Runs `f` with the space of this host process and the slot of this vCPU in it.
pub(super) fn with_vcpu<R: Runnable, T>(f: impl FnOnce(&Arc<Space<R>>, u32) -> T) -> T {
    cpu::with_idle(|object| {
        let object: &dyn Any = object;
        match object.downcast_ref::<IdleThread<R>>() {
            Some(i) => f(&i.space, i.slot),
            None => unreachable!("idle objects are IdleThreads"),
        }
    })
}

/// Woken threads that may go first in a row, before a thread that used up its slice gets its turn.
const STREAK_MAX: u32 = 16;

impl<R> RunQueue<R> {
    /// A thread that comes from a wait.
    fn push_woken(&mut self, t: Arc<R>) {
        self.ready.insert(self.woken, t);
        self.woken += 1;
    }

    /// A thread that goes before all others.
    fn push_first(&mut self, t: Arc<R>) {
        self.ready.push_front(t);
        self.woken += 1;
    }

    fn pop(&mut self) -> Option<Arc<R>> {
        if self.woken > 0 && (self.streak < STREAK_MAX || self.woken == self.ready.len()) {
            self.woken -= 1;
            self.streak += 1;
            return self.ready.pop_front();
        }
        self.streak = 0;
        self.ready.remove(self.woken)
    }
}

impl<R: Runnable> Space<R> {
    /// A space around `mm`, without a host process yet.
    pub fn new(mm: R::Memory) -> Arc<Self> {
        Arc::new(Self {
            id: kernel().next_id(),
            mm,
            queue: SpinLock::default(),
            ready: AtomicUsize::new(0),
            deadlines: AtomicBool::new(false),
            vcpus: SpinLock::default(),
            set: VcpuSet::default(),
            words: (0..kernel().vcpu_limit.min(MAX_SLOTS)).map(|_| AtomicU32::new(0)).collect(),
            ticking: AtomicBool::new(false),
            threads: AtomicU32::new(0),
            host_pid: AtomicI32::new(0),
            owner: AtomicI32::new(0),
            frozen_pid: AtomicI32::new(0),
            stopped: AtomicU32::new(0),
            halting: AtomicBool::new(false),
            to_share: SpinLock::new(Vec::new()),
            shadow: AtomicU32::new(0),
            to_guard: AtomicBool::new(false),
        })
    }

    /// CPU time for which threads were charged on its vCPUs.
    pub fn charged_ns(&self) -> u64 {
        self.vcpus.lock().iter().map(|v| v.meter.charged()).sum()
    }

    /// Whether every vCPU of this space stands still, on its idle thread and without a lock.
    pub fn stands_still(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) == self.set.count()
    }

    /// Makes every vCPU that runs look at whether it may go on.
    pub fn preempt_all(&self) {
        for v in self.vcpus.lock().iter() {
            v.preempt();
        }
    }

    /// Makes every sleeping vCPU look at what there is to do.
    pub fn wake_all(&self) {
        while let Some(slot) = self.set.claim_sleeper() {
            self.wake_slot(slot);
        }
    }

    /// In a clone: the host process of this space stayed behind, its vCPUs standing still.
    pub fn leave_host(&self) {
        self.retire();
        self.set.clear();
        self.stopped.store(0, Ordering::SeqCst);
        self.frozen_pid.store(self.host_pid.swap(0, Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Has one of the vCPUs, which all stand still, look at what it is asked to do meanwhile; false if there is none.
    pub(crate) fn rouse_one(&self) -> bool {
        self.set.claim_sleeper().map(|slot| self.wake_slot(slot)).is_some()
    }

    /// Whether there are any.
    pub(crate) fn has_vcpus(&self) -> bool {
        self.set.count() > 0
    }

    /// Has one of the vCPUs, which all stand still, map these pages from the share file.
    pub fn share(&self, list: Vec<Segment>) {
        *self.to_share.lock() = list;
        if !self.rouse_one() {
            self.to_share.lock().clear();
        }
    }

    /// Whether [`Self::share`] is done.
    pub fn has_shared(&self) -> bool {
        self.to_share.lock().is_empty()
    }

    fn share_pages(&self) {
        let list = self.to_share.lock().clone();
        if !list.is_empty() {
            self.mm.share(&list);
            self.to_share.lock().clear();
        }
    }

    /// Lets this vCPU stand still until the freezer, or who halts this space, lets it go on.
    fn stop_vcpu(&self, slot: u32) {
        let word = self.word(slot);
        let seen = word.load(Ordering::SeqCst);
        kernel().cpus.sleep();
        let all = self.set.sleep_begin(slot);
        if all && self.thread_count() == 0 {
            host::exit_process(0);
        }
        if STANDSTILL.is_asked() {
            cpu::trim_signal_stack();
        }
        self.stopped.fetch_add(1, Ordering::SeqCst);
        if self.must_stop() {
            self.tell_stopped();
            host::futex_wait(word, seen, None);
        }
        self.stopped.fetch_sub(1, Ordering::SeqCst);
        if !self.set.sleep_end(slot) {
            kernel().cpus.wake();
        }
    }

    /// Counts a vCPU of this space, which `start` starts with this idle thread; `None` if it may have no more.
    /// It counts as awake from before its first instruction.
    pub fn add_vcpu<E>(
        self: &Arc<Self>,
        start: impl FnOnce(Arc<IdleThread<R>>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let slot = self.set.add(kernel().vcpu_limit)?;
        kernel().cpus.wake();
        Some(start(IdleThread::new(self.clone(), slot)).inspect_err(|_| {
            kernel().cpus.sleep();
            self.set.remove(slot);
        }))
    }

    /// First thing on a new vCPU of this space: enters it in the list. With the first one the space has a host process:
    /// its pid then.
    pub fn vcpu_started(&self) -> Option<i32> {
        let v = cpu::vcpu();
        self.vcpus.lock().push(v);
        v.is_first().then(|| {
            self.host_pid.store(v.tgid(), Ordering::SeqCst);
            v.tgid()
        })
    }

    /// The host process has ended: gives back its vCPU blocks.
    pub fn retire(&self) {
        for v in self.vcpus.lock().drain(..) {
            cpu::recycle(v);
        }
    }

    /// A guest thread now lives here.
    pub fn thread_added(&self) {
        self.threads.fetch_add(1, Ordering::SeqCst);
    }

    /// As [`Self::thread_added`], unless the last thread has gone already.
    pub fn try_add_thread(&self) -> bool {
        let more = |n: u32| (n > 0).then_some(n + 1);
        self.threads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// A guest thread has gone (exit, or exec into another space). True if it was the last.
    pub fn thread_removed(&self) -> bool {
        let last = self.threads.fetch_sub(1, Ordering::SeqCst) == 1;
        if last {
            // Each of them sees that nothing is left; the last one to go back to sleep ends the host process.
            self.wake_all();
        }
        last
    }

    /// Number of guest threads living here.
    pub fn thread_count(&self) -> u32 {
        self.threads.load(Ordering::SeqCst)
    }

    /// Works on the run queue.
    fn with_queue<T>(&self, f: impl FnOnce(&mut RunQueue<R>) -> T) -> T {
        let mut q = self.queue.lock();
        let r = f(&mut q);
        self.ready.store(q.ready.len(), Ordering::Relaxed);
        self.deadlines.store(!q.sleepers.is_empty(), Ordering::Relaxed);
        r
    }

    /// The earliest deadline of a thread that sleeps off its vCPU.
    pub(crate) fn first_deadline(&self) -> Deadline {
        if !self.deadlines.load(Ordering::Acquire) {
            return None;
        }
        self.queue.lock().sleepers.first_key_value().map(|(k, _)| k.0)
    }

    /// When its threads have something to do by themselves; now, if some can run.
    pub(crate) fn due(&self) -> Deadline {
        if self.has_ready() { Some(0) } else { self.first_deadline() }
    }

    /// What the vCPU of a slot sleeps on.
    pub(super) fn word(&self, slot: u32) -> &AtomicU32 {
        &self.words[slot as usize]
    }

    /// Whether the run queue holds a thread. Exact for work that was queued before a claim that concerns the caller.
    pub(super) fn has_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) != 0
    }

    /// Makes `t` runnable and sees to it that a vCPU will run it.
    pub fn enqueue(self: &Arc<Self>, t: Arc<R>) {
        self.with_queue(|q| q.push_woken(t));
        self.wake_vcpu();
    }

    /// As [`Self::enqueue`], by a thread of this space that is about to wait: its vCPU will take `t` up. Should that
    /// not come to pass, the next tick gives `t` a vCPU.
    fn enqueue_behind(self: &Arc<Self>, t: Arc<R>) {
        self.with_queue(|q| q.push_woken(t));
        self.request_tick();
    }

    /// Takes back the runnable threads of a space whose host process never started.
    pub fn discard_queue(&self) -> Vec<Arc<R>> {
        self.with_queue(|q| {
            q.woken = 0;
            q.ready.drain(..).collect()
        })
    }

    /// Sees to it that a vCPU looks at the run queue.
    fn wake_vcpu(self: &Arc<Self>) {
        match self.set.claim() {
            Some(Looker::Spinner) => {}
            Some(Looker::Sleeper(slot)) => self.wake_slot(slot),
            // One that is on its way looks at all there is.
            None if self.set.count() > 0 && !self.set.coming() => self.request_tick(),
            None => {}
        }
    }

    /// Wakes the vCPU of a slot, which the caller has claimed.
    fn wake_slot(&self, slot: u32) {
        kernel().cpus.wake();
        let word = &self.words[slot as usize];
        word.fetch_add(1, Ordering::SeqCst);
        wakes::wake(word);
    }

    /// Asks the timekeeper to tick this space: it has more to do than vCPUs doing it.
    fn request_tick(self: &Arc<Self>) {
        if !self.ticking.load(Ordering::SeqCst) && !self.ticking.swap(true, Ordering::SeqCst) {
            kernel().timekeeper.add_ticking(self.clone());
        }
    }

    /// After a vCPU of this space has found a thread to run: sees to what it cannot do now, the threads left in
    /// the queue (by another vCPU, an old or a new one, or else by taking turns) and the deadlines.
    pub(super) fn taken(self: &Arc<Self>) {
        if self.has_ready() && !self.set.coming() {
            match self.set.claim() {
                Some(Looker::Spinner) => {}
                Some(Looker::Sleeper(slot)) => self.wake_slot(slot),
                None => {
                    // On failure (host limit) the existing vCPUs go on alone.
                    if !matches!(self.add_vcpu(|idle| cpu::spawn_vcpu(idle)), Some(Ok(()))) {
                        self.request_tick();
                    }
                }
            }
        }
        if self.deadlines.load(Ordering::Relaxed) && !self.set.any_sleeping() {
            self.request_tick();
        }
    }

    /// The next runnable thread, with expired sleepers moved to the queue first.
    fn pick(&self) -> Option<Arc<R>> {
        if self.must_stop() {
            return None;
        }
        self.with_queue(|q| {
            Self::expire(q);
            q.pop()
        })
    }

    /// Moves sleepers whose deadline has passed to the ready list; whether there were any.
    fn expire(q: &mut RunQueue<R>) -> bool {
        let before = q.ready.len();
        if q.sleepers.is_empty() {
            return false;
        }
        let now = time::monotonic_ns();
        while let Some(e) = q.sleepers.first_entry() {
            if e.key().0 > now {
                break;
            }
            let t = e.remove();
            t.entity().timed_out.store(true, Ordering::SeqCst);
            if t.entity().park.notify() == Duty::Queue {
                q.push_woken(t);
            }
        }
        q.ready.len() > before
    }

    fn stop_ticking(&self, keep: bool) -> bool {
        if keep {
            return true;
        }
        self.ticking.store(false, Ordering::SeqCst);
        // A thread queued (or asleep with a deadline) since the look at the queue asked in vain: the ticks had not
        // stopped yet.
        let missed =
            !self.set.any_sleeping() && self.with_queue(|q| !q.ready.is_empty() || !q.sleepers.is_empty());
        missed && !self.ticking.swap(true, Ordering::SeqCst)
    }
}

impl<R: Runnable> Ticks for Space<R> {
    fn first_deadline(&self) -> Deadline {
        Self::first_deadline(self)
    }

    /// One tick by the timekeeper: expire sleepers, preempt if threads wait; unless a `whole` time slice is over, only if
    /// one has come by its deadline. False if there was nothing to do.
    fn tick(&self, whole: bool) -> bool {
        if STANDSTILL.is_asked() {
            return true;
        }
        let (expired, ready, deadlines) = self.with_queue(|q| {
            let expired = Self::expire(q);
            (expired, !q.ready.is_empty(), !q.sleepers.is_empty())
        });
        if self.set.any_sleeping() {
            if ready && let Some(slot) = self.set.claim_sleeper() {
                self.wake_slot(slot);
            }
            return self.stop_ticking(ready);
        }
        if ready && (whole || expired) {
            for v in self.vcpus.lock().iter() {
                v.preempt();
            }
        }
        if ready || deadlines { true } else { self.stop_ticking(false) }
    }
}

impl<R: Runnable> Entity<R> {
    /// Makes the thread runnable if it is parked; otherwise its next [`park`] returns at once.
    pub fn unpark(&self) {
        // One that waits in place may find by itself what it waits for.
        let current = current_ref::<R>();
        let itself = current.as_ref().is_some_and(|t| core::ptr::eq(t.entity(), self));
        let own = !itself && with_vcpu(|space: &Arc<Space<R>>, _| space.id) == self.space_id();
        self.woken_by_own.store(own, Ordering::Relaxed);
        match self.park.notify() {
            Duty::Nothing => {}
            Duty::Queue => {
                let Some(me) = self.me.upgrade() else { return };
                if !own {
                    self.space().enqueue(me);
                } else if current.is_some_and(|waker| waker.entity().hands_over()) {
                    with_vcpu(|space, _| space.enqueue_behind(me));
                } else {
                    with_vcpu(|space, _| space.enqueue(me));
                }
            }
            Duty::WakeVcpu => {
                let (space, slot) = (self.space(), self.slot.load(Ordering::Relaxed));
                if space.set.claim_slot(slot) {
                    space.wake_slot(slot);
                }
            }
        }
    }
}

/// Blocks the current thread, which is `me`, until [`Entity::unpark`] or the deadline; false at the deadline. May return
/// early. The caller holds no lock.
pub fn park<R: Runnable>(me: &R, deadline: Deadline) -> bool {
    match spin::wait(me, deadline) {
        WaitEnd::Woken => return true,
        WaitEnd::TimedOut => return false,
        WaitEnd::Left => {}
    }
    let entity = me.entity();
    let Some(deadline) = deadline else {
        schedule::<R>(false);
        entity.park.resume();
        return true;
    };
    let space = current_space::<R>();
    let key = (deadline, kernel().next_id());
    entity.timed_out.store(false, Ordering::SeqCst);
    let first = space.with_queue(|q| {
        q.sleepers.insert(key, current());
        q.sleepers.first_key_value().is_some_and(|(f, _)| *f == key)
    });
    // A wake-up may have come before the entry was there; it stays until removed below.
    schedule::<R>(first);
    entity.park.resume();
    let left = space.with_queue(|q| q.sleepers.remove(&key)).is_some();
    left || !entity.timed_out.swap(false, Ordering::SeqCst)
}

/// Lets other runnable threads of this space run; the current one stays runnable.
pub fn yield_now<R: Runnable>() {
    let space = current_space::<R>();
    cpu::vcpu().need_resched.store(0, Ordering::SeqCst);
    if space.must_stop() {
        space.with_queue(|q| q.push_first(current()));
        switch_to::<R>(cpu::idle());
        return;
    }
    let next = space.with_queue(|q| {
        Space::expire(q);
        let next = q.pop()?;
        q.ready.push_back(current());
        Some(next)
    });
    if let Some(next) = next {
        space.taken();
        match space.unless_on_cpu(next) {
            Some(next) => switch_to::<R>(next),
            None => switch_to::<R>(cpu::idle()),
        }
    }
}

/// Runs something else: a ready thread, or idle. `new_deadline`: the caller sleeps with the earliest deadline of
/// the space.
fn schedule<R: Runnable>(new_deadline: bool) {
    cpu::vcpu().need_resched.store(0, Ordering::SeqCst);
    // No reference to the space is kept over the switch: the thread may go on where it has another vCPU.
    let next = with_vcpu(|space: &Arc<Space<R>>, _| {
        let next = space.pick()?;
        space.taken();
        // A sleeping vCPU would sleep until a later time: let it look again.
        if new_deadline {
            match space.set.claim_sleeper() {
                Some(slot) => space.wake_slot(slot),
                None => kernel().timekeeper.look_by(space.first_deadline().unwrap_or(u64::MAX)),
            }
        }
        space.unless_on_cpu(next)
    });
    match next {
        Some(next) => switch_to::<R>(next),
        None => switch_to::<R>(cpu::idle()),
    }
}

impl<R: Runnable> Space<R> {
    /// `next`, for the current thread to switch to; none if another vCPU has not left its stack yet: then it is back
    /// in the queue, and the idle thread takes it from there.
    ///
    /// Two vCPUs that each stood on one thread's stack and waited for the other's would wait for ever. Nobody waits
    /// for the stack of an idle loop while it runs, so waiting there is safe.
    fn unless_on_cpu(&self, next: Arc<R>) -> Option<Arc<R>> {
        if next.task().on_cpu() && !current_ref::<R>().is_some_and(|t| core::ptr::eq::<R>(&**t, &*next)) {
            self.with_queue(|q| q.push_first(next));
            return None;
        }
        Some(next)
    }
}

/// Leaves the current thread for good. The thread object is dropped once nothing runs on its stack.
pub fn exit_current<R: Runnable>() -> ! {
    if let Some(t) = current_ref::<R>() {
        t.ends();
    }
    // Nothing on this stack may own anything: it is never unwound.
    switch_to::<R>(next_object::<R>());
    unreachable!("an exited thread was resumed")
}

fn next_object<R: Runnable>() -> Arc<dyn ThreadObject> {
    let space = current_space::<R>();
    match space.pick() {
        Some(t) if t.task().on_cpu() => {
            space.with_queue(|q| q.push_first(t));
            cpu::idle()
        }
        Some(t) => t,
        None => cpu::idle(),
    }
}

/// Continues the current thread in another space: it is left runnable there, and this returns once a vCPU of
/// that space has taken it up. If the space has no host process yet, one is asked for.
pub fn migrate<R: Runnable>(me: &Arc<R>, to: &Arc<Space<R>>) {
    to.with_queue(|q| q.ready.push_back(me.clone()));
    if to.set.count() == 0 {
        R::start_host(to.clone());
    } else {
        to.wake_vcpu();
    }
    switch_to::<R>(next_object::<R>());
}

/// What a vCPU does when nothing is runnable: sleep until something is, at most until the next deadline.
pub fn idle_loop<R: Runnable>() -> ! {
    loop {
        if let Some(t) = with_vcpu(idle_once::<R>) {
            switch_to::<R>(t);
        }
    }
}

/// A thread to run, or `None` after a sleep. Owns nothing while it sleeps.
fn idle_once<R: Runnable>(space: &Arc<Space<R>>, slot: u32) -> Option<Arc<R>> {
    if let Some(t) = space.pick() {
        space.taken();
        return Some(t);
    }
    if space.must_stop() {
        space.share_pages();
        R::while_still(space);
        space.stop_vcpu(slot);
    } else {
        space.sleep_vcpu(slot, space.first_deadline(), None, || space.must_stop());
    }
    None
}
