//! What the domain says of itself: release, version, names, memory.

use doppel_machine::boot;
use doppel_machine::user::{UserPtr, bytes_of_mut};

use crate::{Errno, Result};

/// What `uname -r` and /proc/sys/kernel/osrelease say.
pub const RELEASE: &str = "6.6.0-doppel";
/// What `uname -v` and /proc/sys/kernel/version say.
pub const VERSION: &str = "#1 SMP PREEMPT_DYNAMIC Doppel";

/// Memory of the domain as programs are told: total and in use, in bytes.
pub fn memory() -> (u64, u64) {
    let info = boot::start_info();
    let total = [boot::memory_limit(), info.host_memory, info.pagefile_size]
        .into_iter()
        .find(|n| *n != 0)
        .unwrap_or(0);
    let used = crate::process::task::current().space().mm.committed() + doppel_machine::arena::usage().0;
    (total, used.min(total))
}

/// A short user structure of which the program says how long it is: reads at most `size_of::<T>()` bytes, the
/// rest must be zero (`sched_setattr(2)`); E2BIG if not.
pub fn read_sized<T: doppel_machine::user::Pod>(p: UserPtr, size: usize) -> Result<T> {
    let mut v = doppel_machine::user::zeroed::<T>();
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let mut at = size.min(size_of::<T>());
    p.read_bytes(&mut bytes_of_mut(&mut v)[..at])?;
    let mut rest = [0u8; 64];
    while at < size {
        let n = rest.len().min(size - at);
        p.add(at as u64).read_bytes(&mut rest[..n])?;
        if rest[..n].iter().any(|b| *b != 0) {
            return Err(Errno::E2BIG);
        }
        at += n;
    }
    Ok(v)
}
