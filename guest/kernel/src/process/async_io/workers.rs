//! Threads of the kernel in a process' space.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use doppel_machine::sync::SpinLock;

use crate::core::part::Part;
use crate::process::task::Process;
use crate::process::task::remote;

/// Most threads of a process that wait for devices on behalf of requests.
const SLOW: u32 = 16;

/// Something to be done by such a thread.
pub trait Job: Send + Sync {
    /// Does it.
    fn run(self: Arc<Self>);
}

/// Jobs of one kind, and how many threads do them just now. A thread ends when there is none left.
struct Pool {
    ready: SpinLock<VecDeque<Arc<dyn Job>>>,
    threads: AtomicU32,
    most: u32,
}

impl Pool {
    const fn new(most: u32) -> Self {
        Self { ready: SpinLock::new(VecDeque::new()), threads: AtomicU32::new(0), most }
    }

    /// Whether there may be one more thread, which is counted then.
    fn may_begin(&self) -> bool {
        let more = |n: u32| (n < self.most).then_some(n + 1);
        self.threads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn next(&self) -> Option<Arc<dyn Job>> {
        self.ready.lock().pop_front()
    }

    /// What such a thread does.
    fn work(&self) {
        loop {
            while let Some(job) = self.next() {
                job.run();
            }
            self.threads.fetch_sub(1, Ordering::SeqCst);
            // Who added a job meanwhile may have found no room for another thread.
            if self.ready.lock().is_empty() || !self.may_begin() {
                return;
            }
        }
    }
}

/// The workers of a process.
pub struct Workers {
    quick: Pool,
    slow: Pool,
}

impl Default for Workers {
    fn default() -> Self {
        Self { quick: Pool::new(1), slow: Pool::new(SLOW) }
    }
}

/// The workers of the domain's processes, by process id.
#[derive(Default)]
pub struct AllWorkers(SpinLock<BTreeMap<i32, Arc<Workers>>>);

/// The domain's.
pub static WORKERS: Part<AllWorkers> = Part::new();

impl AllWorkers {
    fn of(&self, process: &Process) -> Arc<Workers> {
        self.0.lock().entry(process.pid).or_default().clone()
    }

    /// A process has ended.
    pub fn forget(&self, pid: i32) {
        let gone = self.0.lock().remove(&pid);
        drop(gone);
    }
}

/// Has a thread of `process` do a job that does not wait for anything. May be called under the lock of a wait queue.
pub fn soon(process: &Arc<Process>, job: Arc<dyn Job>) {
    begin(process, job, |w| &w.quick);
}

/// Has a thread of `process` do a job that waits for a device.
pub fn slowly(process: &Arc<Process>, job: Arc<dyn Job>) {
    begin(process, job, |w| &w.slow);
}

fn begin(process: &Arc<Process>, job: Arc<dyn Job>, pool: fn(&Workers) -> &Pool) {
    let all = WORKERS.of(process);
    let workers = pool(&all);
    workers.ready.lock().push_back(job);
    if !workers.may_begin() {
        return;
    }
    let theirs = all.clone();
    if !remote::start_in(process, move || pool(&theirs).work()) {
        // The process is ending: nobody waits for it any more.
        workers.threads.fetch_sub(1, Ordering::SeqCst);
        let left = core::mem::take(&mut *workers.ready.lock());
        drop(left);
    }
}
