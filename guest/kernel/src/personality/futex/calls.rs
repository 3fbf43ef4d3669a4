//! `futex(2)`.

use crate::process::futex::FUTEXES;
use alloc::boxed::Box;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use super::robust::{get_robust_list, set_robust_list};
use super::waitv;
use crate::core::time::{Timespec, monotonic_ns};
use crate::personality::Support::{Full, Partial};
use crate::personality::{Arg, Args, Syscall, call};
use crate::process::futex::deadline::absolute;
use crate::process::futex::{ANY, Key, pi, wait};
use crate::{Errno, Result};
use Arg::{Hex, Int, Ptr};

/// The family.
pub const CALLS: &[Syscall] = &[
    call(nr::FUTEX, futex, Partial, &[Ptr, Hex, Int, Ptr, Ptr, Hex], "no priorities"),
    call(nr::FUTEX_WAITV, waitv::futex_waitv, Full, &[Ptr, Int, Hex, Ptr, Int], ""),
    call(nr::SET_ROBUST_LIST, set_robust_list, Full, &[Ptr, Int], ""),
    call(nr::GET_ROBUST_LIST, get_robust_list, Full, &[Int, Ptr, Ptr], ""),
];

const WAIT: u32 = 0;
const WAKE: u32 = 1;
const REQUEUE: u32 = 3;
const CMP_REQUEUE: u32 = 4;
const WAKE_OP: u32 = 5;
const LOCK_PI: u32 = 6;
const UNLOCK_PI: u32 = 7;
const TRYLOCK_PI: u32 = 8;
const WAIT_BITSET: u32 = 9;
const WAKE_BITSET: u32 = 10;
const WAIT_REQUEUE_PI: u32 = 11;
const CMP_REQUEUE_PI: u32 = 12;
const LOCK_PI2: u32 = 13;
const PRIVATE_FLAG: u32 = 128;
const CLOCK_REALTIME_FLAG: u32 = 256;

fn futex(a: &Args) -> Result<u64> {
    let op = a.u32(1);
    let (private, realtime) = (op & PRIVATE_FLAG != 0, op & CLOCK_REALTIME_FLAG != 0);
    let cmd = op & !(PRIVATE_FLAG | CLOCK_REALTIME_FLAG);
    if realtime && !matches!(cmd, WAIT_BITSET | WAIT_REQUEUE_PI | LOCK_PI2) {
        return Err(Errno::ENOSYS);
    }
    let (addr, val, addr2, val3) = (a.ptr(0), a.u32(2), a.ptr(4), a.u32(5));
    let key = |p| Key::new(&a.thread, p, private, false);
    let lock_key = |p| Key::new(&a.thread, p, private, true);
    let timeout = || -> Result<Option<Timespec>> {
        if a.ptr(3).is_null() { Ok(None) } else { Ok(Some(a.ptr(3).read()?)) }
    };
    let table = &FUTEXES;
    match cmd {
        WAIT => match timeout()? {
            None => wait(key(addr)?, addr, val, ANY, None),
            Some(t) => {
                let deadline = monotonic_ns().saturating_add(t.to_ns()?);
                wait_relative(key(addr)?, addr, val, deadline)
            }
        },
        WAIT_BITSET => {
            if val3 == 0 {
                return Err(Errno::EINVAL);
            }
            let deadline = match timeout()? {
                None => None,
                Some(t) => absolute(t, realtime)?,
            };
            wait(key(addr)?, addr, val, val3, deadline)
        }
        WAKE => Ok(u64::from(table.wake(key(addr)?, count(val), ANY))),
        WAKE_BITSET if val3 == 0 => Err(Errno::EINVAL),
        WAKE_BITSET => Ok(u64::from(table.wake(key(addr)?, count(val), val3))),
        REQUEUE | CMP_REQUEUE => {
            // The second count is passed in place of the timeout.
            let n2 = a.u32(3);
            if val.cast_signed() < 0 || n2.cast_signed() < 0 {
                return Err(Errno::EINVAL);
            }
            let expected = (cmd == CMP_REQUEUE).then_some((addr, val3));
            let (woken, moved) = table.requeue(key(addr)?, key(addr2)?, val, n2, expected)?;
            Ok(u64::from(woken + moved))
        }
        WAKE_OP => {
            let (k1, k2) = (key(addr)?, lock_key(addr2)?);
            let old = apply(addr2, val3)?;
            let mut n = table.wake(k1, count(val), ANY);
            if compare(old, val3)? {
                n += table.wake(k2, count(a.u32(3)), ANY);
            }
            Ok(u64::from(n))
        }
        LOCK_PI | LOCK_PI2 => {
            let deadline = match timeout()? {
                None => None,
                Some(t) => absolute(t, cmd == LOCK_PI || realtime)?,
            };
            pi::lock(&a.thread, lock_key(addr)?, addr, deadline)
        }
        WAIT_REQUEUE_PI => {
            let deadline = match timeout()? {
                None => None,
                Some(t) => absolute(t, realtime)?,
            };
            let (word, lock) = (key(addr)?, lock_key(addr2)?);
            pi::wait_requeue(&a.thread, (word, addr, val), (lock, addr2), deadline)
        }
        CMP_REQUEUE_PI => {
            let more = a.u32(3);
            if val != 1 || more.cast_signed() < 0 || addr == addr2 {
                return Err(Errno::EINVAL);
            }
            pi::requeue((key(addr)?, addr, val3), (lock_key(addr2)?, addr2), more)
        }
        TRYLOCK_PI => pi::try_lock(&a.thread, lock_key(addr)?, addr),
        UNLOCK_PI => pi::unlock(&a.thread, lock_key(addr)?, addr),
        _ => Err(Errno::ENOSYS),
    }
}

/// A count of waiters; Linux wakes one where zero or less is asked.
fn count(val: u32) -> u32 {
    if val.cast_signed() <= 0 { 1 } else { val }
}

/// FUTEX_WAIT with a relative timeout: interrupted without a handler, it goes on to the same deadline.
fn wait_relative(key: Key, addr: UserPtr, val: u32, deadline: u64) -> Result<u64> {
    match wait(key, addr, val, ANY, Some(deadline)) {
        Err(Errno::ERESTARTSYS) => {
            let t = crate::process::task::current();
            *t.restart.lock() = Some(Box::new(move || wait_relative(key, addr, val, deadline)));
            Err(Errno::ERESTART_RESTARTBLOCK)
        }
        r => r,
    }
}

fn compare(old: u32, op: u32) -> Result<bool> {
    let (old, arg) = (old.cast_signed(), sign12(op));
    Ok(match op >> 24 & 15 {
        0 => old == arg,
        1 => old != arg,
        2 => old < arg,
        3 => old <= arg,
        4 => old > arg,
        5 => old >= arg,
        _ => return Err(Errno::ENOSYS),
    })
}

/// FUTEX_WAKE_OP's arithmetic; returns the old value.
pub(crate) fn apply(addr: UserPtr, op: u32) -> Result<u32> {
    let kind = op >> 28;
    let mut arg = sign12(op >> 12);
    if kind & 8 != 0 {
        // Linux takes shift counts modulo 32.
        arg = 1i32.wrapping_shl(arg.cast_unsigned() & 31);
    }
    let arg = arg.cast_unsigned();
    loop {
        let old = addr.load_u32()?;
        let new = match kind & 7 {
            0 => arg,
            1 => old.wrapping_add(arg),
            2 => old | arg,
            3 => old & !arg,
            4 => old ^ arg,
            _ => return Err(Errno::ENOSYS),
        };
        if addr.cmpxchg_u32(old, new)? == old {
            return Ok(old);
        }
    }
}

/// The low 12 bits as a signed number.
pub(crate) fn sign12(v: u32) -> i32 {
    (v << 20).cast_signed() >> 20
}
