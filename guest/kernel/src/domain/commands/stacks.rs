//! `stacks`: where the domain's threads are in the guest kernel, for `doppel debug stacks`.

use doppel_abi_machine::builtin::ThreadRecord;

use alloc::format;

use super::{About, Command, Outcome, user_stack};
use crate::domain::procfs;
use crate::process::task::TASKS;

pub fn run(c: &mut Command<'_>) -> Outcome {
    let mut files = user_stack::Files::default();
    for p in TASKS.all_processes() {
        // Not this one.
        if p.pid == c.thread.process.pid {
            continue;
        }
        for t in p.threads() {
            let record = ThreadRecord { pid: p.pid, tid: t.tid(), state: procfs::state(&p, Some(&t)) };
            let head = format!("{record}{}", procfs::comm_text(&t.comm.lock()));
            // Whose process is another user's is told no more than /proc tells.
            let (channel, calls) = procfs::waiting::told(&t);
            let program = files.calls(&t);
            for part in [&*head, "\0", &channel, "\0", &calls, "\0", &program, "\0"] {
                c.put(part.as_bytes()).about(b"standard output")?;
            }
        }
        c.breathe().about(b"stacks")?;
    }
    Ok(())
}
