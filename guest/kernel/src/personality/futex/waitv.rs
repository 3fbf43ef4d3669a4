//! `futex_waitv(2)`.

use crate::process::futex::FUTEXES;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::pod_struct;
use doppel_machine::user::UserPtr;

use crate::core::sched;
use crate::core::time::Timespec;
use crate::personality::Args;
use crate::personality::args::{Bits, NoFlags, Number};
use crate::process::futex::{ANY, Key, Waiter};
use crate::process::time::clock::Clock;
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

bitflags::bitflags! {
    /// `FUTEX2_` flags. Words of 32 bits are the only size there is.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct WaitVFlags: u32 {
        const SIZE_U32 = 2;
        const PRIVATE = 128;
    }
}

const MAX: u32 = 128;

pub(super) fn futex_waitv(
    a: &Args,
    user_waiters: UserPtr,
    n: u32,
    flags: Bits<NoFlags>,
    user_timeout: UserPtr,
    clock: Number<Clock>,
) -> Result<u64> {
    flags.checked()?;
    if n == 0 || n > MAX || user_waiters.is_null() {
        return Err(Errno::EINVAL);
    }
    let deadline = if user_timeout.is_null() {
        None
    } else {
        let realtime = match clock.get()? {
            Clock::Realtime => true,
            Clock::Monotonic => false,
            _ => return Err(Errno::EINVAL),
        };
        crate::process::futex::deadline::absolute(user_timeout.read::<Timespec>()?, realtime)?
    };
    let mut list = Vec::new();
    for i in 0..u64::from(n) {
        let w: WaitV = user_waiters.add(i * size_of::<WaitV>() as u64).read()?;
        let flags = WaitVFlags::from_bits(w.flags).ok_or(Errno::EINVAL)?;
        if !flags.contains(WaitVFlags::SIZE_U32) || w.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        let addr = UserPtr(w.addr);
        let key = Key::new(&a.thread, addr, flags.contains(WaitVFlags::PRIVATE), false)?;
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
