//! `futex_waitv(2)`.

use crate::process::futex::FUTEXES;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::pod_struct;
use doppel_machine::user::UserPtr;

use crate::core::sched;
use crate::core::time::Timespec;
use crate::personality::Args;
use crate::process::futex::{ANY, Key, Waiter};
use crate::{Errno, Result};

pod_struct! {
    /// `struct futex_waitv`.
    pub struct WaitV {
        /// Expected value.
        pub val: u64,
        /// Address.
        pub addr: u64,
        /// FUTEX2_SIZE_U32 and perhaps FUTEX2_PRIVATE.
        pub flags: u32,
        /// Zero.
        pub reserved: u32,
    }
}

const SIZE_U32: u32 = 2;
const PRIVATE: u32 = 128;
const MAX: u32 = 128;
const CLOCK_REALTIME: i32 = 0;
const CLOCK_MONOTONIC: i32 = 1;

pub(super) fn futex_waitv(a: &Args) -> Result<u64> {
    let (n, clock) = (a.u32(1), a.i32(4));
    if a.u32(2) != 0 || n == 0 || n > MAX || a.ptr(0).is_null() {
        return Err(Errno::EINVAL);
    }
    let deadline = if a.ptr(3).is_null() {
        None
    } else {
        if !matches!(clock, CLOCK_REALTIME | CLOCK_MONOTONIC) {
            return Err(Errno::EINVAL);
        }
        crate::process::futex::deadline::absolute(a.ptr(3).read::<Timespec>()?, clock == CLOCK_REALTIME)?
    };
    let mut list = Vec::new();
    for i in 0..u64::from(n) {
        let w: WaitV = a.ptr(0).add(i * size_of::<WaitV>() as u64).read()?;
        if w.flags & !(SIZE_U32 | PRIVATE) != 0 || w.flags & 3 != SIZE_U32 || w.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        let addr = UserPtr(w.addr);
        let key = Key::new(&a.thread, addr, w.flags & PRIVATE != 0, false)?;
        list.push((key, addr, w.val as u32));
    }
    let table = &FUTEXES;
    let mut waiters: Vec<Arc<Waiter>> = Vec::new();
    let mut error = None;
    for (key, addr, val) in list {
        let w = Waiter::new(&a.thread, key, ANY);
        if let Err(e) = table.queue(&w, key, addr, val) {
            error = Some(e);
            break;
        }
        waiters.push(w);
    }
    let error = match error {
        Some(e) => e,
        None => loop {
            if waiters.iter().any(|w| w.woken()) {
                break Errno::EAGAIN;
            }
            if a.thread.interrupted() {
                break Errno::ERESTARTSYS;
            }
            if !sched::park(&**a.thread, deadline) {
                break Errno::ETIMEDOUT;
            }
        },
    };
    // A word that woke us counts even if something else ended the wait.
    let mut woken = None;
    for (i, w) in waiters.iter().enumerate() {
        if !table.unqueue(w) {
            woken = Some(i as u64);
        }
    }
    woken.ok_or(error)
}
