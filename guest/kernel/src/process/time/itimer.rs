//! The interval timers of a process.

use crate::process::time::timers::{Base, Elapsed, IntervalTimer, ProcessTimers};
use alloc::sync::{Arc, Weak};

use doppel_abi_linux::time::itimer::{ITIMER_PROF, ITIMER_REAL, ITIMER_VIRTUAL};

use crate::process::signal::{self, SigInfo, sig};
use crate::process::task::Process;
use crate::{Errno, Result};

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
    pub(crate) fn itimer(&self, p: &Arc<Process>, which: i32) -> Result<Arc<IntervalTimer>> {
        let (i, signo, base) = match which {
            ITIMER_REAL => (0, sig::SIGALRM, Base::Monotonic),
            ITIMER_VIRTUAL => (1, sig::SIGVTALRM, Base::User(Arc::downgrade(p))),
            ITIMER_PROF => (2, sig::SIGPROF, Base::Process(Arc::downgrade(p))),
            _ => return Err(Errno::EINVAL),
        };
        let mut timers = self.interval.lock();
        let (t, _) = timers[i].get_or_insert_with(|| {
            let owner = Arc::new(Owner { process: Arc::downgrade(p), signo });
            let weak: Weak<dyn Elapsed> = Arc::<Owner>::downgrade(&owner);
            (IntervalTimer::new(base, weak), owner)
        });
        Ok(t.clone())
    }
}
