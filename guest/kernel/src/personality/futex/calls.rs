//! `futex(2)`.

use crate::core::numbers::numbers;
use crate::process::futex::FUTEXES;
use alloc::boxed::Box;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use super::robust::{get_robust_list, set_robust_list};
use super::separate::{futex_requeue, futex_wait, futex_wake};
use super::waitv::{WordFlags, futex_waitv};
use crate::core::time::{Timespec, monotonic_ns};
use crate::personality::Support::{Full, Partial};
use crate::personality::args::{Bits, FromArg, NoFlags, Number, Size};
use crate::personality::{Arg, Args, Syscall, call};
use crate::process::futex::deadline::absolute;
use crate::process::futex::{ANY, Key, pi, wait};
use crate::process::time::clock::Clock;
use crate::{Errno, Result};

/// The family.
pub const CALLS: &[Syscall] = &[
    call!(nr::FUTEX, futex(UserPtr, Operation, u32, CountOrTimeout, UserPtr, Val3), Partial, "no priorities"),
    call!(nr::FUTEX_WAITV, futex_waitv(UserPtr, u32, Bits<NoFlags>, UserPtr, Number<Clock>), Full, ""),
    call!(nr::FUTEX_WAKE, futex_wake(UserPtr, Size, i32, Bits<WordFlags>), Full, ""),
    call!(nr::FUTEX_WAIT, futex_wait(UserPtr, Size, Size, Bits<WordFlags>, UserPtr, Number<Clock>), Full, ""),
    call!(nr::FUTEX_REQUEUE, futex_requeue(UserPtr, Bits<NoFlags>, i32, i32), Full, ""),
    call!(nr::SET_ROBUST_LIST, set_robust_list(UserPtr, u64), Full, ""),
    call!(nr::GET_ROBUST_LIST, get_robust_list(i32, UserPtr, UserPtr), Full, ""),
];

numbers! {
    /// Commands of `futex(2)`.
    enum Command {
        Wait = 0,
        Wake = 1,
        Requeue = 3,
        CmpRequeue = 4,
        WakeOp = 5,
        LockPi = 6,
        UnlockPi = 7,
        TrylockPi = 8,
        WaitBitset = 9,
        WakeBitset = 10,
        WaitRequeuePi = 11,
        CmpRequeuePi = 12,
        LockPi2 = 13,
    }
}

bitflags::bitflags! {
    /// What goes with a command of `futex(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct OperationFlags: u32 {
        const PRIVATE = 128;
        const CLOCK_REALTIME = 256;
    }
}

/// The operation argument of `futex(2)`: a command and its flags.
#[derive(Clone, Copy)]
struct Operation(u32);

impl Operation {
    /// The command and its flags; ENOSYS for those there are not.
    #[inline(always)]
    fn decode(self) -> Result<(Command, OperationFlags)> {
        let flags = OperationFlags::from_bits_truncate(self.0);
        let command = Command::try_from(self.0 & !OperationFlags::all().bits()).map_err(|_| Errno::ENOSYS)?;
        let with_clock = matches!(command, Command::WaitBitset | Command::WaitRequeuePi | Command::LockPi2);
        if flags.contains(OperationFlags::CLOCK_REALTIME) && !with_clock {
            return Err(Errno::ENOSYS);
        }
        Ok((command, flags))
    }
}

impl FromArg for Operation {
    const KIND: Arg = Arg::Hex;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self(raw as u32)
    }
}

/// The fourth argument of `futex(2)`: the address of a timeout, or in its place a count.
#[derive(Clone, Copy)]
struct CountOrTimeout(UserPtr);

impl CountOrTimeout {
    fn count(self) -> u32 {
        self.0.0 as u32
    }

    fn timeout(self) -> Result<Option<Timespec>> {
        if self.0.is_null() { Ok(None) } else { Ok(Some(self.0.read()?)) }
    }
}

impl FromArg for CountOrTimeout {
    const KIND: Arg = Arg::Ptr;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self(UserPtr(raw))
    }
}

/// The last argument of `futex(2)`: a bit set, an expected value, or an operation on a word.
#[derive(Clone, Copy)]
struct Val3(u32);

impl FromArg for Val3 {
    const KIND: Arg = Arg::Hex;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self(raw as u32)
    }
}

#[inline]
fn futex(
    a: &Args,
    addr: UserPtr,
    operation: Operation,
    val: u32,
    fourth: CountOrTimeout,
    addr2: UserPtr,
    Val3(val3): Val3,
) -> Result<u64> {
    let (command, flags) = operation.decode()?;
    let private = flags.contains(OperationFlags::PRIVATE);
    let realtime = flags.contains(OperationFlags::CLOCK_REALTIME);
    let key = |p| Key::new(&a.thread, p, private, false);
    let lock_key = |p| Key::new(&a.thread, p, private, true);
    let table = &FUTEXES;
    match command {
        Command::Wait => match fourth.timeout()? {
            None => wait(key(addr)?, addr, val, ANY, None),
            Some(t) => {
                let deadline = monotonic_ns().saturating_add(t.to_ns()?);
                wait_relative(key(addr)?, addr, val, deadline)
            }
        },
        Command::WaitBitset => {
            if val3 == 0 {
                return Err(Errno::EINVAL);
            }
            let deadline = match fourth.timeout()? {
                None => None,
                Some(t) => absolute(t, realtime)?,
            };
            wait(key(addr)?, addr, val, val3, deadline)
        }
        Command::Wake => Ok(u64::from(table.wake(key(addr)?, count(val), ANY))),
        Command::WakeBitset if val3 == 0 => Err(Errno::EINVAL),
        Command::WakeBitset => Ok(u64::from(table.wake(key(addr)?, count(val), val3))),
        Command::Requeue | Command::CmpRequeue => {
            let n2 = fourth.count();
            if val.cast_signed() < 0 || n2.cast_signed() < 0 {
                return Err(Errno::EINVAL);
            }
            let expected = (command == Command::CmpRequeue).then_some((addr, val3));
            let (woken, moved) = table.requeue(key(addr)?, key(addr2)?, val, n2, expected)?;
            Ok(u64::from(woken + moved))
        }
        Command::WakeOp => {
            let (k1, k2) = (key(addr)?, lock_key(addr2)?);
            let old = apply(addr2, val3)?;
            let mut n = table.wake(k1, count(val), ANY);
            if compare(old, val3)? {
                n += table.wake(k2, count(fourth.count()), ANY);
            }
            Ok(u64::from(n))
        }
        Command::LockPi | Command::LockPi2 => {
            let deadline = match fourth.timeout()? {
                None => None,
                Some(t) => absolute(t, command == Command::LockPi || realtime)?,
            };
            pi::lock(&a.thread, lock_key(addr)?, addr, deadline)
        }
        Command::WaitRequeuePi => {
            let deadline = match fourth.timeout()? {
                None => None,
                Some(t) => absolute(t, realtime)?,
            };
            let (word, lock) = (key(addr)?, lock_key(addr2)?);
            pi::wait_requeue(&a.thread, (word, addr, val), (lock, addr2), deadline)
        }
        Command::CmpRequeuePi => {
            let more = fourth.count();
            if val != 1 || more.cast_signed() < 0 || addr == addr2 {
                return Err(Errno::EINVAL);
            }
            pi::requeue((key(addr)?, addr, val3), (lock_key(addr2)?, addr2), more)
        }
        Command::TrylockPi => pi::try_lock(&a.thread, lock_key(addr)?, addr),
        Command::UnlockPi => pi::unlock(&a.thread, lock_key(addr)?, addr),
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
