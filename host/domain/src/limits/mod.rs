//! Limits and accounts: control groups and the arbiter of CPU time.

pub mod arbiter;
pub mod cgroup;
pub mod group_limits;
pub mod rests;
mod short_file;
