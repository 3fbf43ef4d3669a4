//! `events` and `event-level`: what has happened in the domain, for `doppel debug events`.

use alloc::format;

use doppel_abi_machine::events::Level;

use super::{About, Command, Outcome};
use crate::core::events::EVENTS;
use crate::core::sched::{WaitQueue, wait_until};
use crate::core::time::monotonic_ns;
use crate::{Errno, Result};

/// How long one who follows sleeps between two looks. Nobody wakes him: events happen under any lock.
const BETWEEN_NS: u64 = 50_000_000;

/// Prints the events, with `follow` until a signal ends it.
pub fn run(c: &mut Command<'_>, follow: bool) -> Outcome {
    print(c, follow).about(b"events")
}

fn print(c: &mut Command<'_>, follow: bool) -> Result<()> {
    // So that who follows hears of it before there is an event.
    c.put(b"\0")?;
    let mut number = 0;
    // Without following, what happens meanwhile may not keep it here.
    let mut left = if follow { u64::MAX } else { crate::core::events::KEPT as u64 };
    loop {
        while let Some((at, event)) = EVENTS.get().get(number).filter(|_| left > 0) {
            c.put(format!("{}{event}\0", event.record(at)).as_bytes())?;
            (number, left) = (at + 1, left - 1);
        }
        if !follow {
            return Ok(());
        }
        c.flush()?;
        let until = Some(monotonic_ns() + BETWEEN_NS);
        match c.patiently(|| wait_until(&WaitQueue::default(), until, || None::<()>)) {
            Ok(()) | Err(Errno::ETIMEDOUT) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Keeps events up to this level from now on.
pub fn keep(level: Level) -> Outcome {
    EVENTS.get().keep(level).about(b"events")
}
