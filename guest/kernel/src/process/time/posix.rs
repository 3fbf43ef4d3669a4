//! POSIX timers.
//!
//! As on Linux, a periodic timer pauses from its signal's sending until that is taken ([`signal_taken`]);
//! the periods that ended meanwhile are its overruns.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_linux::time::sigev;
use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use super::interval::{Elapsed, IntervalTimer};
use crate::process::signal::{self, SigInfo, code};
use crate::process::task::{Process, Thread};
use crate::{Errno, Result};

pod_struct! {
    /// `struct sigevent`.
    pub struct Sigevent {
        /// `sigev_value`.
        pub value: u64,
        /// Signal number.
        pub signo: i32,
        /// SIGEV_SIGNAL, SIGEV_NONE, SIGEV_THREAD_ID.
        pub notify: i32,
        /// Thread id for SIGEV_THREAD_ID.
        pub tid: i32,
        /// Rest of the union.
        pub pad: [i32; 11],
    }
}

/// A timer made by timer_create.
pub(crate) struct PosixTimer {
    pub(crate) id: i32,
    /// Distinguishes it from a former timer with the same id.
    pub(crate) key: u64,
    pub(crate) clock: i32,
    pub(crate) event: Sigevent,
    pub(crate) process: Weak<Process>,
    pub(crate) thread: Option<Weak<Thread>>,
    pub(crate) timer: Arc<IntervalTimer>,
    /// Overruns of the signal that was taken last.
    pub(crate) overrun: AtomicU64,
}

impl Elapsed for PosixTimer {
    fn elapsed(&self, n: u64) -> bool {
        if self.event.notify == sigev::SIGEV_NONE {
            return true;
        }
        let Some(p) = self.process.upgrade() else { return false };
        if p.signals.would_ignore(self.event.signo) {
            return true;
        }
        let info = SigInfo {
            signo: self.event.signo,
            code: code::SI_TIMER,
            pid: self.id,
            uid: (n - 1).min(i32::MAX as u64) as u32,
            value: self.event.value,
            trapno: self.key,
            err: 0,
        };
        let sent = match &self.thread {
            None => signal::send_process(&p, info),
            Some(t) => t.upgrade().map_or(Ok(()), |t| signal::send_thread(&t, info)),
        };
        // A full queue loses this expiration; the next may find room.
        sent.is_err()
    }
}

/// The timers of one process by id.
#[derive(Default)]
pub(crate) struct PosixTimers {
    pub(crate) timers: SpinLock<BTreeMap<i32, Arc<PosixTimer>>>,
}

impl PosixTimers {
    pub(crate) fn clear(&self) {
        let old: Vec<_> = core::mem::take(&mut *self.timers.lock()).into_values().collect();
        for t in old {
            t.timer.set(None, 0);
        }
    }

    pub(crate) fn get(&self, id: i32) -> Result<Arc<PosixTimer>> {
        self.timers.lock().get(&id).cloned().ok_or(Errno::EINVAL)
    }
}

/// A pending signal was taken from its queue: if a timer sent it, its overruns are known now and its next
/// period begins.
pub(crate) fn signal_taken(p: &Process, info: &mut SigInfo) {
    if info.code != code::SI_TIMER || info.trapno == 0 {
        return;
    }
    let key = core::mem::take(&mut info.trapno);
    let Ok(t) = p.timers.posix.get(info.pid) else { return };
    if t.key == key {
        let n = (u64::from(info.uid) + t.timer.resume()).min(i32::MAX as u64);
        t.overrun.store(n, Ordering::Relaxed);
        info.uid = n as u32;
    }
}
