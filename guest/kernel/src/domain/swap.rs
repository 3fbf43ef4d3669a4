//! Moving pages out of memory as the host asks: each space's by a thread of its own there (docs/memory.md).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_machine::{boot, swap};

use crate::memory::commit::RECLAIM;
use crate::process::task::{current_space, remote};

/// One list of the host. When nobody works at it any more it is done, whatever became of those who did.
struct Round(u32);

impl Drop for Round {
    fn drop(&mut self) {
        boot::vregs().swap_done.store(self.0, Ordering::Release);
    }
}

/// Has the spaces move out what the host's list says. Runs on PID 1.
pub fn event() {
    let round = Arc::new(Round(boot::vregs().swap_round.load(Ordering::Acquire)));
    let list = swap::list();
    // What can be read again goes first.
    let bytes = list.iter().fold(0u64, |sum, s| sum.saturating_add(s.len));
    (RECLAIM.get())(bytes);
    for one in list.chunk_by(|a, b| a.space == b.space) {
        let (list, round) = (one.to_vec(), round.clone());
        // One that has ended has nothing to move.
        let _ = remote::run_later(one[0].space, move || {
            let space = current_space();
            // A program that has ended leaves this thread alone.
            space.mm.page_out(&list, || space.thread_count() > 1);
            drop(round);
        });
    }
}
