//! Rounds of paging for the domains of this process, on a thread of its own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::run::rounds::Rounds;
use crate::run::state::Core;

/// How long at most until it is seen that a domain is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// It never ends.
static PAGER: Mutex<Rounds> = Mutex::new(Rounds::new("pager", LOOK_AGAIN, round));

/// Has rounds made for a domain as long as it lives and has a target; also when the target has changed.
pub(crate) fn look_after(core: &Arc<Core>) {
    if core.paging_due().is_some() {
        lock(&PAGER).add(core);
    }
}

fn round(core: &Core) -> Option<Instant> {
    if core.is_dead() {
        return None;
    }
    if core.paging_due().is_some_and(|due| due <= Instant::now()) {
        core.page();
    }
    core.paging_due()
}
