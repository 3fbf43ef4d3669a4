//! Deadlines of futex waits.

use crate::Result;
use crate::core::sched::Deadline;
use crate::core::time::{Timespec, monotonic_ns, realtime_ns};

/// An absolute time on a clock as a deadline.
pub(crate) fn absolute(t: Timespec, realtime: bool) -> Result<Deadline> {
    let ns = t.to_ns()?;
    if !realtime {
        return Ok(Some(ns));
    }
    let (real, now) = (realtime_ns(), monotonic_ns());
    // A time that has passed is a deadline that has passed.
    Ok(Some(if ns >= real { now.saturating_add(ns - real) } else { now.saturating_sub(real - ns) }))
}
