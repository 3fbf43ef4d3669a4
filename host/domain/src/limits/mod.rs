//! Limits and accounts: control groups and the arbiter of CPU time.

pub mod arbiter;
pub mod cgroup;
pub mod group_limits;
mod short_file;
