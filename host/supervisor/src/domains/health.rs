//! Health checks: a program run in the domain now and then, whose exit code tells.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doppel_api::{EventKind, HealthCheck, HealthState};

use crate::core::Core;
use crate::domains::run_exec::Program;
use crate::domains::spec;
use crate::domains::{Entry, is_live};
use crate::keeper::protocol::{ExecCommand, KeeperCommand};
use crate::locked;

fn seconds(text: f64) -> Duration {
    Duration::try_from_secs_f64(text).unwrap_or_default()
}

impl Core {
    /// Looks after a domain's health from now until this run of it ends.
    pub fn watch_health(self: &Arc<Self>, entry: &Arc<Entry>) {
        let (check, run) = {
            let row = locked(&entry.row);
            (row.config.health.clone(), row.run)
        };
        let Some(check) = check else { return };
        locked(&entry.live).health = Some(HealthState::Starting);
        let (core, entry) = (Arc::downgrade(self), Arc::downgrade(entry));
        tokio::spawn(async move {
            let begun = Instant::now();
            let mut failures = 0;
            loop {
                tokio::time::sleep(seconds(check.interval_seconds)).await;
                let (Some(core), Some(entry)) = (core.upgrade(), entry.upgrade()) else { return };
                let (state, now) = {
                    let row = locked(&entry.row);
                    (row.state, row.run)
                };
                if now != run || !is_live(state) {
                    return;
                }
                if state == doppel_api::DomainState::Paused {
                    continue;
                }
                let well = core.is_well(&entry, &check).await;
                let early = begun.elapsed() < seconds(check.start_period_seconds);
                failures = if well { 0 } else { failures + u32::from(!early) };
                let next = match (well, failures >= check.retries) {
                    (true, _) => Some(HealthState::Healthy),
                    (false, true) => Some(HealthState::Unhealthy),
                    (false, false) => None,
                };
                if let Some(next) = next
                    && locked(&entry.live).health.replace(next) != Some(next)
                {
                    let health = if next == HealthState::Healthy { "healthy" } else { "unhealthy" };
                    core.event(EventKind::Health, &entry, &[("health", health.into())]);
                }
            }
        });
    }

    async fn is_well(&self, entry: &Arc<Entry>, check: &HealthCheck) -> bool {
        let program = Program { argv: check.command.clone(), discard: true, ..Program::default() };
        let Ok(exec) = self.run_in(entry, program).await else { return false };
        let ended = tokio::time::timeout(seconds(check.timeout_seconds), exec.ended()).await;
        if ended.is_err() {
            let ask = ExecCommand::Signal { signal: spec::KILL };
            // One that has just ended is what is wanted.
            let _ = exec.keeper.ask(KeeperCommand::ToExec { exec: exec.id.clone(), command: ask }).await;
        }
        self.release(&exec).await;
        matches!(ended, Ok((0, None)))
    }
}
