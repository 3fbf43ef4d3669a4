//! The ground of the kernel: scheduling, waiting, time, its parts and hooks, who calls, random numbers, the log, events.

pub mod events;
pub mod hook;
pub mod kernel;
pub mod log;
pub mod namespace;
pub(crate) mod numbers;
pub mod part;
pub mod random;
pub mod sched;
pub mod siginfo;
pub mod subject;
pub mod time;
pub mod work;
