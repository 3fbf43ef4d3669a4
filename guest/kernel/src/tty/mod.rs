//! Terminals: line discipline, pseudo-terminals, the console terminal, job control.

use alloc::sync::Arc;
use core::any::Any;

use crate::fs::File;
use crate::task::{Process, Session};

/// Input arrived on the console ring; runs on PID 1.
pub fn console_input() {}

/// The console terminal was resized: rows << 16 | columns.
pub fn console_resized(_winsize: u32) {}

/// Opens the console terminal as the controlling terminal of `p`.
pub fn open_console(_p: &Arc<Process>, _winsize: u32) -> Arc<File> {
    panic!("no terminal layer")
}

/// The leader of a session with this terminal has exited.
pub fn session_leader_exit(_tty: &Arc<dyn Any + Send + Sync>, _session: &Arc<Session>) {}

/// Device number and foreground group of a session's terminal for /proc/PID/stat: (0, -1) if it has none.
pub fn controlling_numbers(_session: &Arc<Session>) -> (u64, i32) {
    (0, -1)
}
