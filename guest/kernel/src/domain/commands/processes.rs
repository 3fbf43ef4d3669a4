//! `processes`: the domain's processes.

use crate::process::task::TASKS;
use crate::process::time::cpu;
use alloc::format;
use alloc::vec::Vec;

use doppel_abi_machine::builtin::ProcessRecord;

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
        let record = ProcessRecord {
            pid: p.pid,
            ppid: p.ppid(),
            uid: cred.euid,
            gid: cred.egid,
            state: procfs::state(&p, None),
            threads: p.threads().len() as u64,
            cpu_ns: cpu::process_ns(&p),
            age_ns: now.saturating_sub(p.start_ns),
            resident: memory::vm_stats(&p.space().mm).resident,
        };
        let head = format!("{record}");
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
