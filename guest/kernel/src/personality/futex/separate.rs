//! `futex_wake(2)`, `futex_wait(2)` and `futex_requeue(2)`: the commands of `futex(2)` as calls of their own, whose flags say what
//! size a word has.

use doppel_machine::user::UserPtr;

use super::waitv::{WaitV, WordFlags, until};
use crate::personality::Args;
use crate::personality::args::{Bits, NoFlags, Number, Size};
use crate::process::futex::{FUTEXES, Key, wait};
use crate::process::time::clock::Clock;
use crate::{Errno, Result};

/// A value or a mask; EINVAL if the word is too short for it.
fn of_word(Size(value): Size) -> Result<u32> {
    u32::try_from(value).map_err(|_| Errno::EINVAL)
}

pub(super) fn futex_wake(
    a: &Args,
    addr: UserPtr,
    mask: Size,
    count: i32,
    flags: Bits<WordFlags>,
) -> Result<u64> {
    let private = flags.checked()?.is_private()?;
    let mask = of_word(mask)?;
    if mask == 0 {
        return Err(Errno::EINVAL);
    }
    let key = Key::new(&a.thread, addr, private, false)?;
    // Unlike `futex(2)` it wakes nobody where none is asked.
    match count {
        0 => Ok(0),
        n => Ok(u64::from(FUTEXES.wake(key, n.max(1).cast_unsigned(), mask))),
    }
}

pub(super) fn futex_wait(
    a: &Args,
    addr: UserPtr,
    val: Size,
    mask: Size,
    flags: Bits<WordFlags>,
    timeout: UserPtr,
    clock: Number<Clock>,
) -> Result<u64> {
    let private = flags.checked()?.is_private()?;
    let (val, mask) = (of_word(val)?, of_word(mask)?);
    let deadline = until(timeout, clock)?;
    if mask == 0 {
        return Err(Errno::EINVAL);
    }
    wait(Key::new(&a.thread, addr, private, false)?, addr, val, mask, deadline)
}

pub(super) fn futex_requeue(
    a: &Args,
    waiters: UserPtr,
    flags: Bits<NoFlags>,
    wake: i32,
    requeue: i32,
) -> Result<u64> {
    flags.checked()?;
    if waiters.is_null() {
        return Err(Errno::EINVAL);
    }
    let read = |i: u64| WaitV::read(waiters.add(i * size_of::<WaitV>() as u64));
    let (from, to) = (read(0)?, read(1)?);
    let (Ok(wake), Ok(requeue)) = (u32::try_from(wake), u32::try_from(requeue)) else {
        return Err(Errno::EINVAL);
    };
    let key = |w: &WaitV| Key::new(&a.thread, UserPtr(w.addr), w.is_private()?, false);
    let expected = Some((UserPtr(from.addr), of_word(Size(from.val))?));
    let (woken, moved) = FUTEXES.requeue(key(&from)?, key(&to)?, wake, requeue, expected)?;
    Ok(u64::from(woken + moved))
}
