//! What becomes of domains without anybody asking: they end, are started again, run out of time, are found again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use doppel_api::{DomainState, EventKind, RestartPolicy, WakeReason};

use crate::core::Core;
use crate::domains::network;
use crate::domains::{Ending, Entry, Row, add_usage, is_live};
use crate::keeper::config::read_exit;
use crate::keeper::protocol::{Exit, KeeperCommand, Kept, Notification};
use crate::residency::admission::Patience;
use crate::residency::figures::word;
use crate::state::Table;
use crate::time::seconds_now;
use crate::{locked, time};

/// How long a removal that cannot be written down waits for the next try.
const AGAIN: Duration = Duration::from_secs(1);
/// First and longest pause before a domain is started again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Who has run for so long begins with the first pause again.
const LONG_RUN: Duration = Duration::from_secs(10);
/// Exit code of a domain that was lost.
const LOST: u8 = 137;
/// How often what running domains use is counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// Most domains counted in a second.
const COUNTS: usize = 200;

/// Whether its policy starts a domain again that has just ended.
fn wants_restart(row: &Row, exit_code: u8) -> bool {
    if row.stopped {
        return false;
    }
    match row.config.restart {
        RestartPolicy::No => false,
        RestartPolicy::Always | RestartPolicy::UnlessStopped => true,
        RestartPolicy::OnFailure { max_retries } => {
            exit_code != 0 && (max_retries == 0 || row.failures < max_retries)
        }
    }
}

/// The pause before the n-th start in a row, from 0 on.
fn pause_before(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE)
}

impl Core {
    /// Something happened in a keeper.
    pub fn news(self: &Arc<Self>, keeper: u64, news: Notification) {
        match news {
            Notification::Ended(exit) => {
                if let Some(exit) = self.unless_it_begins(keeper, exit) {
                    self.ended(Some(keeper), *exit);
                }
            }
            Notification::Started { id, run, pid, at, network } => {
                if let Ok(entry) = self.find(&id)
                    && locked(&entry.row).run == run
                {
                    self.started(&entry, run, Some(pid), at, network);
                }
            }
            Notification::Printed { id, line } => {
                if let Ok(entry) = self.find(&id) {
                    locked(&entry.live).followers.give(&line);
                }
            }
            Notification::Lost { id, bytes } => {
                if let Ok(entry) = self.find(&id) {
                    locked(&entry.live).followers.lost(bytes);
                }
            }
            Notification::Firewall { id, line } => {
                if let Ok(entry) = self.find(&id) {
                    self.event(EventKind::Firewall, &entry, &network::attributes(&line));
                }
            }
            // Comes with its bytes, by another way.
            Notification::ExecPrinted { .. } => {}
            Notification::ExecEnded { exec, code, reason } => self.exec_ended(&exec, code, reason),
            Notification::Called { id } => {
                if let Ok(entry) = self.find(&id) {
                    self.wake_by_itself(entry, WakeReason::Network);
                }
            }
            Notification::FrozeItself { id, failed } => {
                let Ok(entry) = self.find(&id) else { return };
                let frozen = locked(&entry.row).config.freeze_as.clone().unwrap_or_default();
                match failed {
                    None => {
                        self.event(EventKind::Freeze, &entry, &[("frozen", frozen.clone())]);
                        let core = self.clone();
                        tokio::spawn(async move { core.note_origin(&entry, &frozen, false).await });
                    }
                    Some(why) => tracing::warn!("domain {} cannot freeze itself: {why}", entry.name()),
                }
            }
        }
    }

    /// Tells a keeper that the end of a run is written down. Once it has answered it writes nothing of the run any more.
    pub async fn acknowledge(&self, keeper: Option<u64>, id: &str, run: u64) {
        match self.keepers.get(keeper) {
            // One that has died has nothing to forget; one that does not answer will end.
            Some(keeper) => drop(keeper.ask(KeeperCommand::Ack { ended: vec![(id.to_owned(), run)] }).await),
            None => self.forget_exit(id),
        }
    }

    /// Without a keeper nobody else removes what it has written down.
    fn forget_exit(&self, id: &str) {
        let file = crate::keeper::config::exit_file(&self.store, id);
        match std::fs::remove_file(&file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {e}", file.display());
            }
            _ => {}
        }
    }

    /// Keeps the end of a run whose start was answered a moment ago: whoever asked for that notes it first, so that everybody
    /// hears of a start before its end.
    fn unless_it_begins(&self, keeper: u64, exit: Box<Exit>) -> Option<Box<Exit>> {
        let Ok(entry) = self.find(&exit.id) else { return Some(exit) };
        let run = locked(&entry.row).run;
        let mut live = locked(&entry.live);
        if !live.launching || run != exit.run {
            return Some(exit);
        }
        live.early_end = Some((keeper, exit));
        None
    }

    /// Whoever had it started has noted that: its end, if it has been told meanwhile, is noted now.
    pub(super) fn launched(self: &Arc<Self>, entry: &Entry) {
        let early = {
            let mut live = locked(&entry.live);
            live.launching = false;
            live.early_end.take()
        };
        if let Some((keeper, exit)) = early {
            self.ended(Some(keeper), *exit);
        }
    }

    /// A run of a domain has ended, says its keeper, if that is still there.
    pub fn ended(self: &Arc<Self>, keeper: Option<u64>, exit: Exit) {
        self.held.forget(&exit.id, exit.run);
        let Ok(entry) = self.find(&exit.id) else {
            // Its creation was never completed, or it has been removed.
            self.keepers.left(keeper, &exit.id);
            let core = self.clone();
            tokio::spawn(async move {
                core.acknowledge(keeper, &exit.id, exit.run).await;
                core.remove_dir(&core.domain_dir(&exit.id));
            });
            return;
        };
        let (run, id) = (exit.run, exit.id.clone());
        let Some(next) = self.note_end(&entry, &exit) else {
            let core = self.clone();
            tokio::spawn(async move { core.acknowledge(keeper, &id, run).await });
            return;
        };
        self.leave_memory(&entry);
        if !self.keeps_place(keeper, &entry) {
            self.keepers.left(keeper, &id);
        }
        self.execs_over(&entry, exit.run);
        let core = self.clone();
        if matches!(next, Next::Remove) {
            self.tell_end(&entry, &exit);
            tokio::spawn(async move { core.remove_at_its_end(&entry, keeper, run).await });
            return;
        }
        let saved = self.save_unhurried(&entry);
        self.tell_end(&entry, &exit);
        tokio::spawn(async move {
            // Forgotten by the keeper only when it is durable here.
            match saved.await {
                Ok(()) => {
                    core.acknowledge(keeper, &id, run).await;
                    let mut live = locked(&entry.live);
                    live.forgotten_run = live.forgotten_run.max(run);
                }
                Err(problem) => {
                    tracing::error!("the end of domain {id} is not written down yet: {problem}");
                    core.save_soon(&entry);
                }
            }
            if let Next::Restart(pause) = next {
                core.restart_after(&entry, run, pause).await;
            }
        });
    }

    /// Removes a domain that goes when it ends. Whoever waits for that need not wait for the disk: should this process die
    /// before the row's removal is durable, its successor hears of the end from the keeper, which has not been told to
    /// forget it yet, or finds it written down, and removes it again.
    async fn remove_at_its_end(self: &Arc<Self>, entry: &Arc<Entry>, keeper: Option<u64>, run: u64) {
        let turn = entry.turn.lock().await;
        if is_live(entry.state()) || self.check_there(entry).is_err() {
            // Whoever had the turn before started it again, or removed it.
            drop(turn);
            if let Err(problem) = self.save_unhurried(entry).await {
                tracing::error!("the end of domain {} is not written down yet: {problem}", entry.id);
                return self.save_soon(entry);
            }
            return self.acknowledge(keeper, &entry.id, run).await;
        }
        // In this order: see `Core::save_soon`.
        locked(&self.domains).leave(entry);
        let gone = self.state.remove_unhurried(Table::Domains, &entry.id);
        self.tell_removed(entry);
        drop(turn);
        self.release_asleep(entry).await;
        let mut written = gone.await;
        while let Err(problem) = written {
            tracing::error!("the removal of domain {} is not written down yet: {problem}", entry.id);
            tokio::time::sleep(AGAIN).await;
            written = self.state.remove_unhurried(Table::Domains, &entry.id).await;
        }
        self.acknowledge(keeper, &entry.id, run).await;
        // Its keeper writes nothing into it any more.
        self.remove_dir(&self.domain_dir(&entry.id));
    }

    /// Enters an end into the row; none if it is there already.
    fn note_end(self: &Arc<Self>, entry: &Arc<Entry>, exit: &Exit) -> Option<Next> {
        let (next, discard) = {
            let mut row = locked(&entry.row);
            if exit.run < row.run || row.ended_run >= exit.run {
                return None;
            }
            row.run = exit.run;
            row.ended_run = exit.run;
            add_usage(&mut row, exit);
            let mut next = Next::Nothing;
            let mut discard = None;
            if exit.asleep && row.asleep.is_some() {
                row.state = DomainState::Hibernated;
            } else {
                (row.deadline, row.slept) = (None, None);
                row.exit = Some(exit.info());
                row.state = if exit.lost { DomainState::Dead } else { DomainState::Exited };
                if exit.reason.is_none() {
                    // What it woke from is of no more use.
                    discard = row.asleep.take();
                }
                let long = row.started_at.as_deref().and_then(time::parse).zip(time::parse(&exit.at));
                if long.is_some_and(|(from, to)| to.duration_since(from).is_ok_and(|d| d >= LONG_RUN)) {
                    row.failures = 0;
                }
                if wants_restart(&row, exit.code) {
                    row.state = DomainState::Restarting;
                    next = Next::Restart(pause_before(row.failures));
                    row.failures += 1;
                } else if row.config.auto_remove {
                    next = Next::Remove;
                }
            }
            (next, discard)
        };
        self.discard_asleep(discard);
        Some(next)
    }

    /// Tells everybody of an end.
    fn tell_end(&self, entry: &Entry, exit: &Exit) {
        if exit.out_of_memory {
            self.event(EventKind::Oom, entry, &[]);
        }
        let asleep = entry.state() == DomainState::Hibernated;
        if asleep {
            let slept = locked(&entry.row).slept.clone().unwrap_or_default().describe();
            let attributes = [("by", slept.by), ("reason", word(slept.reason))];
            self.event(EventKind::Hibernate, entry, &attributes);
        } else {
            let mut attributes = vec![("exit_code", exit.code.to_string())];
            attributes.extend(exit.reason.clone().map(|r| ("reason", r)));
            self.event(EventKind::Die, entry, &attributes);
        }
        locked(&entry.live).pid = None;
        entry.ending.send_replace(Ending { run: exit.run, exit: exit.info(), asleep, removed: false });
    }

    /// Removes a domain that was to go when it ended.
    async fn remove_ended(self: &Arc<Self>, entry: &Arc<Entry>) {
        let _turn = entry.turn.lock().await;
        if is_live(entry.state()) || self.check_there(entry).is_err() {
            return;
        }
        if let Err(problem) = self.erase(entry).await {
            tracing::error!("domain {} cannot be removed: {problem}", entry.name());
        }
    }

    /// Starts a domain again after a pause, unless something has changed.
    async fn restart_after(self: &Arc<Self>, entry: &Arc<Entry>, run: u64, pause: Duration) {
        let mut pause = pause;
        loop {
            tokio::time::sleep(pause).await;
            let _turn = entry.turn.lock().await;
            {
                let mut row = locked(&entry.row);
                if row.state != DomainState::Restarting || row.ended_run < run {
                    return;
                }
                row.restarts += 1;
            }
            if self.check_there(entry).is_err() {
                return;
            }
            self.event(EventKind::Restart, entry, &[]);
            let Err(problem) = self.launch(entry, false, Patience::Endless).await else { return };
            tracing::warn!("domain {} cannot be started again: {problem}", entry.name());
            let mut row = locked(&entry.row);
            if !wants_restart(&row, 1) {
                return;
            }
            row.state = DomainState::Restarting;
            pause = pause_before(row.failures);
            row.failures += 1;
        }
    }

    /// There is a connection to a keeper: what it says of its domains is true. `first`: since this supervisor's start.
    pub fn connected(self: &Arc<Self>, keeper: u64, kept: Vec<Kept>, first: bool) {
        let mut known: HashMap<String, Kept> = kept.into_iter().map(|k| (k.id.clone(), k)).collect();
        for entry in self.all() {
            let (run, its) = {
                let row = locked(&entry.row);
                (row.run, row.keeper)
            };
            if its != Some(keeper) {
                continue;
            }
            if self.keeps_place(its, &entry) {
                self.tell_rules(&entry);
            }
            match known.remove(&entry.id) {
                Some(Kept { exit: Some(exit), .. }) => self.ended_unheard(Some(keeper), &entry, exit),
                Some(kept) if kept.run >= run => self.adopt(keeper, &entry, kept, first),
                Some(kept) => {
                    tracing::error!("domain {}: the keeper is in run {} of {run}", entry.id, kept.run)
                }
                // Its start is asked for yet, or again.
                None if locked(&entry.live).launching => {}
                None => self.gone(&entry),
            }
        }
        for (id, kept) in known {
            match kept.exit {
                Some(exit) => self.ended(Some(keeper), exit),
                None => {
                    tracing::warn!("domain {id} runs although nobody knows it; it is killed");
                    self.keepers.holds(keeper, &id, Vec::new());
                    let link = self.keepers.get(Some(keeper));
                    // One that has ended meanwhile is what is wanted.
                    tokio::spawn(async move { link?.ask(KeeperCommand::Kill { id, grace: 0 }).await.ok() });
                }
            }
        }
    }

    /// Has a domain that hibernates keep its place with the keeper that has its connections and ports; whether it does.
    fn keeps_place(&self, keeper: Option<u64>, entry: &Entry) -> bool {
        let (asleep, networks) = {
            let row = locked(&entry.row);
            (row.state == DomainState::Hibernated && row.has_network(), row.networks())
        };
        if let Some(keeper) = keeper.filter(|_| asleep) {
            self.keepers.holds(keeper, &entry.id, networks);
        }
        asleep
    }

    /// Takes on a domain that runs.
    fn adopt(self: &Arc<Self>, keeper: u64, entry: &Arc<Entry>, kept: Kept, first: bool) {
        let networks = locked(&entry.row).networks();
        self.keepers.holds(keeper, &entry.id, networks);
        // Those who look after this run of it do so still.
        let watched = !first && is_live(entry.state()) && locked(&entry.row).run == kept.run;
        {
            let mut row = locked(&entry.row);
            row.run = kept.run;
            row.state = if kept.paused { DomainState::Paused } else { DomainState::Running };
            row.started_at = kept.started_at.or(row.started_at.take());
        }
        {
            let mut live = locked(&entry.live);
            live.pid = kept.pid;
            live.network = kept.network.map(network::attached);
        }
        self.hold(entry, kept.run);
        self.save_soon(entry);
        if !watched {
            let level = locked(&entry.row).restless;
            self.reside(entry, level, level > 0, self.wanted(entry, false));
            self.watch_deadline(entry);
            self.watch_health(entry);
        }
        self.event(EventKind::Adopt, entry, &[]);
        self.tell_rules(entry);
        self.follow_again(entry);
    }

    /// A domain's keeper does not know it, or is no more.
    pub fn gone(self: &Arc<Self>, entry: &Arc<Entry>) {
        let (state, run, ended_run, keeper) = {
            let row = locked(&entry.row);
            (row.state, row.run, row.ended_run, row.keeper)
        };
        let exit = read_exit(&self.store, &entry.id);
        if let Some(exit) = exit
            && exit.run >= run
        {
            // Removed when it is written down, or now if it has been before.
            self.ended_unheard(keeper, entry, exit);
        } else if is_live(state) {
            let lost = Exit {
                id: entry.id.clone(),
                run,
                code: LOST,
                reason: Some("lost: its keeper ended, and with it all its processes".into()),
                at: time::now(),
                lost: true,
                ..Exit::default()
            };
            self.ended(keeper, lost);
        } else if run > ended_run {
            // Its start was intended and never happened.
            locked(&entry.row).ended_run = run;
            self.save_soon(entry);
        }
    }

    /// Starts what is to run when the supervisor starts.
    pub fn start_by_policy(self: &Arc<Self>, entry: &Arc<Entry>) {
        let wanted = {
            let mut row = locked(&entry.row);
            let ended = matches!(row.state, DomainState::Exited | DomainState::Dead);
            let wanted = match (row.state, row.config.restart) {
                (DomainState::Restarting, _) => true,
                (_, RestartPolicy::Always) => ended,
                (_, RestartPolicy::UnlessStopped) => ended && !row.stopped,
                _ => false,
            };
            if wanted {
                row.state = DomainState::Restarting;
            } else if ended && row.config.auto_remove {
                let (core, entry) = (self.clone(), entry.clone());
                tokio::spawn(async move { core.remove_ended(&entry).await });
            }
            wanted.then_some(row.ended_run)
        };
        if let Some(run) = wanted {
            let (core, entry) = (self.clone(), entry.clone());
            tokio::spawn(async move { core.restart_after(&entry, run, FIRST_PAUSE).await });
        }
    }

    /// Stops a domain when its time is over.
    pub fn watch_deadline(self: &Arc<Self>, entry: &Arc<Entry>) {
        let Some(deadline) = locked(&entry.row).deadline else { return };
        let (core, entry) = (Arc::downgrade(self), Arc::downgrade(entry));
        tokio::spawn(async move {
            let left = Duration::try_from_secs_f64(deadline - seconds_now()).unwrap_or_default();
            tokio::time::sleep(left).await;
            let (Some(core), Some(entry)) = (core.upgrade(), entry.upgrade()) else { return };
            // A new deadline has a watch of its own.
            let due = locked(&entry.row).deadline == Some(deadline);
            if due && is_live(entry.state()) {
                tracing::info!("domain {}: its time is over", entry.name());
                if let Err(problem) = core.stop(entry, doppel_api::StopOptions::default()).await {
                    tracing::warn!("{problem}");
                }
            }
        });
    }

    /// Counts what running domains use, for page-seconds, as long as the supervisor lives.
    pub fn tend(self: &Arc<Self>) {
        let core = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(COUNT_EVERY).await;
                let Some(core) = core.upgrade() else { return };
                let mut counted = 0;
                for (entry, _) in core.gate.residents() {
                    // One that has just ended was counted at its end.
                    counted += usize::from(core.count_in_turn(&entry).await);
                    if counted == COUNTS {
                        counted = 0;
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
                core.keepers.let_idle_go();
                core.idempotency.forget_old(&core.state);
                core.execs.forget_old();
            }
        });
    }
}

/// What is done after a domain's end.
enum Next {
    Nothing,
    Remove,
    Restart(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses() {
        let ms: Vec<u128> = (0..12).map(|n| pause_before(n).as_millis()).collect();
        assert_eq!(ms, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]);
        assert_eq!(pause_before(u32::MAX), LONGEST_PAUSE);
    }
}
