//! Memory of domains is held while they run, and looked at when they have ended unheard.

use std::sync::Arc;

use crate::core::Core;
use crate::domains::Entry;
use crate::keeper::protocol::Exit;
use crate::locked;

impl Core {
    /// Holds the memory of a domain that runs.
    pub fn hold(&self, entry: &Entry, run: u64) {
        let (pid, network) = {
            let live = locked(&entry.live);
            (live.pid, live.network.is_some())
        };
        let keeper = locked(&entry.row).keeper;
        if let Some((pid, keeper)) = pid.zip(keeper) {
            self.held.take(keeper, &entry.id, run, pid, network);
        }
        // Its end may have been heard before.
        if locked(&entry.row).ended_run >= run {
            self.held.forget(&entry.id, run);
        }
    }

    /// A domain has ended, and those who follow it have not heard from its keeper what it printed last: they do before
    /// they hear of its end.
    pub fn ended_unheard(self: &Arc<Self>, keeper: Option<u64>, entry: &Arc<Entry>, exit: Exit) {
        let Some(last) = locked(&entry.live).followers.hold() else { return self.ended(keeper, exit) };
        let (core, entry) = (self.clone(), entry.clone());
        tokio::spawn(async move {
            let found = core.printed_since(&entry, last).await;
            locked(&entry.live).followers.go_on(&found);
            core.ended(keeper, exit);
        });
    }
}
