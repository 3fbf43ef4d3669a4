//! Inter-process communication: pipes, eventfd, epoll, timerfd, signalfd, inotify, SysV IPC.

use alloc::sync::Arc;

use crate::task::Process;

/// Releases what a process holds in IPC objects (SEM_UNDO…).
pub fn process_exit(_p: &Arc<Process>) {}

/// Process descriptors.
pub mod pidfd {
    use alloc::sync::Arc;

    use crate::task::Process;
    use crate::{Errno, Result};

    /// A new descriptor for `target` in the table of `owner`.
    pub fn open(_owner: &Arc<Process>, _target: &Arc<Process>) -> Result<i32> {
        Err(Errno::ENOSYS)
    }

    /// The pid behind a descriptor.
    pub fn pid_of(_owner: &Arc<Process>, _fd: i32) -> Result<i32> {
        Err(Errno::EBADF)
    }
}
