//! System calls that wait for events, and descriptors for events.

pub mod anon;
pub mod epoll;
pub mod eventfd;
pub mod fanotify;
pub mod inotify;
pub mod mask;
pub mod pidfd;
pub mod poll;
pub mod select;
pub mod signalfd;
pub mod timerfd;
