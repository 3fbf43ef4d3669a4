//! `seccomp(2)`.

use core::sync::atomic::Ordering;

use crate::core::numbers::numbers;
use crate::personality::Args;
use crate::personality::args::{Bits, Number};
use crate::process::seccomp::{DISABLED, FilterFlags, STRICT, action, set_filter};
use crate::process::task::Thread;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

numbers! {
    /// Operations of `seccomp(2)`.
    pub(crate) enum Operation {
        Strict = 0,
        Filter = 1,
        ActionAvailable = 2,
    }
}

numbers! {
    /// Modes of `prctl(PR_SET_SECCOMP)`.
    enum Mode {
        Strict = 1,
        Filter = 2,
    }
}

fn set_strict(t: &Thread) -> Result<u64> {
    t.seccomp
        .mode
        .compare_exchange(DISABLED, STRICT, Ordering::Relaxed, Ordering::Relaxed)
        .or_else(|m| if m == STRICT { Ok(m) } else { Err(Errno::EINVAL) })?;
    Ok(0)
}

/// `prctl(PR_SET_SECCOMP)`.
pub(super) fn from_prctl(a: &Args, mode: u64, program: UserPtr) -> Result<u64> {
    let mode = u32::try_from(mode).map_err(|_| Errno::EINVAL)?;
    match Mode::try_from(mode)? {
        Mode::Strict => set_strict(&a.thread),
        Mode::Filter => set_filter(&a.thread, FilterFlags::empty(), program),
    }
}

fn action_available(user_action: UserPtr) -> Result<u64> {
    use action::{ALLOW, ERRNO, KILL_PROCESS, KILL_THREAD, LOG, TRACE, TRAP};
    let v: u32 = user_action.read()?;
    let known = [KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, TRACE, LOG, ALLOW].contains(&v);
    if known { Ok(0) } else { Err(Errno::EOPNOTSUPP) }
}

/// `seccomp(2)`.
pub(super) fn sys_seccomp(
    a: &Args,
    operation: Number<Operation>,
    flags: Bits<FilterFlags>,
    argument: UserPtr,
) -> Result<u64> {
    let flags = flags.any();
    match operation.get()? {
        Operation::Strict if flags.is_empty() && argument.is_null() => set_strict(&a.thread),
        Operation::Filter => set_filter(&a.thread, flags, argument),
        Operation::ActionAvailable if flags.is_empty() => action_available(argument),
        _ => Err(Errno::EINVAL),
    }
}
