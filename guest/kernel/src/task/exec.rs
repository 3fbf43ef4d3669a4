//! Loading programs (`execve(2)`).

use alloc::sync::Arc;

use doppel_machine::boot::BootData;

use super::Thread;
use crate::{Errno, Result};

/// Loads the domain's first program into the current thread.
pub fn load_init(_t: &Arc<Thread>, _data: &BootData) -> Result<()> {
    Err(Errno::ENOEXEC)
}
