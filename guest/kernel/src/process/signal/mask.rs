//! Temporary signal masks, alternate stacks, signal sets in user memory.

use doppel_abi_linux::signal::ss;
use doppel_machine::user::UserPtr;

use crate::process::signal::SigSet;
use crate::process::signal::send::set_mask;
use crate::process::signal::state::{AltStack, AltStackFlags};
use crate::process::task::Thread;
use crate::{Errno, Result};

pub(crate) fn check_size(size: usize) -> Result<()> {
    if size == 8 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Reads a signal set argument of `size` bytes; `None` if the pointer is null.
pub fn read_sigset(p: UserPtr, size: usize) -> Result<Option<SigSet>> {
    if p.is_null() {
        return Ok(None);
    }
    check_size(size)?;
    Ok(Some(p.read()?))
}

/// Blocks `mask` until the next return to the program (sigsuspend, pselect, ppoll, epoll_pwait).
pub fn set_temporary_mask(t: &Thread, mask: SigSet) {
    let old = t.signals.mask();
    t.signals.save_mask(old);
    set_mask(t, mask);
}

/// Undoes [`set_temporary_mask`] for a call that ended without being interrupted. An interrupted one
/// (ERESTARTNOHAND, EINTR) leaves it to signal delivery, so that the handler still runs.
pub fn restore_temporary_mask(t: &Thread) {
    let saved = t.signals.take_saved_mask();
    if let Some(m) = saved {
        set_mask(t, m);
    }
}

/// Changes the alternate stack while the program's stack pointer is `sp`.
pub(crate) fn set_altstack(t: &Thread, new: AltStack, sp: u64) -> Result<()> {
    let mut s = t.signals.private.lock();
    if s.altstack.contains(sp) {
        return Err(Errno::EPERM);
    }
    let mode = new.flags - AltStackFlags::AUTODISARM;
    if !mode.is_empty() && mode != AltStackFlags::DISABLE && mode != AltStackFlags::ONSTACK {
        return Err(Errno::EINVAL);
    }
    if mode == AltStackFlags::DISABLE {
        s.altstack = AltStack { sp: 0, size: 0, flags: new.flags };
    } else if new.size < ss::MINSIGSTKSZ {
        return Err(Errno::ENOMEM);
    } else {
        s.altstack = AltStack { flags: new.flags - AltStackFlags::ONSTACK, ..new };
    }
    Ok(())
}
