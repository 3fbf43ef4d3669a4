//! Mapped files as memory sees them.

use alloc::vec::Vec;
use core::any::Any;

/// A file that is mapped.
pub trait Mapped: Any + Send + Sync {
    /// Number of the open file.
    fn id(&self) -> u64;

    /// Device and inode number.
    fn place(&self) -> Option<(u64, u64)>;

    /// Its name for /proc/PID/maps; empty if it has none.
    fn name(&self) -> Vec<u8>;
}
