//! Threads of one process: one *leads*, which means it waits for work and does it; the others wait.
//!
//! Work is short mostly, so who leads does it by itself. What takes long blocks nobody else: one of the others stands by, looks
//! at the leader's steps while there are any, and leads if one does not end. Who has been relieved joins the others when it is done. What is known
//! to wait for a device is a *job*: if there is more to do, another thread does it at once; else who leads does it, and another one leads
//! from then on, so that the job waits for no thread to wake up.
//!
//! Nobody leads with nobody standing by: then nothing is begun before a thread is free.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A step that is seen at two looks in a row does not end.
const LOOK: Duration = Duration::from_millis(1);
/// Looks without a step after which nobody looks any more until there is one.
const QUIET: u32 = 20;

/// What a thread of the crew is to do.
#[derive(Debug)]
pub(crate) enum Part<J> {
    /// Lead, from this count on.
    Lead(u64),
    /// Do a job.
    Job(J),
    /// End.
    End,
}

/// See above.
#[derive(Debug)]
pub(crate) struct Crew<J> {
    /// Even: the leader waits or looks for work. Odd: it is at a step. Who changes it from odd to even leads.
    count: AtomicU64,
    /// There was a step since the last look.
    active: AtomicBool,
    /// Nobody looks.
    quiet: AtomicBool,
    /// Threads that wait. Only the leader takes from them.
    free: AtomicU32,
    /// The leader waits for a thread.
    short: AtomicBool,
    pool: Mutex<Pool<J>>,
    standby: Condvar,
    others: Condvar,
}

#[derive(Debug)]
struct Pool<J> {
    jobs: VecDeque<J>,
    stands_by: bool,
    /// Nobody leads yet.
    vacant: bool,
    over: bool,
}

impl<J> Crew<J> {
    pub fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            active: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            free: AtomicU32::new(0),
            short: AtomicBool::new(false),
            pool: Mutex::new(Pool { jobs: VecDeque::new(), stands_by: false, vacant: true, over: false }),
            standby: Condvar::new(),
            others: Condvar::new(),
        }
    }

    fn pool(&self) -> MutexGuard<'_, Pool<J>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Threads that wait.
    pub fn free(&self) -> u32 {
        self.free.load(Ordering::SeqCst)
    }

    /// Ends all threads as soon as they have nothing to do.
    pub fn end(&self) {
        self.pool().over = true;
        self.standby.notify_all();
        self.others.notify_all();
    }

    pub fn is_over(&self) -> bool {
        self.pool().over
    }

    /// Joins the others; what to do then. The second: the leader waits for one like this.
    pub fn join(&self) -> bool {
        self.free.fetch_add(1, Ordering::SeqCst);
        self.short.swap(false, Ordering::SeqCst)
    }

    /// The leader is about to wait for a thread; false if there is one.
    pub fn wants_one(&self) -> bool {
        self.short.store(true, Ordering::SeqCst);
        self.free() == 0
    }

    /// Waits, having joined, for something to do.
    pub fn part(&self) -> Part<J> {
        let mut pool = self.pool();
        loop {
            if pool.over {
                return Part::End;
            }
            // Who gave it has counted us already.
            if let Some(job) = pool.jobs.pop_front() {
                return Part::Job(job);
            }
            if std::mem::take(&mut pool.vacant) {
                self.free.fetch_sub(1, Ordering::SeqCst);
                if !pool.stands_by {
                    // Who was to stand by leads: another one does.
                    self.others.notify_one();
                }
                return Part::Lead(self.count.load(Ordering::SeqCst));
            }
            if pool.stands_by {
                pool = self.others.wait(pool).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            pool.stands_by = true;
            let (next, leads) = self.stand_by(pool);
            pool = next;
            pool.stands_by = false;
            // Another one does.
            self.others.notify_one();
            if let Some(count) = leads {
                return Part::Lead(count);
            }
        }
    }

    /// Looks at the leader's steps until there is something else to do, or it is to be relieved.
    fn stand_by<'a>(&self, mut pool: MutexGuard<'a, Pool<J>>) -> (MutexGuard<'a, Pool<J>>, Option<u64>) {
        let (mut last, mut silent) = (0, 0);
        while !pool.over && pool.jobs.is_empty() && !pool.vacant {
            let count = self.count.load(Ordering::SeqCst);
            if !count.is_multiple_of(2) && count == last && self.relieve(count) {
                self.free.fetch_sub(1, Ordering::SeqCst);
                return (pool, Some(count + 1));
            }
            last = count;
            let active = self.active.swap(false, Ordering::SeqCst) || !count.is_multiple_of(2);
            silent = if active { 0 } else { silent + 1 };
            if silent < QUIET {
                let (next, _) = self.standby.wait_timeout(pool, LOOK).unwrap_or_else(PoisonError::into_inner);
                pool = next;
                continue;
            }
            self.quiet.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.count.load(Ordering::SeqCst).is_multiple_of(2) {
                pool = self.standby.wait(pool).unwrap_or_else(PoisonError::into_inner);
            }
            self.quiet.store(false, Ordering::SeqCst);
            silent = 0;
        }
        (pool, None)
    }

    /// Another thread is to lead from here on; false: nobody would stand by then.
    pub fn hand_over(&self) -> bool {
        if self.free() < 2 {
            return false;
        }
        self.pool().vacant = true;
        self.standby.notify_one();
        true
    }

    fn relieve(&self, count: u64) -> bool {
        self.count.compare_exchange(count, count + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The leader begins a step.
    pub fn begin(&self, count: u64) {
        self.count.store(count + 1, Ordering::SeqCst);
        self.active.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.quiet.load(Ordering::Relaxed) {
            // It looks, or waits, with this lock.
            drop(self.pool());
            self.standby.notify_one();
        }
    }

    /// Its step is over; the count to go on with, if it still leads.
    pub fn finish(&self, count: u64) -> Option<u64> {
        self.relieve(count + 1).then_some(count + 2)
    }

    /// The leader gives a job to a thread that waits, beside the one that stands by; the job again if there is none.
    pub fn give(&self, job: J) -> Result<(), J> {
        if self.free() < 2 {
            return Err(job);
        }
        self.free.fetch_sub(1, Ordering::SeqCst);
        self.pool().jobs.push_back(job);
        self.others.notify_one();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::JoinHandle;
    use std::time::Instant;

    use super::*;

    fn spawn<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        std::thread::Builder::new().spawn(act).unwrap()
    }

    fn member(crew: &Arc<Crew<u32>>) -> JoinHandle<Part<u32>> {
        let crew = crew.clone();
        spawn(move || {
            crew.join();
            crew.part()
        })
    }

    fn wait_for(mut what: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !what() {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn one_leads_and_is_relieved_if_its_step_does_not_end() {
        let crew = Arc::new(Crew::new());
        crew.join();
        let Part::Lead(count) = crew.part() else { panic!("nobody leads") };
        let next = member(&crew);
        wait_for(|| crew.free() == 1);
        // It falls asleep first.
        wait_for(|| crew.quiet.load(Ordering::SeqCst));
        crew.begin(count);
        let Part::Lead(next) = next.join().unwrap() else { panic!("nobody relieves it") };
        assert_eq!((crew.finish(count), next, crew.free()), (None, count + 2, 0));
        crew.begin(next);
        assert_eq!(crew.finish(next), Some(next + 2));
    }

    #[test]
    fn who_has_a_job_of_its_own_has_another_one_lead() {
        let crew = Arc::new(Crew::new());
        crew.join();
        let Part::Lead(count) = crew.part() else { panic!("nobody leads") };
        crew.begin(count);
        let count = crew.finish(count).unwrap();
        let one = member(&crew);
        wait_for(|| crew.free() == 1 && crew.quiet.load(Ordering::SeqCst));
        assert!(!crew.hand_over(), "nobody would stand by");
        let two = member(&crew);
        wait_for(|| crew.free() == 2);
        assert!(crew.hand_over());
        wait_for(|| one.is_finished() || two.is_finished());
        let (leads, stays) = if one.is_finished() { (one, two) } else { (two, one) };
        assert!(matches!(leads.join().unwrap(), Part::Lead(next) if next == count));
        assert_eq!(crew.free(), 1);
        crew.end();
        assert!(matches!(stays.join().unwrap(), Part::End));
    }

    #[test]
    fn steps_that_end_are_left_alone() {
        let crew = Arc::new(Crew::new());
        crew.join();
        let Part::Lead(mut count) = crew.part() else { panic!("nobody leads") };
        let other = member(&crew);
        wait_for(|| crew.free() == 1);
        let end = Instant::now() + Duration::from_millis(100);
        let mut relieved = false;
        while Instant::now() < end && !relieved {
            let step = Instant::now();
            crew.begin(count);
            match crew.finish(count) {
                Some(goes_on) => count = goes_on,
                // It had no CPU for so long.
                None => relieved = step.elapsed() >= LOOK,
            }
            assert!(relieved || crew.count.load(Ordering::SeqCst) == count);
        }
        crew.end();
        let part = other.join().unwrap();
        assert!(if relieved { matches!(part, Part::Lead(_)) } else { matches!(part, Part::End) });
    }

    #[test]
    fn jobs_are_given_to_who_does_not_stand_by() {
        let crew = Arc::new(Crew::new());
        crew.join();
        assert!(matches!(crew.part(), Part::Lead(0)));
        assert_eq!(crew.give(7), Err(7));
        assert!(crew.wants_one());
        let (one, two) = (member(&crew), member(&crew));
        wait_for(|| crew.free() == 2);
        assert_eq!((crew.give(7), crew.give(8), crew.free()), (Ok(()), Err(8), 1));
        wait_for(|| one.is_finished() || two.is_finished());
        crew.end();
        let parts = [one, two].map(|thread| thread.join().unwrap());
        assert_eq!(parts.iter().filter(|part| matches!(part, Part::Job(7))).count(), 1, "{parts:?}");
    }
}
