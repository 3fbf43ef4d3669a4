//! What people do with domains: start, stop, kill, pause, rename, update, remove, wait.
//!
//! Whoever changes a state holds the domain's `turn`. Killing and waiting do not, so that they work on a domain that is
//! being stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doppel_api::{self as api, Code, DomainState, EventKind, ExitInfo, Problem, Validate, WakeReason};
use doppel_spec::Program;

use crate::core::Core;
use crate::domains::create::admit;
use crate::domains::volumes::nodes_beside;
use crate::domains::{Ending, Entry, Origin, Row, is_live};
use crate::domains::{network, spec};
use crate::keeper::protocol::{Boot, KeeperCommand, Reply, Resume, Spec};
use crate::keepers::Homeless;
use crate::residency::admission::Patience;
use crate::state::Table;
use crate::telemetry::stages::What;
use crate::time::seconds_now;
use crate::{locked, time};

/// How long a killed domain may take to end.
const LAST_PATIENCE: Duration = Duration::from_secs(20);
/// Seconds that a domain with a layer has to write it before it is killed: when somebody kills it, and when somebody stops it.
const KILL_GRACE: u32 = 2;
const STOP_GRACE: u32 = 10;
/// Exit code of a domain that could not be started.
const NOT_STARTED: u8 = 125;

/// Seconds that a domain which is removed has to write its layer: one of its own goes with it.
fn last_grace(row: &Row) -> u32 {
    if row.config.files.layer.is_some() { KILL_GRACE } else { 0 }
}

fn wrong_state(entry: &Entry, why: &str) -> Problem {
    Problem::new(Code::WrongState, format!("domain {} {why}", entry.name()))
}

impl Core {
    /// Starts a domain.
    pub async fn start(self: Arc<Self>, entry: Arc<Entry>) -> Result<api::Domain, Problem> {
        let turn = entry.turn.lock().await;
        self.check_there(&entry)?;
        match entry.state() {
            DomainState::Running => return Err(wrong_state(&entry, "runs already")),
            DomainState::Paused => return Err(wrong_state(&entry, "is paused; unpause it")),
            DomainState::Hibernated => {
                drop(turn);
                return self.wake(entry, WakeReason::Request).await;
            }
            _ => {}
        }
        locked(&entry.row).failures = 0;
        self.launch(&entry, false, Patience::Asked).await?;
        Ok(entry.describe(&self.volumes))
    }

    /// The turn may have come after the domain's removal.
    pub fn check_there(&self, entry: &Entry) -> Result<(), Problem> {
        if locked(&self.domains).by_id.contains_key(&entry.id) {
            return Ok(());
        }
        Err(Problem::new(Code::DomainNotFound, format!("domain {} has been removed", entry.name())))
    }

    /// Has the keeper start it, or wake it; whoever calls has its turn.
    pub async fn launch(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        wake: bool,
        patience: Patience,
    ) -> Result<Vec<String>, Problem> {
        let _memory = self.let_in(entry, wake, patience).await?;
        let spec = self.spec(entry, wake)?;
        let (owner, networks, last) = {
            let row = locked(&entry.row);
            (row.owner.clone(), row.networks(), row.keeper)
        };
        let homeless = Homeless { id: &entry.id, last, owner: &owner, networks: &networks };
        let (number, keeper) = self.keepers.place(homeless)?;
        locked(&entry.live).launching = true;
        let run = {
            let mut row = locked(&entry.row);
            row.keeper = Some(number);
            row.run += 1;
            row.stopped = false;
            row.run
        };
        self.save_soon(entry);
        let what = match &spec {
            Spec::Boot(_) => What::Boot,
            Spec::Resume(_) if wake => What::Wake,
            Spec::Resume(_) => What::Clone,
        };
        let begun = Instant::now();
        let answer = {
            let _tap = entry.tap.lock().await;
            let follow = locked(&entry.live).followers.any();
            keeper.ask(KeeperCommand::Start { id: entry.id.clone(), run, follow, spec: Box::new(spec) }).await
        };
        if answer.is_err() {
            // What its keeper has told of it says more than that it did not start.
            self.launched(entry);
        }
        let result = match answer {
            Ok(Reply::Started { pid, at, mut warnings, stages, network }) => {
                warnings.extend(network::left_out(&locked(&entry.row).config.network, network.as_deref()));
                self.stages.note_us(what, stages);
                self.stages.note(what, "all", begun.elapsed());
                self.started(entry, run, Some(pid), at, network.map(|endpoint| *endpoint));
                if !wake {
                    self.event(EventKind::Start, entry, &[]);
                }
                Ok(warnings)
            }
            Ok(_) => Err(Problem::new(Code::Internal, "the keeper answered something else")),
            Err(problem) => {
                if !wake {
                    self.keepers.left(Some(number), &entry.id);
                }
                let mut row = locked(&entry.row);
                if row.ended_run < run {
                    row.ended_run = run;
                    row.state = if wake { DomainState::Hibernated } else { DomainState::Dead };
                    let exit = ExitInfo {
                        exit_code: NOT_STARTED,
                        out_of_memory: false,
                        reason: Some(format!("could not be started: {problem}")),
                        at: time::now(),
                    };
                    row.exit = Some(exit.clone());
                    entry.ending.send_replace(Ending { run, exit, asleep: wake, removed: false });
                }
                drop(row);
                self.save_soon(entry);
                Err(problem)
            }
        };
        self.launched(entry);
        result
    }

    /// Notes that a run of a domain has begun.
    pub fn started(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        run: u64,
        pid: Option<i32>,
        at: String,
        network: Option<doppel_net::Endpoint>,
    ) {
        let bytes = self.wanted(entry, true);
        let begins = {
            let mut row = locked(&entry.row);
            // It may have ended before this was heard.
            let goes_on = row.ended_run < run;
            if goes_on {
                row.state = DomainState::Running;
            }
            let woke = row.slept.take_if(|_| goes_on).is_some();
            let seconds = row.config.timeout_seconds;
            // One that has slept has as long as it had before.
            if !woke || row.deadline.is_none() {
                row.deadline = seconds.map(|s| seconds_now() + f64::from(s));
            }
            row.started_at = Some(at);
            goes_on.then_some((row.restless, woke))
        };
        if let Some((level, woke)) = begins {
            self.reside(entry, level, woke, bytes);
        }
        {
            let mut live = locked(&entry.live);
            live.pid = pid;
            live.network = network.map(network::attached);
        }
        self.hold(entry, run);
        self.save_soon(entry);
        self.watch_deadline(entry);
        self.watch_health(entry);
    }

    /// What the keeper is to start.
    fn spec(&self, entry: &Entry, wake: bool) -> Result<Spec, Problem> {
        let row = entry.row();
        let config = &row.config;
        let mut network = network::endpoint_spec(&config.network)?;
        if let Some(network) = &mut network {
            network.name.clone_from(&row.name);
            network.internal = self.is_internal(&row.owner, &config.network);
            network.set_networks(self.placed(entry, &config.network));
            network.quota = self.quotas.of_memory(config.resources.memory_bytes);
            network.rules = self.with_hosts_rules(std::mem::take(&mut network.rules))?;
        }
        if wake {
            let name = row.asleep.as_deref().ok_or_else(|| wrong_state(entry, "does not sleep"))?;
            let frozen =
                self.frozen.path(name).map_err(|e| Problem::new(Code::FrozenNotFound, e.to_string()))?;
            let (spec, layer) = (config.clone(), self.layer_dir(&row)?);
            let (sources, nodes) = (self.sources_of(config)?, nodes_beside(config, &frozen)?);
            return Ok(Spec::Resume(Resume {
                frozen,
                wake,
                layer,
                sources,
                nodes,
                disks: self.disk_dirs(&config.files)?,
                network,
                spec,
                ..Resume::default()
            }));
        }
        let freeze_to = match &config.freeze_as {
            Some(name) => Some(
                self.frozen
                    .vacant(name, doppel_freezer::Medium::Disk)
                    .map_err(|e| Problem::new(Code::NameInUse, e.to_string()))?,
            ),
            None => None,
        };
        let program = Program {
            env: spec::environment(&config.env, config.tty, &row.user.home),
            cwd: config.working_dir.clone().unwrap_or_else(|| "/".into()),
            ..row.user.program(config.command.clone())
        };
        let spec = config.clone();
        Ok(match row.origin {
            Origin::Boot => Spec::Boot(Boot {
                image: row.image.clone(),
                program,
                sources: self.sources_of(config)?,
                layer: self.layer_dir(&row)?,
                disks: self.disk_dirs(&config.files)?,
                freeze_to,
                network,
                spare_seconds: self.spare_seconds,
                spec,
            }),
            Origin::Clone { frozen: name, path: frozen, index, args, .. } => Spec::Resume(Resume {
                // A temporary one is to go as soon as it can.
                spare_seconds: if self.origins.is_temporary(&name) { 0 } else { self.spare_seconds },
                layer: self.layer_of_clone(entry, &frozen)?,
                disks: self.fresh_disks(&config.files)?,
                sources: self.sources_of(config)?,
                nodes: config.files.are_served().then(|| self.nodes_of_clone(&row.id)),
                frozen,
                index,
                program,
                args,
                freeze_to,
                network,
                spec,
                ..Resume::default()
            }),
        })
    }

    /// Stops a domain: asks, then kills. One that does not run stays as it is.
    pub async fn stop(
        self: Arc<Self>,
        entry: Arc<Entry>,
        how: api::StopOptions,
    ) -> Result<api::Domain, Problem> {
        let signal = how.signal.as_deref().map(spec::signal).transpose()?;
        self.stop_waiting(&entry);
        // It ends as one that runs does.
        let _busy = self.awake(&entry).await?;
        let _turn = entry.turn.lock().await;
        self.check_there(&entry)?;
        self.bring_down(&entry, signal, how.timeout_seconds).await?;
        Ok(entry.describe(&self.volumes))
    }

    /// Stops it; whoever calls has its turn.
    async fn bring_down(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        signal: Option<i32>,
        timeout: Option<u32>,
    ) -> Result<(), Problem> {
        let (state, run, own_signal, own_timeout) = {
            let mut row = locked(&entry.row);
            row.is_to_stop();
            (row.state, row.run, row.config.stop_signal.clone(), row.config.stop_timeout_seconds)
        };
        self.save_soon(entry);
        if !is_live(state) {
            return Ok(());
        }
        self.event(EventKind::Stop, entry, &[]);
        let id = || entry.id.clone();
        if state == DomainState::Paused {
            self.ask_unless_gone(entry, KeeperCommand::Unpause { id: id() }).await?;
        }
        let signal = match signal {
            Some(signal) => signal,
            None => spec::signal(own_signal.as_deref().unwrap_or("SIGTERM"))?,
        };
        let timeout = timeout.or(own_timeout).unwrap_or(10);
        if signal != spec::KILL && timeout > 0 {
            self.ask_unless_gone(entry, KeeperCommand::Signal { id: id(), signal }).await?;
            let patience = Duration::from_secs(timeout.into());
            if tokio::time::timeout(patience, ended(entry, run)).await.is_ok() {
                return Ok(());
            }
        }
        self.kill_after(entry, run, STOP_GRACE).await
    }

    pub async fn kill_and_wait(&self, entry: &Entry, run: u64) -> Result<(), Problem> {
        self.kill_after(entry, run, KILL_GRACE).await
    }

    /// The same with so many seconds to write its layer in.
    pub async fn kill_after(&self, entry: &Entry, run: u64, grace: u32) -> Result<(), Problem> {
        self.ask_unless_gone(entry, KeeperCommand::Kill { id: entry.id.clone(), grace }).await?;
        match tokio::time::timeout(LAST_PATIENCE, ended(entry, run)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Problem::new(Code::Timeout, format!("domain {} does not end", entry.name()))),
        }
    }

    /// Asks the keeper; that the domain has ended meanwhile is no failure, and whoever knows of its end waits for no answer:
    /// the keeper may still be writing that end down.
    pub async fn ask_unless_gone(&self, entry: &Entry, ask: KeeperCommand) -> Result<(), Problem> {
        let run = locked(&entry.row).run;
        // One that sleeps has ended, and something of it is kept all the same.
        let runs = entry.ending.borrow().run < run;
        let ends = async {
            match runs {
                true => ended(entry, run).await,
                false => std::future::pending().await,
            }
        };
        let answer = tokio::select! {
            answer = self.ask(entry, ask) => answer,
            () = ends => return Ok(()),
        };
        match answer {
            Err(problem) if problem.code != Code::WrongState => Err(problem),
            _ => Ok(()),
        }
    }

    pub async fn restart(
        self: Arc<Self>,
        entry: Arc<Entry>,
        how: api::StopOptions,
    ) -> Result<api::Domain, Problem> {
        let signal = how.signal.as_deref().map(spec::signal).transpose()?;
        self.stop_waiting(&entry);
        let _busy = self.awake(&entry).await?;
        let _turn = entry.turn.lock().await;
        self.check_there(&entry)?;
        self.bring_down(&entry, signal, how.timeout_seconds).await?;
        self.event(EventKind::Restart, &entry, &[]);
        self.launch(&entry, false, Patience::Asked).await?;
        Ok(entry.describe(&self.volumes))
    }

    pub async fn kill(self: &Arc<Self>, entry: &Arc<Entry>, how: api::KillOptions) -> Result<(), Problem> {
        let signal = how.signal.as_deref().map_or(Ok(spec::KILL), spec::signal)?;
        let _busy = self.awake(entry).await?;
        if !is_live(entry.state()) {
            return Err(wrong_state(entry, "does not run"));
        }
        let id = entry.id.clone();
        let ask = if signal == spec::KILL {
            locked(&entry.row).stopped = true;
            KeeperCommand::Kill { id, grace: KILL_GRACE }
        } else {
            KeeperCommand::Signal { id, signal }
        };
        self.ask(entry, ask).await?;
        self.event(EventKind::Kill, entry, &[("signal", signal.to_string())]);
        Ok(())
    }

    pub async fn pause(self: Arc<Self>, entry: Arc<Entry>, pause: bool) -> Result<api::Domain, Problem> {
        let _turn = entry.turn.lock().await;
        let (wanted, next, kind) = if pause {
            (DomainState::Running, DomainState::Paused, EventKind::Pause)
        } else {
            (DomainState::Paused, DomainState::Running, EventKind::Unpause)
        };
        if entry.state() != wanted {
            return Err(wrong_state(&entry, if pause { "does not run" } else { "is not paused" }));
        }
        let id = entry.id.clone();
        self.ask(&entry, if pause { KeeperCommand::Pause { id } } else { KeeperCommand::Unpause { id } })
            .await?;
        {
            let mut row = locked(&entry.row);
            if row.state == wanted {
                row.state = next;
            }
        }
        self.save_soon(&entry);
        self.event(kind, &entry, &[]);
        Ok(entry.describe(&self.volumes))
    }

    pub async fn rename(self: Arc<Self>, entry: Arc<Entry>, to: api::Rename) -> Result<api::Domain, Problem> {
        let _turn = entry.turn.lock().await;
        self.check_there(&entry)?;
        let old = entry.name();
        {
            let mut domains = locked(&self.domains);
            if domains.names.get(&to.name).is_some_and(|id| *id != entry.id)
                || domains.by_id.contains_key(&to.name)
            {
                return Err(Problem::new(Code::NameInUse, format!("a domain named {:?} exists", to.name)));
            }
            rename_in(&mut domains, &entry, &old, &to.name);
        }
        if let Err(problem) = self.save(&entry).await {
            rename_in(&mut locked(&self.domains), &entry, &to.name, &old);
            return Err(problem);
        }
        if locked(&entry.row).config.network.kind == api::NetworkKind::Nat {
            // One that neither runs nor sleeps has none.
            let _ = self.ask(&entry, KeeperCommand::Name { id: entry.id.clone(), name: to.name }).await;
        }
        self.event(EventKind::Rename, &entry, &[("old_name", old)]);
        Ok(entry.describe(&self.volumes))
    }

    pub async fn update(
        self: Arc<Self>,
        entry: Arc<Entry>,
        to: api::UpdateDomain,
    ) -> Result<api::Domain, Problem> {
        let _turn = entry.turn.lock().await;
        self.check_there(&entry)?;
        let old = entry.row();
        spec::fits(old.config.kind, &to.resources)?;
        Self::check_residency(old.config.kind, &to.residency)?;
        let mut resources = spec::over(&to.resources, &old.config.resources)?;
        let (cpus, memory) = crate::domains::create::capacity();
        // What it has then is in the answer.
        let _ = api::validate::within_host(&mut resources, cpus, memory);
        resources.across()?;
        let mut network = old.config.network.clone();
        if let Some(to) = to.network {
            if !to.keeps_rules() {
                (network.rules, network.allow) = (to.rules.unwrap_or_default(), to.allow.unwrap_or_default());
            }
            network.rate = to.rate.unwrap_or(network.rate);
            network.weight = to.weight.or(network.weight);
            network.guarantee = to.guarantee.or(network.guarantee).filter(|rate| *rate > 0);
        }
        let rules = self.rules_of(&network)?;
        {
            let domains = locked(&self.domains);
            admit(&domains, &resources, Some(&entry.id))?;
            let mut row = locked(&entry.row);
            row.config.resources = resources.clone();
            row.config.network = network.clone();
            row.config.restart = to.restart.unwrap_or(row.config.restart);
            row.config.residency = to.residency.over(&row.config.residency);
            row.config.labels = to.labels.unwrap_or_else(|| row.config.labels.clone());
            if let Some(seconds) = to.timeout_seconds {
                row.config.timeout_seconds = (seconds > 0).then_some(seconds);
                row.deadline = (seconds > 0).then(|| seconds_now() + f64::from(seconds));
            }
        }
        let mut done = Ok(());
        if is_live(old.state) && resources != old.config.resources {
            let ask = KeeperCommand::Update { id: entry.id.clone(), limits: resources.clone() };
            done = self.ask_unless_gone(&entry, ask).await;
        }
        // One that is hibernated may still be called.
        let reached = is_live(old.state) || old.state == DomainState::Hibernated;
        if let (true, true, Some(rules)) = (done.is_ok(), reached, rules)
            && network != old.config.network
        {
            done = self.ask_unless_gone(&entry, KeeperCommand::Rules { id: entry.id.clone(), rules }).await;
        }
        if done.is_ok() {
            done = self.save(&entry).await;
        }
        if let Err(problem) = done {
            let mut row = locked(&entry.row);
            row.config = old.config;
            row.deadline = old.deadline;
            return Err(problem);
        }
        self.watch_deadline(&entry);
        self.watch_anew(&entry);
        self.event(EventKind::Update, &entry, &[]);
        Ok(entry.describe(&self.volumes))
    }

    pub async fn remove(self: Arc<Self>, entry: Arc<Entry>, how: api::RemoveOptions) -> Result<(), Problem> {
        let refusal = || wrong_state(&entry, "runs; stop it first, or remove it with force");
        self.stop_waiting(&entry);
        if is_live(entry.state()) {
            if !how.force {
                return Err(refusal());
            }
            // Before the turn: somebody may be waiting for its end.
            let grace = {
                let mut row = locked(&entry.row);
                row.stopped = true;
                last_grace(&row)
            };
            self.ask_unless_gone(&entry, KeeperCommand::Kill { id: entry.id.clone(), grace }).await?;
        }
        let _turn = entry.turn.lock().await;
        locked(&entry.live).drop_volumes = how.volumes;
        if self.check_there(&entry).is_err() {
            // Whoever had the turn before removed it: that is what was wanted.
            return Ok(());
        }
        if is_live(entry.state()) {
            if !how.force {
                return Err(refusal());
            }
            let (run, grace) = {
                let mut row = locked(&entry.row);
                row.stopped = true;
                (row.run, last_grace(&row))
            };
            self.kill_after(&entry, run, grace).await?;
        }
        self.erase(&entry).await
    }

    /// Removes a domain that does not run; whoever calls has its turn.
    pub async fn erase(&self, entry: &Arc<Entry>) -> Result<(), Problem> {
        // In this order: see `Core::save_soon`.
        locked(&self.domains).leave(entry);
        if let Err(problem) = self.state.remove(Table::Domains, &entry.id).await {
            locked(&self.domains).insert(entry.clone());
            return Err(problem);
        }
        self.release_asleep(entry).await;
        let (keeper, run) = {
            let row = locked(&entry.row);
            (row.keeper, row.ended_run)
        };
        let forgotten = locked(&entry.live).forgotten_run;
        if forgotten < run {
            // It may just be writing how the domain ended, into the directory that goes now.
            self.acknowledge(keeper, &entry.id, run).await;
        }
        self.keepers.left(keeper, &entry.id);
        self.remove_dir(&self.domain_dir(&entry.id));
        self.tell_removed(entry);
        Ok(())
    }

    /// Gives up what a domain that is removed would wake from.
    pub async fn release_asleep(&self, entry: &Entry) {
        let asleep = locked(&entry.row).asleep.take();
        if asleep.is_some() {
            // A keeper that does not answer has nothing of it, or will end.
            let _ = self.ask(entry, KeeperCommand::Release { id: entry.id.clone() }).await;
        }
        self.discard_asleep(asleep);
    }

    /// Forgets a domain that could not be written down; it does not run.
    pub fn forget(&self, entry: &Arc<Entry>) {
        locked(&self.domains).leave(entry);
        // What was to be written of it some time must not come after all.
        self.state.remove_soon(Table::Domains, &entry.id);
        self.keepers.left(locked(&entry.row).keeper, &entry.id);
        self.remove_dir(&self.domain_dir(&entry.id));
        self.tell_removed(entry);
    }

    /// Frees what a domain had, and says that it is removed.
    pub fn tell_removed(&self, entry: &Entry) {
        self.release_image(entry);
        self.release_volumes(entry);
        self.release_disks(entry);
        self.release_layer(entry);
        self.release_addresses(entry);
        locked(&self.domains).removed(entry);
        entry.ending.send_modify(|ending| ending.removed = true);
        self.event(EventKind::Remove, entry, &[]);
    }

    /// Waits until the run that it is in or that comes next has ended.
    pub async fn wait(&self, entry: Arc<Entry>) -> Result<api::Waited, Problem> {
        let mut ending = entry.ending.subscribe();
        let before = {
            let row = locked(&entry.row);
            if let (DomainState::Exited | DomainState::Dead, Some(exit)) = (row.state, &row.exit) {
                return Ok(api::Waited { exit: exit.clone() });
            }
            row.ended_run
        };
        // One that hibernates goes on.
        let done = ending.wait_for(|e| e.run > before && !e.asleep || e.removed).await;
        match done.as_deref() {
            Ok(e) if e.run > before && !e.asleep => Ok(api::Waited { exit: e.exit.clone() }),
            _ => Err(Problem::new(Code::DomainNotFound, format!("domain {} was removed", entry.name()))),
        }
    }

    /// Waits until a domain is gone with all that was its own.
    pub async fn wait_until_removed(&self, which: &str) -> Result<api::Waited, Problem> {
        let entry = locked(&self.domains).find_leaving(which)?;
        let mut ending = entry.ending.subscribe();
        // The sender lives as long as the entry.
        let _ = ending.wait_for(|e| e.removed).await;
        let exit = ending.borrow().exit.clone();
        Ok(api::Waited { exit })
    }

    pub async fn prune(self: Arc<Self>) -> Result<api::PruneReport, Problem> {
        let mut report = api::PruneReport::default();
        for entry in self.all() {
            let _turn = entry.turn.lock().await;
            if !matches!(entry.state(), DomainState::Exited | DomainState::Dead)
                || self.check_there(&entry).is_err()
            {
                continue;
            }
            let bytes = crate::keeper::log::disk_usage(&self.domain_dir(&entry.id));
            self.erase(&entry).await?;
            report.removed.push(entry.id.clone());
            report.freed_bytes += bytes;
        }
        Ok(report)
    }
}

/// Waits until this run of a domain has ended.
async fn ended(entry: &Entry, run: u64) {
    let mut ending = entry.ending.subscribe();
    // The sender lives as long as the entry.
    let _ = ending.wait_for(|e| e.run >= run).await;
}

fn rename_in(domains: &mut crate::domains::DomainTable, entry: &Entry, from: &str, to: &str) {
    domains.names.remove(from);
    domains.names.insert(to.to_owned(), entry.id.clone());
    let mut row = locked(&entry.row);
    row.name = to.to_owned();
    row.config.name = Some(to.to_owned());
}

impl Core {
    /// A domain's rules with those for all domains of this host before them.
    pub(crate) fn with_hosts_rules(&self, own: doppel_net::Rules) -> Result<doppel_net::Rules, Problem> {
        // They were checked when this supervisor began.
        self.quotas.before(own).map_err(|e| Problem::new(api::Code::Internal, format!("network.{e}")))
    }

    /// The rules that hold for a domain with this network; none without one.
    pub(crate) fn rules_of(&self, network: &api::Network) -> Result<Option<doppel_net::Rules>, Problem> {
        network::endpoint_spec(network)?.map(|wanted| self.with_hosts_rules(wanted.rules)).transpose()
    }

    /// Has a domain that goes on keep the rules of this host as they are now: an earlier supervisor may have had others. One that
    /// has these is not disturbed.
    pub(crate) fn tell_rules(self: &Arc<Self>, entry: &Arc<Entry>) {
        let network = locked(&entry.row).config.network.clone();
        let rules = match self.rules_of(&network) {
            Ok(Some(rules)) => rules,
            Ok(None) => return,
            Err(problem) => return tracing::error!("domain {}: its rules: {}", entry.id, problem.detail),
        };
        let (core, entry) = (self.clone(), entry.clone());
        tokio::spawn(async move {
            let ask = KeeperCommand::Rules { id: entry.id.clone(), rules };
            if let Err(problem) = core.ask_unless_gone(&entry, ask).await {
                tracing::error!("domain {}: its rules are not changed: {}", entry.id, problem.detail);
            }
        });
    }
}
