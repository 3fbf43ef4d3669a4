//! Signals to the container's processes.

use rustix::process::{Pid, Signal};

/// The signals of a set, bit n-1 for signal n.
pub(crate) fn signals(set: u64) -> impl Iterator<Item = Signal> {
    (1..=64i32).filter(move |n| set & (1 << (n - 1)) != 0).filter_map(Signal::from_named_raw)
}

/// Sends a process (or, negative, a group) a signal; one that is gone needs none.
pub(crate) fn send(pid: Pid, group: bool, signal: Signal) {
    let _ = if group {
        rustix::process::kill_process_group(pid, signal)
    } else {
        rustix::process::kill_process(pid, signal)
    };
}
