//! Rounds of page sharing for the domains of a fleet, on a thread of its own.

use std::time::{Duration, Instant};

use crate::run::rounds::Rounds;
use crate::run::state::Core;

/// How long at most until it is seen that a domain is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long until the next look at one that somebody freezes just now.
const FREEZES: Duration = Duration::from_millis(20);

/// Without a domain.
pub(crate) const fn sharer() -> Rounds {
    Rounds::new("sharer", LOOK_AGAIN, round)
}

fn round(core: &Core) -> Option<Instant> {
    if core.share_due().is_some_and(|due| due <= Instant::now()) {
        core.share_round();
    }
    Some(core.share_due().unwrap_or_else(|| Instant::now() + FREEZES))
}
