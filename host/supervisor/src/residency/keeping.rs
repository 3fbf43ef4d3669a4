//! The gatekeeper at work: looks at domains when their time has come, hibernates those that are idle, wakes those whose timers are
//! due, and makes room when memory is short.

use std::sync::Arc;
use std::time::Duration;

use doppel_api::{Code, DomainState, HibernationReason, Kind, Problem, WakeReason};
use tokio::sync::Semaphore;

use crate::core::Core;
use crate::domains::{Entry, is_live};
use crate::gatekeeper::damping::{protection, woken};
use crate::gatekeeper::idle::{Counters, Look, Threshold, Watch};
use crate::gatekeeper::pressure::{Candidate, choose};
use crate::keeper::protocol::{KeeperCommand, Reply, Usage};
use crate::locked;
use crate::residency::gate::Due;
use crate::residency::residence::{Residence, Slept, counters};
use crate::time::seconds_now;

/// How often memory is looked at: while nobody waits for it, and while somebody does.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_FOR_WAITERS: Duration = Duration::from_millis(200);
/// Looks, and hibernations, at a time.
const LOOKS: usize = 16;
const HIBERNATIONS: usize = 4;
/// How often others are chosen when some have worked meanwhile.
const ROUNDS: usize = 8;

impl Core {
    /// Begins to keep the gate, as long as the supervisor lives.
    pub fn keep_gate(self: &Arc<Self>) {
        let core = Arc::downgrade(self);
        let gate = self.gate.clone();
        tokio::spawn(async move {
            let looks = Arc::new(Semaphore::new(LOOKS));
            loop {
                let tick = match (gate.minds_memory(), gate.waiting()) {
                    (false, _) => Duration::MAX,
                    (true, 0) => LOOK,
                    (true, _) => LOOK_FOR_WAITERS,
                };
                let due = gate.next_due().map_or(Duration::MAX, |due| due.saturating_sub(gate.now()));
                tokio::select! {
                    () = gate.bell.notified() => {}
                    () = tokio::time::sleep(due.min(tick).min(Duration::from_secs(3600))) => {}
                }
                let Some(core) = core.upgrade() else { return };
                while let Some(due) = gate.due() {
                    let (core, looks) = (core.clone(), looks.clone());
                    tokio::spawn(async move {
                        // It is never closed.
                        let _one = looks.acquire().await;
                        core.attend(due).await;
                    });
                }
                if gate.minds_memory() {
                    core.mind_memory();
                }
            }
        });
    }

    async fn attend(self: Arc<Self>, due: Due) {
        match due {
            Due::Look(entry, number) => {
                if let Some(entry) = entry.upgrade() {
                    self.look(&entry, number).await;
                }
            }
            Due::Timer(entry, slept) => {
                let Some(entry) = entry.upgrade() else { return };
                let is = locked(&entry.row).slept.as_ref().is_some_and(|s| s.at == slept);
                if is && entry.state() == DomainState::Hibernated {
                    self.wake_by_itself(entry, WakeReason::Timer);
                }
            }
        }
    }

    /// Wakes a domain that nobody asked for; it waits for memory as long as it takes.
    pub fn wake_by_itself(self: &Arc<Self>, entry: Arc<Entry>, reason: WakeReason) {
        let core = self.clone();
        tokio::spawn(async move {
            let name = entry.name();
            // Somebody may have woken or removed it meanwhile.
            if let Err(problem) = core.wake(entry, reason).await
                && !matches!(problem.code, Code::WrongState | Code::DomainNotFound | Code::Cancelled)
            {
                tracing::warn!("domain {name}, for which something has come, cannot wake: {problem}");
            }
        });
    }

    /// A run of a domain goes on in memory, and takes so much of it as far as is known.
    pub fn reside(self: &Arc<Self>, entry: &Arc<Entry>, level: u8, woke: bool, bytes: u64) {
        let (now, policy) = (self.gate.now(), self.policy(entry));
        let (kind, owner) = {
            let row = locked(&entry.row);
            (row.config.kind, row.owner.clone())
        };
        let left_alone = if woke { protection(level, self.gate.rules.protection()) } else { Duration::ZERO };
        let mut residence =
            Residence { counted: now, active: now, protected: now + left_alone, ..Residence::default() };
        if let (Kind::Para, Some(after)) = (kind, policy.hibernate_after) {
            residence.watch = Some(self.watch(entry, now, after.max(left_alone)));
        }
        locked(&entry.live).residence = Some(Box::new(residence));
        self.gate.enter(entry, &owner, bytes);
    }

    fn watch(&self, entry: &Arc<Entry>, now: Duration, after: Duration) -> (Watch, u64) {
        let number = self.gate.number();
        let (watch, due) = Watch::begin(now, after);
        self.gate.plan(due, Due::Look(Arc::downgrade(entry), number));
        (watch, number)
    }

    /// Its rules have changed.
    pub fn watch_anew(&self, entry: &Arc<Entry>) {
        let policy = self.policy(entry);
        let para = locked(&entry.row).config.kind == Kind::Para;
        let mut live = locked(&entry.live);
        let Some(residence) = &mut live.residence else { return };
        let after = policy.hibernate_after.filter(|_| para);
        residence.watch = after.map(|after| self.watch(entry, self.gate.now(), after));
    }

    /// A run of it has ended.
    pub fn leave_memory(&self, entry: &Entry) {
        locked(&entry.live).residence = None;
        self.gate.leave(&entry.id);
    }

    fn threshold(&self) -> Threshold {
        let rules = &self.gate.rules;
        Threshold { cpu_percent: rules.idle_cpu_percent, packets: rules.idle_packets }
    }

    /// What a domain uses was counted.
    pub fn note_usage(&self, entry: &Entry, usage: &Usage) -> Option<Counters> {
        let (now, threshold) = (self.gate.now(), self.threshold());
        if let Some(bytes) = usage.memory_bytes {
            self.gate.count(&entry.id, bytes);
        }
        let counters = counters(usage)?;
        let mut live = locked(&entry.live);
        let residence = live.residence.as_mut()?;
        if threshold.is_above(residence.counters, counters, now.saturating_sub(residence.counted)) {
            residence.active = now;
        }
        (residence.counters, residence.counted) = (counters, now);
        Some(counters)
    }

    pub async fn count(&self, entry: &Entry) -> Option<Counters> {
        match self.ask(entry, KeeperCommand::Usage { id: entry.id.clone(), flows: None }).await {
            Ok(Reply::Usage(usage)) => self.note_usage(entry, &usage),
            _ => None,
        }
    }

    /// Counts it with all others, unless it has done nothing for some counts; whether it was its turn.
    pub async fn count_in_turn(&self, entry: &Entry) -> bool {
        let before = {
            let mut live = locked(&entry.live);
            let Some(residence) = &mut live.residence else { return false };
            if residence.rests.skips() {
                return false;
            }
            residence.counters
        };
        let now = self.count(entry).await;
        if let Some(residence) = &mut locked(&entry.live).residence {
            residence.rests.looked(now != Some(before));
        }
        true
    }

    /// A domain's time for a look has come.
    async fn look(self: &Arc<Self>, entry: &Arc<Entry>, number: u64) {
        let is_watched = |entry: &Entry| {
            let live = locked(&entry.live);
            live.residence.as_ref().is_some_and(|r| r.watch.as_ref().is_some_and(|(_, n)| *n == number))
        };
        if !is_watched(entry) {
            return;
        }
        locked(&self.gate.figures).looks += 1;
        // One that is paused is not idle: somebody holds it.
        let counters = self.count(entry).await;
        let busy = counters.is_none() || entry.state() != DomainState::Running || self.is_used(entry);
        let counters = counters.unwrap_or_default();
        let now = self.gate.now();
        let said = self.with_watch(entry, number, |watch| watch.look(now, counters, busy, self.threshold()));
        let again = match said {
            None => return,
            Some(Look::Again(at)) => Some(at),
            Some(Look::Idle) => {
                if self.hibernate_by_itself(entry, HibernationReason::Idle).await {
                    return;
                }
                locked(&self.gate.figures).put_off += 1;
                let now = self.gate.now();
                self.with_watch(entry, number, |watch| watch.put_off(now, counters))
            }
        };
        if let Some(at) = again {
            self.gate.plan(at, Due::Look(Arc::downgrade(entry), number));
        }
    }

    fn with_watch<T>(&self, entry: &Entry, number: u64, act: impl FnOnce(&mut Watch) -> T) -> Option<T> {
        let mut live = locked(&entry.live);
        let (watch, _) = live.residence.as_mut()?.watch.as_mut().filter(|(_, n)| *n == number)?;
        Some(act(watch))
    }

    /// Hibernates a domain that nobody uses; whether it does.
    async fn hibernate_by_itself(self: &Arc<Self>, entry: &Arc<Entry>, reason: HibernationReason) -> bool {
        // Whoever has its turn does something with it.
        let Ok(_turn) = entry.turn.try_lock() else { return false };
        if entry.state() != DomainState::Running || self.check_there(entry).is_err() {
            return false;
        }
        locked(&entry.live).hibernating = true;
        let slept = Slept { reason, at: seconds_now(), ..Slept::default() };
        let done = match self.is_used(entry) {
            true => None,
            false => Some(self.put_to_sleep(entry, slept, self.gate.rules.least_sleep()).await),
        };
        locked(&entry.live).hibernating = false;
        match done {
            Some(Ok(_)) => true,
            Some(Err(problem)) => {
                tracing::debug!("domain {} does not hibernate: {problem}", entry.name());
                false
            }
            None => false,
        }
    }

    /// It hibernates, and wakes when its timers are due.
    pub fn plan_wake(&self, entry: &Arc<Entry>) {
        let slept = locked(&entry.row).slept.clone();
        if let Some((at, slept)) = slept.and_then(|slept| Some((slept.wakes_at()?, slept.at))) {
            self.gate.plan(self.gate.at(at), Due::Timer(Arc::downgrade(entry), slept));
        }
    }

    /// A domain wakes: how restless it is then.
    pub fn note_wake(&self, entry: &Entry) {
        let bounds = self.gate.rules.protection();
        let mut row = locked(&entry.row);
        let slept = row.slept.as_ref().filter(|slept| slept.reason != HibernationReason::Request);
        let Some(at) = slept.map(|slept| slept.at) else { return };
        let time = Duration::try_from_secs_f64(seconds_now() - at).unwrap_or_default();
        let (level, thrashed) = woken(row.restless, time, bounds);
        row.restless = level;
        locked(&self.gate.figures).thrashed += u64::from(thrashed);
    }

    /// Lets in who waits, and makes room if memory is short.
    fn mind_memory(self: &Arc<Self>) {
        self.gate.serve();
        let waiting = self.gate.first_waiting();
        let memory = self.gate.memory();
        let (missing, below) = match (memory.missing(0), waiting) {
            (0, None) => return,
            // Nobody goes for somebody of lower priority.
            (0, Some((bytes, priority))) => (memory.missing(bytes), priority),
            (missing, waiting) => {
                (missing.max(memory.missing(waiting.map_or(0, |(bytes, _)| bytes))), i32::MAX)
            }
        };
        if missing == 0 || !self.gate.begin_relief() {
            return;
        }
        let core = self.clone();
        tokio::spawn(async move {
            let freed = core.relieve(missing, below).await;
            core.gate.end_relief(freed > 0);
        });
    }

    /// Domains that could hibernate just now, none above this priority.
    fn candidates(&self, highest: i32) -> (Vec<Arc<Entry>>, Vec<Candidate>) {
        let (now, quiet) = (self.gate.now(), self.gate.rules.quiet());
        let running = self.execs.domains();
        let mut found = (Vec::new(), Vec::new());
        for (entry, bytes) in self.gate.residents() {
            let policy = self.policy(&entry);
            let (state, kind, owner) = {
                let row = locked(&entry.row);
                (row.state, row.config.kind, row.owner.clone())
            };
            if policy.pinned
                || policy.priority > highest
                || state != DomainState::Running
                || kind != Kind::Para
            {
                continue;
            }
            let active = {
                let mut live = locked(&entry.live);
                let used = live.hibernating || live.users > 0 || live.followers.any();
                let Some(residence) = live.residence.as_ref().filter(|_| !used) else { continue };
                if residence.protected > now || residence.active + quiet > now {
                    continue;
                }
                residence.active
            };
            if running.contains(&entry.id) {
                continue;
            }
            let id = entry.id.clone();
            found.1.push(Candidate { id, owner, bytes, priority: policy.priority, active });
            found.0.push(entry);
        }
        found
    }

    /// Hibernates as many as it takes, each after a look whether it has worked since it was last counted: then another goes. How much
    /// memory that gave.
    async fn relieve(self: &Arc<Self>, missing: u64, highest: i32) -> u64 {
        let mut freed = 0u64;
        for _ in 0..ROUNDS {
            let (entries, candidates) = self.candidates(highest);
            let chosen = choose(&candidates, missing.saturating_sub(freed), &self.gate.owners());
            if chosen.is_empty() {
                break;
            }
            let limit = Arc::new(Semaphore::new(HIBERNATIONS));
            let go = |at: usize| {
                let (core, limit) = (self.clone(), limit.clone());
                let (entry, bytes) = (entries[at].clone(), candidates[at].bytes);
                tokio::spawn(async move {
                    // It is never closed.
                    let _one = limit.acquire().await;
                    if core.give_up_memory(&entry).await { bytes } else { 0 }
                })
            };
            let tasks: Vec<_> = chosen.into_iter().map(go).collect();
            for task in tasks {
                freed = freed.saturating_add(task.await.unwrap_or(0));
            }
        }
        freed
    }

    /// Hibernates a domain for want of memory, unless it has worked just now; whether it does.
    async fn give_up_memory(self: &Arc<Self>, entry: &Arc<Entry>) -> bool {
        let before = locked(&entry.live).residence.as_ref().map(|r| r.active);
        self.count(entry).await;
        let after = locked(&entry.live).residence.as_ref().map(|r| r.active);
        if before.is_none() || before != after {
            return false;
        }
        if self.hibernate_by_itself(entry, HibernationReason::Memory).await {
            return true;
        }
        // It is not chosen again at once.
        if let Some(residence) = &mut locked(&entry.live).residence {
            residence.active = self.gate.now();
        }
        false
    }

    /// Goes on where the supervisor before has ended: timers of those that hibernate, and those that waited, once it is known what the
    /// others use.
    pub fn take_up_gate(self: &Arc<Self>) {
        let all = self.all();
        all.iter().filter(|entry| !is_live(entry.state())).for_each(|entry| self.plan_wake(entry));
        let core = self.clone();
        tokio::spawn(async move {
            for (entry, _) in core.gate.residents() {
                core.count(&entry).await;
            }
            all.iter().for_each(|entry| core.go_on_waiting(entry));
        });
    }

    /// Refuses what the gatekeeper cannot do with a domain of this kind.
    pub fn check_residency(kind: Kind, residency: &doppel_api::Residency) -> Result<(), Problem> {
        match kind {
            Kind::Paene if residency.hibernate_after_seconds.is_some_and(|s| s > 0.0) => Err(Problem::new(
                Code::Unsupported,
                "residency.hibernate_after_seconds: a paene domain, whose programs run on the host's kernel, cannot hibernate",
            )),
            _ => Ok(()),
        }
    }
}
