//! The interval timers of a process.

use crate::process::time::timers::{Base, Elapsed, IntervalTimer, ProcessTimers};
use alloc::sync::{Arc, Weak};

use crate::core::numbers::numbers;
use crate::process::signal::{self, SigInfo, sig};
use crate::process::task::Process;

numbers! {
    /// Which interval timer of a process (`setitimer(2)`): of real time, of time in the program, or of all its CPU time.
    pub(crate) enum Itimer {
        Real = 0,
        Virtual = 1,
        Prof = 2,
    }
}

/// Sends the timer's signal to its process.
struct Owner {
    process: Weak<Process>,
    signo: i32,
}

impl Elapsed for Owner {
    fn elapsed(&self, _n: u64) -> bool {
        let Some(p) = self.process.upgrade() else { return false };
        // A standard signal is pending at worst without details.
        let _ = signal::send_process(&p, SigInfo::kernel(self.signo));
        true
    }
}

impl ProcessTimers {
    /// Disarms everything (exit).
    pub fn clear(&self) {
        self.exec();
        let old = core::mem::take(&mut *self.interval.lock());
        for (t, _) in old.into_iter().flatten() {
            t.set(None, 0);
        }
        self.cpu.clear();
    }

    /// For exec: timers of timer_create are deleted; those of setitimer go on.
    pub fn exec(&self) {
        self.posix.clear();
    }

    /// The interval timer `which`, made at first use.
    pub(crate) fn itimer(&self, p: &Arc<Process>, which: Itimer) -> Arc<IntervalTimer> {
        let (signo, base) = match which {
            Itimer::Real => (sig::SIGALRM, Base::Monotonic),
            Itimer::Virtual => (sig::SIGVTALRM, Base::User(Arc::downgrade(p))),
            Itimer::Prof => (sig::SIGPROF, Base::Process(Arc::downgrade(p))),
        };
        let mut timers = self.interval.lock();
        let (t, _) = timers[which as usize].get_or_insert_with(|| {
            let owner = Arc::new(Owner { process: Arc::downgrade(p), signo });
            let weak: Weak<dyn Elapsed> = Arc::<Owner>::downgrade(&owner);
            (IntervalTimer::new(base, weak), owner)
        });
        t.clone()
    }
}
