//! Running a wait under a temporary signal mask (ppoll, pselect6, epoll_pwait).

use doppel_machine::user::UserPtr;

use crate::personality::Args;
use crate::process::signal::{read_sigset, restore_temporary_mask, set_temporary_mask};
use crate::{Errno, Result};

/// Runs `wait` with the signal mask at `set` (null: the mask stays) in place. If it was interrupted, the old
/// mask comes back only after the signal was delivered.
pub fn with_mask(args: &Args, set: UserPtr, size: usize, wait: impl FnOnce() -> Result<u64>) -> Result<u64> {
    let Some(mask) = read_sigset(set, size)? else { return wait() };
    set_temporary_mask(&args.thread, mask);
    let r = wait();
    if r != Err(Errno::ERESTARTNOHAND) {
        restore_temporary_mask(&args.thread);
    }
    r
}
