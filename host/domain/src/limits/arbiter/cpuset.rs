//! Gives domains that are held to their shares CPUs of their own, where these shares are whole CPUs.
//!
//! Quotas alone leave hundreds of restless tasks on all CPUs, where their timers and their waking interrupt whoever runs:
//! a neighbour that computed lost an eighth of its work so (docs/supervisor.md).

use rustix::thread::{CpuSet, sched_setaffinity};

use super::cpus::Cpus;
use super::ledger::Held;

/// Shares are whole CPUs if they are off by less than this.
const CLOSE: f64 = 0.05;
/// The cpuset is closed when others are owed no more than this, in seconds: a little is given for what interrupts took. It is
/// opened when they are owed more than that.
const PAID: f64 = -0.05;
const OWED: f64 = 0.3;
/// It changes when another has fitted better for so many looks.
const STEADY: u32 = 3;

/// CPUs for those that are held, and for nobody else.
#[derive(Debug, Default)]
pub(super) struct Cpuset {
    /// CPUs: the last so many, as hosts serve their devices on the first. None: it is open.
    size: usize,
    /// For so many looks one of this size has fitted.
    fits: (usize, u32),
}

impl Cpuset {
    pub fn is_closed(&self) -> bool {
        self.size > 0
    }

    /// Makes it for those that are held, if they should have whole CPUs. Whether it was or is closed.
    pub fn fit(&mut self, held: Option<Held>, cpus: usize) -> bool {
        let was = self.is_closed();
        let Some(held) = held else {
            (self.size, self.fits) = (0, (0, 0));
            return was;
        };
        let whole = held.share.round();
        let is_whole = (held.share - whole).abs() < CLOSE && whole < cpus as f64;
        let fits = if is_whole { whole as usize } else { 0 };
        self.fits = (fits, if fits == self.fits.0 { self.fits.1 + 1 } else { 1 });
        if held.owed > OWED {
            self.size = 0;
        } else if self.fits.1 >= STEADY && (was || held.owed <= PAID) {
            self.size = fits;
        }
        was || self.is_closed()
    }

    /// Moves tasks into it while it is closed; those that chose their CPUs themselves stay.
    pub fn take(&self, tasks: &[u32], cpus: &Cpus) {
        self.drive(tasks, cpus, cpus.count() - self.size, cpus.count());
    }

    /// Moves the calling thread into it, or lets it run everywhere if it is open.
    pub fn enter(&self, cpus: &Cpus) {
        let from = if self.is_closed() { cpus.count() - self.size } else { 0 };
        // It may run elsewhere too.
        let _ = sched_setaffinity(None, &cpus.set(from, cpus.count()));
    }

    /// Keeps tasks out of it; one that is open has no CPUs.
    pub fn keep_out(&self, tasks: &[u32], cpus: &Cpus) {
        self.drive(tasks, cpus, 0, cpus.count() - self.size);
    }

    /// A cpuset of any size may have moved them before.
    fn drive(&self, tasks: &[u32], cpus: &Cpus, from: usize, to: usize) {
        let all = cpus.count();
        let ours = |now: &CpuSet| (1..all).any(|cpu| *now == cpus.set(0, cpu) || *now == cpus.set(cpu, all));
        cpus.drive(tasks, &cpus.set(from, to), ours);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Pid;
    use rustix::thread::sched_getaffinity;

    fn held(share: f64, owed: f64) -> Option<Held> {
        Some(Held { share, owed })
    }

    /// One of one CPU, and all CPUs; None where there is only one.
    fn closed() -> Option<(Cpuset, Cpus)> {
        let (mut cpuset, cpus) = (Cpuset::default(), Cpus::all());
        if cpus.count() < 2 {
            println!("skipped: one CPU");
            return None;
        }
        (0..STEADY).for_each(|_| _ = cpuset.fit(held(1.0, PAID), cpus.count()));
        Some((cpuset, cpus))
    }

    #[test]
    fn closes_when_it_is_sure_and_opens_at_once() {
        let mut cpuset = Cpuset::default();
        let mut fit = |held, looks| {
            (0..looks).for_each(|_| _ = cpuset.fit(held, 4));
            cpuset.size
        };
        assert_eq!(fit(held(1.04, PAID), STEADY - 1), 0);
        assert_eq!(fit(held(1.04, PAID), 1), 1);
        assert_eq!(fit(held(1.04, OWED + 0.1), 9), 0);
        assert_eq!(fit(held(1.04, PAID + 0.1), 9), 0);
        assert_eq!(fit(held(1.97, PAID), STEADY), 2);
        assert_eq!(fit(held(1.5, 0.0), STEADY - 1), 2);
        assert_eq!(fit(held(1.5, 0.0), 1), 0);
        assert_eq!(fit(held(4.0, 0.0), 9), 0);
        assert_eq!(fit(held(0.01, 0.0), 9), 0);
        assert_eq!(fit(None, 9), 0);
    }

    #[test]
    fn threads_go_there_and_come_back() {
        let Some((mut cpuset, cpus)) = closed() else { return };
        let count = cpus.count();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        #[allow(clippy::disallowed_methods, reason = "a test may fail for want of a thread")]
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_pid()).unwrap();
            wait.recv()
        });
        let task = told.recv().unwrap();
        let tasks = [task.try_into().unwrap()];
        let runs_on = || sched_getaffinity(Pid::from_raw(task)).unwrap();
        cpuset.take(&tasks, &cpus);
        assert_eq!(runs_on(), cpus.set(count - 1, count));
        cpuset.keep_out(&tasks, &cpus);
        assert_eq!(runs_on(), cpus.set(0, count - 1));
        assert!(cpuset.fit(None, count));
        cpuset.keep_out(&tasks, &cpus);
        assert_eq!(runs_on(), cpus.set(0, count));
        drop(done);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn who_watches_it_runs_there() {
        let Some((mut cpuset, cpus)) = closed() else { return };
        let count = cpus.count();
        cpuset.enter(&cpus);
        assert_eq!(sched_getaffinity(None).unwrap(), cpus.set(count - 1, count));
        assert!(cpuset.fit(None, count));
        cpuset.enter(&cpus);
        assert_eq!(sched_getaffinity(None).unwrap(), cpus.set(0, count));
    }
}
