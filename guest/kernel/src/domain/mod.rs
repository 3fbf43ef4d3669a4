//! The domain as a whole: boot, its first program, the Freezer, sessions, what /proc and /sys tell.

pub mod boot;
pub mod cgroupfs;
pub mod commands;
pub mod devfs;
pub mod first;
pub mod freezer;
mod mounts;
mod mqueuefs;
pub mod procfs;
pub mod sessions;
pub mod swap;
pub mod sysblock;
mod sysfs;
pub mod sysnet;
pub mod trim;
