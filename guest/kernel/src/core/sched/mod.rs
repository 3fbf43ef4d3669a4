//! Blocking and waking: the one place where guest threads wait (docs/design.md §5).
//!
//! Key types: [`WaitQueue`] holds [`Wake`] objects (a blocked thread, or an epoll item); [`wait_until`] is how
//! every system call blocks. [`PollTable`] registers one waker on many queues (poll, select, epoll).
//! Boundary: queues know nothing of what is waited for; conditions are re-checked by the waiter, so spurious
//! wake-ups are harmless. Lock order: a queue's lock is a leaf except for run-queue locks taken by wakers.

mod events;
mod halt;
mod handover;
mod mutex;
pub(crate) mod runnable;
mod runqueue;
mod spin;
mod wait;

pub use events::PollEvents;
pub use halt::STANDSTILL;
pub(crate) use halt::settle;
pub use mutex::{Mutex, MutexGuard};
pub use runnable::{Entity, Memory, Outside, Runnable, Watch};
pub use runqueue::{
    IdleThread, RunQueue, Space, current_space, exit_current, idle_loop, migrate, park, yield_now,
};
pub(crate) use wait::can_wait;
pub use wait::{
    Deadline, PollTable, WaitQueue, WaitToken, Waits, Wake, goes_outside, run, wait_until,
    wait_until_uninterruptible, waiter, without_waiting,
};
