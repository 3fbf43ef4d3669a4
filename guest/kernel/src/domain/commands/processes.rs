//! `processes`: the domain's processes.
//!
//! Prints records: pid, parent's pid, user, group, state letter, threads, CPU time and time since its start in
//! nanoseconds, resident memory in bytes, separated by spaces, one more space; then the command and a NUL.

use crate::process::task::TASKS;
use crate::process::time::cpu;
use alloc::format;
use alloc::vec::Vec;

use super::{About, Command, Outcome};
use crate::core::time;
use crate::domain::procfs;
use crate::memory;

pub fn run(c: &mut Command<'_>) -> Outcome {
    let now = time::monotonic_ns();
    for p in TASKS.all_processes() {
        // Not this one.
        if p.pid == c.thread.process.pid {
            continue;
        }
        let cred = p.cred();
        let head = format!(
            "{} {} {} {} {} {} {} {} {} ",
            p.pid,
            p.ppid(),
            cred.euid,
            cred.egid,
            procfs::state(&p, None),
            p.threads().len(),
            cpu::process_ns(&p),
            now.saturating_sub(p.start_ns),
            memory::vm_stats(&p.space().mm).resident,
        );
        let mut command: Vec<u8> = p.cmdline.lock().clone();
        while command.last() == Some(&0) {
            command.pop();
        }
        command.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b' ');
        if command.is_empty() {
            command = format!("[{}]", procfs::comm_of(&p)).into_bytes();
        }
        for part in [head.as_bytes(), &command, b"\0"] {
            c.put(part).about(b"standard output")?;
        }
    }
    Ok(())
}
