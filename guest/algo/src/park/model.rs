//! Interleavings of the wait protocol: no wake-up is lost, no thread is queued twice.
//!
//! The run queue is a counter, a host futex is a mutex with a condition variable; both wait for ever, so a lost
//! wake-up is a deadlock, which loom reports.

use alloc::vec::Vec;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;

/// All interleavings with at most three preemptions, which keeps this within seconds.
fn explore(f: impl Fn() + Sync + Send + 'static) {
    let mut m = loom::model::Builder::new();
    m.preemption_bound = Some(3);
    m.check(f);
}

/// The host's futex on one word.
#[derive(Default)]
struct Futex {
    word: Mutex<u32>,
    woken: Condvar,
}

impl Futex {
    fn seen(&self) -> u32 {
        *self.word.lock().unwrap()
    }

    fn wait(&self, seen: u32) {
        let mut w = self.word.lock().unwrap();
        while *w == seen {
            w = self.woken.wait(w).unwrap();
        }
    }

    fn wake(&self) {
        *self.word.lock().unwrap() += 1;
        self.woken.notify_all();
    }
}

struct Space {
    set: VcpuSet,
    queue: Mutex<u32>,
    /// As in the scheduler: the length, readable without the lock.
    ready: AtomicU32,
    futex: [Futex; 2],
    cpus: Cpus,
}

impl Space {
    fn new(vcpus: u32) -> Self {
        let s = Self {
            set: VcpuSet::default(),
            queue: Mutex::new(0),
            ready: AtomicU32::new(0),
            futex: [Futex::default(), Futex::default()],
            cpus: Cpus::new(2),
        };
        for _ in 0..vcpus {
            s.set.add(vcpus);
            s.cpus.wake();
        }
        s
    }

    fn enqueue(&self) {
        let mut q = self.queue.lock().unwrap();
        *q += 1;
        self.ready.store(*q, Ordering::Relaxed);
        drop(q);
        self.wake_one();
    }

    fn wake_one(&self) {
        if let Some(Looker::Sleeper(slot)) = self.set.claim() {
            self.cpus.wake();
            self.futex[slot as usize].wake();
        }
    }

    fn pick(&self) -> bool {
        let mut q = self.queue.lock().unwrap();
        let some = *q > 0;
        if some {
            *q -= 1;
            self.ready.store(*q, Ordering::Relaxed);
        }
        some
    }

    /// One round of an idle vCPU.
    fn idle_once(&self, slot: u32) -> bool {
        if self.pick() {
            return true;
        }
        let futex = &self.futex[slot as usize];
        let seen = futex.seen();
        self.cpus.sleep();
        self.set.sleep_begin(slot);
        if self.ready.load(Ordering::Relaxed) == 0 {
            futex.wait(seen);
        }
        if !self.set.sleep_end(slot) {
            self.cpus.wake();
        }
        false
    }

    /// A vCPU that runs `n` threads from the queue.
    fn idle(&self, slot: u32, n: u32) {
        for _ in 0..n {
            while !self.idle_once(slot) {}
        }
    }

    /// `Thread::unpark` for a thread that waits with vCPU 0.
    fn unpark(&self, word: &ParkWord) {
        match word.notify() {
            Duty::Queue => self.enqueue(),
            Duty::WakeVcpu if self.set.claim_slot(0) => {
                self.cpus.wake();
                self.futex[0].wake();
            }
            _ => {}
        }
    }

    fn taken(&self) {
        if self.ready.load(Ordering::Relaxed) != 0 && !self.set.coming() {
            self.wake_one();
        }
    }

    /// A waiting thread that keeps vCPU 0: spins for one look, sleeps on it if `sleep`, and leaves it to whatever is
    /// in the queue (true) when told so. As `sched::park`.
    fn park(&self, word: &ParkWord, sleep: bool) -> bool {
        if !word.spin() {
            return false;
        }
        self.set.spin_begin(0);
        let over = word.notified();
        let claimed = self.set.spin_end(0);
        if over || !(sleep && !claimed) {
            return self.leave(word, claimed);
        }
        if !word.sleep() {
            self.taken();
            return false;
        }
        loop {
            let seen = self.futex[0].seen();
            self.cpus.sleep();
            self.set.sleep_begin(0);
            if self.ready.load(Ordering::Relaxed) == 0 && !word.notified() {
                self.futex[0].wait(seen);
            }
            if !self.set.sleep_end(0) {
                self.cpus.wake();
            }
            if word.notified() {
                word.resume();
                self.taken();
                return false;
            }
            if self.ready.load(Ordering::Relaxed) != 0 {
                return self.leave(word, true);
            }
        }
    }

    fn leave(&self, word: &ParkWord, claimed: bool) -> bool {
        let left = word.give_up();
        if left {
            self.idle(0, 1);
        } else if claimed {
            self.taken();
        }
        left
    }
}

/// Two wakers and one waiter.
fn notified_twice(sleep: bool) {
    explore(move || {
        let s = Arc::new(Space::new(1));
        let word = Arc::new(ParkWord::default());
        let condition = Arc::new(AtomicU32::new(0));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let (s, word, condition) = (s.clone(), word.clone(), condition.clone());
                thread::spawn(move || {
                    condition.fetch_add(1, Ordering::Relaxed);
                    s.unpark(&word);
                })
            })
            .collect();
        while condition.load(Ordering::Relaxed) < 2 {
            if s.park(&word, sleep) {
                // Nothing but the thread itself was ever queued.
                word.resume();
            }
        }
        for w in wakers {
            w.join().unwrap();
        }
        assert_eq!(*s.queue.lock().unwrap(), 0, "queued twice");
        assert_eq!(s.cpus.awake(), 1);
    });
}

#[test]
fn a_notified_thread_goes_on() {
    notified_twice(false);
}

#[test]
fn a_thread_notified_in_its_sleep_goes_on() {
    notified_twice(true);
}

#[test]
fn queued_work_is_looked_at() {
    explore(|| {
        let s = Arc::new(Space::new(1));
        let theirs = s.clone();
        let t = thread::spawn(move || theirs.enqueue());
        s.idle(0, 1);
        t.join().unwrap();
        assert_eq!(s.cpus.awake(), 1);
        assert!(!s.set.coming());
    });
}

/// One vCPU waits with a thread, the other is idle; work arrives, and a notification.
fn work_and_notification(sleep: bool) {
    explore(move || {
        let s = Arc::new(Space::new(2));
        let word = Arc::new(ParkWord::default());
        let (s1, s2, w2) = (s.clone(), s.clone(), word.clone());
        let other = thread::spawn(move || s1.idle(1, 1));
        let waker = thread::spawn(move || {
            s2.enqueue();
            s2.unpark(&w2);
        });
        s.park(&word, sleep);
        waker.join().unwrap();
        other.join().unwrap();
        assert_eq!(*s.queue.lock().unwrap(), 0);
    });
}

#[test]
fn work_for_a_spinner_is_looked_at_when_its_own_wait_ends_too() {
    work_and_notification(false);
}

#[test]
fn work_for_a_sleeper_is_looked_at_when_its_own_wait_ends_too() {
    work_and_notification(true);
}
