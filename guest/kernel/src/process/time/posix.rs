//! POSIX timers.
//!
//! As on Linux, a periodic timer pauses from its signal's sending until that is taken ([`signal_taken`]);
//! the periods that ended meanwhile are its overruns.

use crate::process::time::timers::{Elapsed, PosixTimer, PosixTimers, SigevNotify};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::process::signal::{self, SigInfo, code};
use crate::process::task::Process;
use crate::{Errno, Result};

impl Elapsed for PosixTimer {
    fn elapsed(&self, n: u64) -> bool {
        if self.event.notify == SigevNotify::None as i32 {
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
