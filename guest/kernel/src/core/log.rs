//! The kernel's log: lines on the log ring, for the host.

use doppel_machine::sync::SpinLock;

use crate::core::part::Part;

/// One writer at a time, of all processes.
pub static LOG: Part<SpinLock<()>> = Part::new();

/// Writes a line to the kernel log.
pub fn log(line: &str) {
    let _one = LOG.lock();
    doppel_machine::console::log(line.as_bytes());
}
