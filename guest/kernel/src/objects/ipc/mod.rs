//! Inter-process communication and event descriptors: pipes, FIFOs, eventfd, pidfd, poll, select, epoll.
//!
//! Key types: [`pipe::Pipe`], [`epoll::Epoll`], [`eventfd::EventFd`]. Boundary: everything here is a `FileOps`
//! or a system call over files; nothing knows how files of other kinds work.
//! Lock order: epoll scan lock (outer epoll before inner) → a file's own state → its wait queue → epoll ready
//! list → the epoll's wait queue.

pub mod dnotify;
pub mod epoll;
pub mod eventfd;
pub mod fanotify;
pub mod fifo;
pub mod inotify;
pub mod memfd;
pub mod pipe;
pub mod splice;
pub mod sysv;
pub mod timeout;
pub mod timerfd;

/// Releases what a process holds in IPC objects (SEM_UNDO…).
pub fn process_exit(pid: i32) {
    sysv::sem::process_exit(pid);
}
