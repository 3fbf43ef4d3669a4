//! Threads of the kernel in a process' space.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use doppel_machine::sync::SpinLock;

use crate::core::part::Part;
use crate::objects::vfs::file::Flight;
use crate::process::task::Process;
use crate::process::task::remote;

/// Most threads of a process that wait for devices on behalf of requests.
const SLOW: u32 = 16;

/// Most jobs that such a thread has under way.
const AT_ONCE: usize = 16;

/// Something to be done by such a thread.
pub trait Job: Send + Sync {
    /// Whether it is likely to be left to itself once it has begun.
    fn flies(&self) -> bool {
        false
    }

    /// Begins it, if it can be left to itself then.
    fn begin(&self) -> Option<Box<dyn Flight>> {
        None
    }

    /// Does it, or what is left of it once it has begun.
    fn run(self: Arc<Self>, begun: Option<Box<dyn Flight>>);
}

/// Jobs of one kind, and how many threads do them just now. A thread ends when there is none left.
struct Pool {
    ready: SpinLock<VecDeque<Arc<dyn Job>>>,
    threads: AtomicU32,
    /// Threads that have yet to take their first jobs.
    coming: AtomicU32,
    most: u32,
}

impl Pool {
    const fn new(most: u32) -> Self {
        Self {
            ready: SpinLock::new(VecDeque::new()),
            threads: AtomicU32::new(0),
            coming: AtomicU32::new(0),
            most,
        }
    }

    /// Adds a job; true if one more thread is to do it, which is counted then.
    fn add(&self, job: Arc<dyn Job>) -> bool {
        let flies = job.flies();
        let mut ready = self.ready.lock();
        ready.push_back(job);
        let enough = flies && self.coming.load(Ordering::SeqCst) as usize * AT_ONCE >= ready.len();
        let more = !enough && self.may_begin();
        if more {
            self.coming.fetch_add(1, Ordering::SeqCst);
        }
        more
    }

    /// Whether there may be one more thread, which is counted then.
    fn may_begin(&self) -> bool {
        let more = |n: u32| (n < self.most).then_some(n + 1);
        self.threads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// The next jobs of a thread, which comes for the first time or not: some that fly, or one.
    fn take(&self, first: bool) -> Vec<Arc<dyn Job>> {
        let mut ready = self.ready.lock();
        if first {
            self.coming.fetch_sub(1, Ordering::SeqCst);
        }
        let flying = ready.iter().take(AT_ONCE).take_while(|job| job.flies()).count();
        let n = flying.max(1).min(ready.len());
        ready.drain(..n).collect()
    }

    /// What such a thread does.
    fn work(&self) {
        let mut first = true;
        loop {
            loop {
                let jobs = self.take(core::mem::take(&mut first));
                if jobs.is_empty() {
                    break;
                }
                run(jobs);
            }
            self.threads.fetch_sub(1, Ordering::SeqCst);
            // Who added a job meanwhile may have found no room for another thread, or counted on this one.
            if self.ready.lock().is_empty() || !self.may_begin() {
                return;
            }
        }
    }
}

/// Begins jobs and ends them, one after the other.
fn run(jobs: Vec<Arc<dyn Job>>) {
    let begun: Vec<_> = jobs.into_iter().map(|job| (job.begin(), job)).collect();
    for (flight, job) in begun {
        job.run(flight);
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
    if !workers.add(job) {
        return;
    }
    let theirs = all.clone();
    if !remote::start_in(process, move || pool(&theirs).work()) {
        // The process is ending: nobody waits for it any more.
        workers.threads.fetch_sub(1, Ordering::SeqCst);
        workers.coming.fetch_sub(1, Ordering::SeqCst);
        let left = core::mem::take(&mut *workers.ready.lock());
        drop(left);
    }
}
