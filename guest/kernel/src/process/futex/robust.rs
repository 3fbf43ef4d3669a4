//! Robust futexes: what a thread held when it ended is marked and one waiter woken.

use crate::process::futex::FUTEXES;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_machine::user::UserPtr;

use super::pi::{OWNER_DIED, TID_MASK, WAITERS};
use super::{ANY, Key};
use crate::process::task::Thread;
use crate::{Errno, Result};
/// Most entries followed: the list is the program's and may be circular.
const LIST_MAX: usize = 2048;

/// Marks the robust futexes of an ending thread as orphaned and wakes their waiters. Runs on that thread.
pub fn exit_robust(t: &Arc<Thread>) {
    let head = t.robust_list.swap(0, Ordering::Relaxed);
    if head != 0 {
        // The list is user memory: where it is broken, the walk ends, as on Linux.
        let _ = walk(t, UserPtr(head));
    }
}

fn walk(t: &Arc<Thread>, head: UserPtr) -> Result<()> {
    let [first, offset, pending]: [u64; 3] = head.read()?;
    // The lowest bit of a pointer marks a priority-inheriting lock.
    let word = |entry: u64| UserPtr((entry & !1).wrapping_add(offset));
    let mut entry = first;
    let mut r = Ok(());
    for _ in 0..LIST_MAX {
        if entry & !1 == head.0 {
            break;
        }
        let next: Result<u64> = UserPtr(entry & !1).read().map_err(Errno::from);
        if entry & !1 != pending & !1 {
            r = died(t, word(entry), entry & 1 != 0, false);
        }
        match next {
            Ok(n) if r.is_ok() => entry = n,
            _ => break,
        }
    }
    if pending & !1 != 0 {
        r = died(t, word(pending), pending & 1 != 0, true);
    }
    r
}

/// Marks one word whose owner ends.
fn died(t: &Arc<Thread>, addr: UserPtr, pi: bool, pending: bool) -> Result<()> {
    let key = Key::new(t, addr, false, true)?;
    // Those who wait for a priority-inheriting lock may have called it private.
    let own = if pi { Some(Key::new(t, addr, true, true)?) } else { None };
    let wake = || {
        if FUTEXES.wake(key, 1, ANY) == 0
            && let Some(own) = own
        {
            FUTEXES.wake(own, 1, ANY);
        }
    };
    crate::memory::before_copies(addr, 4);
    loop {
        let v = addr.load_u32()?;
        // It was about to be released, or the next owner has not taken it yet: somebody must look.
        if pending && !pi && v == 0 {
            wake();
            return Ok(());
        }
        if v & TID_MASK != t.shown_tid().cast_unsigned() & TID_MASK {
            return Ok(());
        }
        if addr.cmpxchg_u32(v, (v & WAITERS) | OWNER_DIED)? == v {
            if v & WAITERS != 0 {
                wake();
            }
            return Ok(());
        }
    }
}
