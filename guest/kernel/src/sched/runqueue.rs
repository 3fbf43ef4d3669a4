//! Run queues: the guest threads of one address space on its vCPUs.
//!
//! Key types: [`Space`] (one host process: its memory, its vCPUs, its runnable threads), [`IdleThread`] (what a
//! vCPU runs when there is nothing to do). A thread runs only on the vCPUs of its space.
//!
//! Parking protocol: a thread's `park` word is RUNNING, PARKED or NOTIFIED. [`unpark`] leaves NOTIFIED behind,
//! so a wake-up between the check of a condition and the sleep is never lost; wake-ups may be spurious.
//! Lock order: wait queue → run queue → ticking list.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use doppel_machine::cpu::{self, ThreadObject, Vcpu};
use doppel_machine::host;
use doppel_machine::sync::SpinLock;
use doppel_machine::task::{Task, UserContext};
use doppel_machine::xstate::XSave;

use super::wait::Deadline;
use crate::mm::Mm;
use crate::task::{Thread, current};
use crate::{kernel, time};

pub(crate) const RUNNING: u32 = 0;
pub(crate) const PARKED: u32 = 1;
pub(crate) const NOTIFIED: u32 = 2;

/// Runnable threads and those that sleep with a deadline.
#[derive(Default)]
pub struct RunQueue {
    ready: VecDeque<Arc<Thread>>,
    /// How many threads at the front of `ready` were woken from a wait: they go before those that used up
    /// their time slice.
    woken: usize,
    /// How often in a row a woken thread went first.
    streak: u32,
    sleepers: BTreeMap<(u64, u64), Arc<Thread>>,
}

/// One address space: a host process with its memory and vCPUs.
pub struct Space {
    /// Unique number.
    pub id: u64,
    /// The memory map.
    pub mm: Mm,
    queue: SpinLock<RunQueue>,
    vcpus: SpinLock<Vec<&'static Vcpu>>,
    /// Bumped at every enqueue: what idle vCPUs wait on.
    idle_word: AtomicU32,
    idle: AtomicU32,
    vcpu_count: AtomicU32,
    /// Whether the timekeeper ticks this space.
    ticking: AtomicBool,
    /// Guest threads that live here; the host process ends when the last has gone.
    threads: AtomicU32,
    /// Host process id in the domain's PID namespace, 0 until it runs.
    pub host_pid: AtomicI32,
}

/// What a vCPU runs when no thread of its space is runnable.
pub struct IdleThread {
    task: Task,
    space: Arc<Space>,
}

impl ThreadObject for IdleThread {
    fn task(&self) -> &Task {
        &self.task
    }
}

impl IdleThread {
    /// An idle thread for one more vCPU of `space`.
    pub fn new(space: Arc<Space>) -> Arc<Self> {
        Arc::new(Self { task: Task::new(UserContext::default(), XSave::initial()), space })
    }

    /// Its space.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }
}

/// The space of this host process.
pub fn current_space() -> Arc<Space> {
    let idle: Arc<dyn Any + Send + Sync> = cpu::idle();
    match idle.downcast::<IdleThread>() {
        Ok(i) => i.space.clone(),
        Err(_) => unreachable!("idle objects are IdleThreads"),
    }
}

/// Woken threads that may go first in a row, before a thread that used up its slice gets its turn.
const STREAK_MAX: u32 = 16;

impl RunQueue {
    /// A thread that comes from a wait.
    fn push_woken(&mut self, t: Arc<Thread>) {
        self.ready.insert(self.woken, t);
        self.woken += 1;
    }

    /// A thread that goes before all others.
    fn push_first(&mut self, t: Arc<Thread>) {
        self.ready.push_front(t);
        self.woken += 1;
    }

    fn pop(&mut self) -> Option<Arc<Thread>> {
        if self.woken > 0 && (self.streak < STREAK_MAX || self.woken == self.ready.len()) {
            self.woken -= 1;
            self.streak += 1;
            return self.ready.pop_front();
        }
        self.streak = 0;
        self.ready.remove(self.woken)
    }
}

impl Space {
    /// A space around `mm`, without a host process yet.
    pub fn new(mm: Mm) -> Arc<Self> {
        Arc::new(Self {
            id: kernel().next_id(),
            mm,
            queue: SpinLock::default(),
            vcpus: SpinLock::default(),
            idle_word: AtomicU32::new(0),
            idle: AtomicU32::new(0),
            vcpu_count: AtomicU32::new(0),
            ticking: AtomicBool::new(false),
            threads: AtomicU32::new(0),
            host_pid: AtomicI32::new(0),
        })
    }

    /// Registers a vCPU of this space.
    /// `start` starts it; the count covers it from before its first instruction.
    pub fn add_vcpu<T, E>(&self, start: impl FnOnce() -> Result<(&'static Vcpu, T), E>) -> Result<T, E> {
        self.vcpu_count.fetch_add(1, Ordering::SeqCst);
        match start() {
            Ok((v, t)) => {
                self.vcpus.lock().push(v);
                Ok(t)
            }
            Err(e) => {
                self.vcpu_count.fetch_sub(1, Ordering::SeqCst);
                Err(e)
            }
        }
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
            self.idle_word.fetch_add(1, Ordering::SeqCst);
            host::futex_wake(&self.idle_word, u32::MAX >> 1);
        }
        last
    }

    /// Number of guest threads living here.
    pub fn thread_count(&self) -> u32 {
        self.threads.load(Ordering::SeqCst)
    }

    /// Makes `t` runnable and sees to it that a vCPU will run it.
    pub fn enqueue(self: &Arc<Self>, t: Arc<Thread>) {
        self.queue.lock().push_woken(t);
        self.wake_vcpu();
    }

    /// Takes back the runnable threads of a space whose host process never started.
    pub fn discard_queue(&self) -> Vec<Arc<Thread>> {
        let mut q = self.queue.lock();
        q.woken = 0;
        q.ready.drain(..).collect()
    }

    /// Sees to it that a vCPU looks at the run queue.
    fn wake_vcpu(self: &Arc<Self>) {
        self.idle_word.fetch_add(1, Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) > 0 {
            host::futex_wake(&self.idle_word, 1);
        } else if self.vcpu_count.load(Ordering::SeqCst) > 0 {
            self.request_tick();
        }
    }

    /// Asks the timekeeper to tick this space: it has more to do than vCPUs doing it.
    fn request_tick(self: &Arc<Self>) {
        if !self.ticking.load(Ordering::SeqCst) && !self.ticking.swap(true, Ordering::SeqCst) {
            kernel().timekeeper.add_ticking(self.clone());
        }
    }

    fn can_grow(&self) -> bool {
        self.vcpu_count.load(Ordering::SeqCst) < kernel().vcpu_limit
    }

    /// Threads are left in the queue and no vCPU is idle: starts another vCPU, or else lets the threads take
    /// turns. Whoever queued them may have counted on an idle vCPU that has taken another thread since.
    /// Runs on a vCPU of this space.
    fn grow(self: &Arc<Self>) {
        if self.idle.load(Ordering::SeqCst) > 0 || self.queue.lock().ready.is_empty() {
            return;
        }
        // On failure (host limit) the existing vCPUs go on alone.
        if !self.can_grow()
            || self.add_vcpu(|| cpu::spawn_vcpu(IdleThread::new(self.clone())).map(|v| (v, ()))).is_err()
        {
            self.request_tick();
        }
    }

    /// The next runnable thread, with expired sleepers moved to the queue first.
    fn pick(&self) -> Option<Arc<Thread>> {
        let mut q = self.queue.lock();
        Self::expire(&mut q);
        q.pop()
    }

    /// Moves sleepers whose deadline has passed to the ready list.
    fn expire(q: &mut RunQueue) {
        if q.sleepers.is_empty() {
            return;
        }
        let now = time::monotonic_ns();
        while let Some(e) = q.sleepers.first_entry() {
            if e.key().0 > now {
                break;
            }
            let t = e.remove();
            t.timed_out.store(true, Ordering::SeqCst);
            if t.park.swap(NOTIFIED, Ordering::SeqCst) == PARKED {
                t.park.store(RUNNING, Ordering::SeqCst);
                q.push_woken(t);
            }
        }
    }

    /// One tick by the timekeeper: expire sleepers, preempt if threads wait. False if there was nothing to do.
    pub fn tick(self: &Arc<Self>) -> bool {
        let (ready, sleeping) = {
            let mut q = self.queue.lock();
            Self::expire(&mut q);
            (!q.ready.is_empty(), !q.sleepers.is_empty())
        };
        if self.idle.load(Ordering::SeqCst) > 0 {
            if ready {
                host::futex_wake(&self.idle_word, 1);
            }
            return self.stop_ticking(ready);
        }
        if ready {
            for v in self.vcpus.lock().iter() {
                v.preempt();
            }
        }
        if ready || sleeping { true } else { self.stop_ticking(false) }
    }

    fn stop_ticking(&self, keep: bool) -> bool {
        if keep {
            return true;
        }
        self.ticking.store(false, Ordering::SeqCst);
        // A thread queued since the look at the queue asked in vain: the ticks had not stopped yet.
        let missed = self.idle.load(Ordering::SeqCst) == 0 && !self.queue.lock().ready.is_empty();
        missed && !self.ticking.swap(true, Ordering::SeqCst)
    }
}

/// Makes `t` runnable if it is parked; otherwise its next [`park`] returns at once.
pub fn unpark(t: &Arc<Thread>) {
    t.unpark();
}

impl Thread {
    /// See [`unpark`].
    pub fn unpark(&self) {
        if self.park.swap(NOTIFIED, Ordering::SeqCst) == PARKED {
            self.park.store(RUNNING, Ordering::SeqCst);
            if let Some(me) = self.me.upgrade() {
                let space = self.space();
                space.enqueue(me);
            }
        }
    }
}

/// Blocks the current thread until [`unpark`] or the deadline; false at the deadline. May return early.
/// The caller holds no lock.
pub fn park(me: &Arc<Thread>, deadline: Deadline) -> bool {
    if me.park.compare_exchange(RUNNING, PARKED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        me.park.store(RUNNING, Ordering::SeqCst);
        return true;
    }
    let space = current_space();
    let key = deadline.map(|d| (d, kernel().next_id()));
    let mut first = false;
    if let Some(k) = key {
        me.timed_out.store(false, Ordering::SeqCst);
        let mut q = space.queue.lock();
        q.sleepers.insert(k, me.clone());
        first = q.sleepers.first_key_value().is_some_and(|(f, _)| *f == k);
        // A wake-up may have come before the entry was there; it stays until removed below.
    }
    schedule(&space, first);
    match key {
        None => true,
        Some(k) => {
            let left = space.queue.lock().sleepers.remove(&k).is_some();
            left || !me.timed_out.swap(false, Ordering::SeqCst)
        }
    }
}

/// Lets other runnable threads of this space run; the current one stays runnable.
pub fn yield_now() {
    let space = current_space();
    cpu::vcpu().need_resched.store(0, Ordering::SeqCst);
    let next = {
        let mut q = space.queue.lock();
        Space::expire(&mut q);
        match q.pop() {
            None => return,
            Some(n) => {
                q.ready.push_back(current());
                n
            }
        }
    };
    space.grow();
    switch_from_thread(&space, next);
}

/// Runs something else: a ready thread, or idle. `new_deadline`: the caller sleeps with the earliest deadline of
/// the space.
fn schedule(space: &Arc<Space>, new_deadline: bool) {
    cpu::vcpu().need_resched.store(0, Ordering::SeqCst);
    match space.pick() {
        Some(next) => {
            space.grow();
            if space.idle.load(Ordering::SeqCst) > 0 {
                if new_deadline {
                    // An idle vCPU sleeps until a later time: let it look again.
                    space.wake_vcpu();
                }
            } else if !space.queue.lock().sleepers.is_empty() {
                space.request_tick();
            }
            switch_from_thread(space, next);
        }
        None => time::cpu::switch_to(cpu::idle()),
    }
}

/// Switches to `next`, or to idle if another vCPU has not left its stack yet; idle then takes it from the queue.
///
/// Two vCPUs that each stood on one thread's stack and waited for the other's would wait for ever. Nobody waits
/// for the stack of an idle loop while it runs, so waiting there is safe.
fn switch_from_thread(space: &Space, next: Arc<Thread>) {
    if next.task().on_cpu() && !Arc::ptr_eq(&next, &current()) {
        space.queue.lock().push_first(next);
        time::cpu::switch_to(cpu::idle());
    } else {
        time::cpu::switch_to(next);
    }
}

/// Leaves the current thread for good. The thread object is dropped once nothing runs on its stack.
pub fn exit_current() -> ! {
    // Nothing on this stack may own anything: it is never unwound.
    time::cpu::switch_to(next_object());
    unreachable!("an exited thread was resumed")
}

fn next_object() -> Arc<dyn ThreadObject> {
    let space = current_space();
    match space.pick() {
        Some(t) if t.task().on_cpu() => {
            space.queue.lock().push_first(t);
            cpu::idle()
        }
        Some(t) => t,
        None => cpu::idle(),
    }
}

/// Continues the current thread in another space: it is left runnable there, and this returns once a vCPU of
/// that space has taken it up. If the space has no host process yet, PID 1 is asked to start one.
pub fn migrate(me: &Arc<Thread>, to: &Arc<Space>) {
    to.queue.lock().ready.push_back(me.clone());
    if to.host_pid.load(Ordering::SeqCst) == 0 {
        kernel().timekeeper.spawn_requests.lock().push(to.clone());
        kernel().timekeeper.wake();
    } else {
        to.wake_vcpu();
    }
    time::cpu::switch_to(next_object());
}

/// What a vCPU does when nothing is runnable: sleep until something is, at most until the next deadline.
pub fn idle_loop() -> ! {
    loop {
        let next = cpu::with_idle(|object| {
            let object: &dyn Any = object;
            let idle = object.downcast_ref::<IdleThread>();
            idle.and_then(|i| idle_once(&i.space))
        });
        if let Some(t) = next {
            time::cpu::switch_to(t);
        }
    }
}

/// A thread to run, or `None` after a sleep. Owns nothing while it sleeps.
fn idle_once(space: &Arc<Space>) -> Option<Arc<Thread>> {
    let seen = space.idle_word.load(Ordering::SeqCst);
    if let Some(t) = space.pick() {
        space.grow();
        return Some(t);
    }
    let deadline = space.queue.lock().sleepers.first_key_value().map(|(k, _)| k.0);
    // From here to the decrement this vCPU holds no lock: the last one to get here with no thread left
    // may end the host process under the others.
    let idle = space.idle.fetch_add(1, Ordering::SeqCst) + 1;
    if space.thread_count() == 0 && idle == space.vcpu_count.load(Ordering::SeqCst) {
        host::exit_process(0);
    }
    host::futex_wait(&space.idle_word, seen, deadline.map(time::to_host_monotonic));
    space.idle.fetch_sub(1, Ordering::SeqCst);
    None
}
