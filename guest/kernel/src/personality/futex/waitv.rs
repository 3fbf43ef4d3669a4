//! `futex_waitv(2)`.

use crate::process::futex::FUTEXES;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::pod_struct;
use doppel_machine::user::UserPtr;

use crate::core::sched::{self, Deadline};
use crate::core::time::Timespec;
use crate::personality::Args;
use crate::personality::args::{Bits, NoFlags, Number};
use crate::process::futex::deadline::absolute;
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
    pub(super) struct WordFlags: u32 {
        const SIZE_U32 = 2;
        const PRIVATE = 128;
    }
}

impl WordFlags {
    /// Whether the word is one of this process; EINVAL for words of another size.
    pub fn is_private(self) -> Result<bool> {
        if self.contains(Self::SIZE_U32) { Ok(self.contains(Self::PRIVATE)) } else { Err(Errno::EINVAL) }
    }
}

impl WaitV {
    /// Copies one from a program; EINVAL if it is none.
    pub fn read(at: UserPtr) -> Result<Self> {
        let w: Self = at.read()?;
        w.is_private()?;
        if w.reserved != 0 || w.val > u64::from(u32::MAX) { Err(Errno::EINVAL) } else { Ok(w) }
    }

    pub(super) fn is_private(&self) -> Result<bool> {
        WordFlags::from_bits(self.flags).ok_or(Errno::EINVAL)?.is_private()
    }
}

const MAX: u32 = 128;

/// Until when to wait on this clock, if there is an end to it.
pub(super) fn until(at: UserPtr, clock: Number<Clock>) -> Result<Deadline> {
    if at.is_null() {
        return Ok(None);
    }
    let realtime = match clock.get()? {
        Clock::Realtime => true,
        Clock::Monotonic => false,
        _ => return Err(Errno::EINVAL),
    };
    absolute(at.read::<Timespec>()?, realtime)
}

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
    let deadline = until(user_timeout, clock)?;
    let mut list = Vec::new();
    for i in 0..u64::from(n) {
        let w = WaitV::read(user_waiters.add(i * size_of::<WaitV>() as u64))?;
        let addr = UserPtr(w.addr);
        let key = Key::new(&a.thread, addr, w.is_private()?, false)?;
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
