//! Timeouts as programs give them: timespec, timeval, milliseconds; and the time left written back.

use doppel_machine::user::UserPtr;

use crate::core::sched::Deadline;
use crate::core::time::{Timespec, monotonic_ns};
use crate::{Errno, Result};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// A timeout that has begun to run.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// When it ends; `None` never.
    pub deadline: Deadline,
    /// Whether it was zero: only look, do not wait.
    pub poll: bool,
}

impl Timeout {
    /// One of `ns` nanoseconds from now.
    pub fn after(ns: u64) -> Self {
        Self { deadline: Some(monotonic_ns().saturating_add(ns)), poll: ns == 0 }
    }

    /// One that never ends.
    pub const fn never() -> Self {
        Self { deadline: None, poll: false }
    }

    /// From milliseconds; negative is never.
    pub fn millis(ms: i32) -> Self {
        match u64::try_from(ms) {
            Ok(0) => Self { deadline: Some(0), poll: true },
            Ok(ms) => Self::after(ms * 1_000_000),
            Err(_) => Self::never(),
        }
    }

    /// From a user timespec; null is never.
    pub fn timespec(p: UserPtr) -> Result<Self> {
        if p.is_null() { Ok(Self::never()) } else { Ok(Self::after(p.read::<Timespec>()?.to_ns()?)) }
    }

    /// From a user timeval; null is never. Microseconds beyond a second are carried over as Linux does.
    pub fn timeval(p: UserPtr) -> Result<Self> {
        if p.is_null() {
            return Ok(Self::never());
        }
        let t = p.read::<Timespec>()?;
        let (Ok(sec), Ok(us)) = (u64::try_from(t.sec), u64::try_from(t.nsec)) else {
            return Err(Errno::EINVAL);
        };
        let ns = sec.saturating_mul(SECOND).saturating_add(us.saturating_mul(1000));
        Ok(Self::after(ns.min(i64::MAX.unsigned_abs())))
    }

    /// Nanoseconds left, 0 when over; `None` if it never ends.
    pub fn left(&self) -> Option<u64> {
        self.deadline.map(|d| d.saturating_sub(monotonic_ns()))
    }

    /// Writes the time left back as a timespec. Errors are ignored, as the kernel does: the memory may be
    /// read-only.
    pub fn store_timespec(&self, p: UserPtr) {
        if let (false, Some(ns)) = (p.is_null(), self.left()) {
            let _ = p.write(&Timespec::from_ns(ns));
        }
    }

    /// As [`Self::store_timespec`] for a timeval.
    pub fn store_timeval(&self, p: UserPtr) {
        if let (false, Some(ns)) = (p.is_null(), self.left()) {
            let t = Timespec::from_ns(ns);
            let _ = p.write(&Timespec { sec: t.sec, nsec: t.nsec / 1000 });
        }
    }
}
