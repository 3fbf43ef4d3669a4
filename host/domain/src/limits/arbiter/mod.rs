//! The arbiter of CPU time: sees that domains get what their weights and reservations entitle them to.
//!
//! Weights are the host scheduler's to keep, and on one CPU, with domains that compute, it keeps them. It does not where one
//! has many tasks that sleep and wake all the time (Linux 6.18: 200 tasks that sleep 200 µs leave two that compute in a group
//! of the same weight 2 % of their share), and between CPUs only coarsely (docs/supervisor.md). So a thread looks, while no
//! CPU is idle, what each domain gets and would use, and keeps accounts of it (`ledger`):
//! - If some are owed time and others got more than their share, these are held to it by quotas, token buckets refilled
//!   every [`PERIOD`], and pay back. If their shares are whole CPUs, they then get these for themselves (`cpuset`).
//! - If all compute, each with one task, they are placed so that each CPU has the same weights (`placement`), and weigh more there
//!   until what they are owed is paid.
//! - If the host's own tasks get no CPU (`wake_latency`), domains are held to less, until they do.
//!
//! When CPUs fall idle all of this ends.
//!
//! Key types: [`ArbiterEntry`], a domain's place; `Arbiter`, the thread's state; `shares` computes who gets what. There is one arbiter in a process; it judges the process' own domains only.

mod cpus;
mod cpuset;
mod ledger;
mod pacing;
mod placement;
mod record;
mod shares;
mod steal_time;
mod waiting;
mod wake_latency;

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::cgroup::{Limits, View, WEIGHT};
use cpus::Cpus;
use cpuset::Cpuset;
use ledger::{CpuSample, HostSample, Ledger, MOST_SPARED};
use pacing::{Pacing, spent};
use placement::Placements;
use record::Record;
use steal_time::StealTime;
use wake_latency::WakeLatency;

/// Between two looks while CPUs are scarce, and while they are not: at first, and the longer they are not, at most.
const SCARCE: Duration = Duration::from_millis(20);
const PLENTY: Duration = Duration::from_millis(50);
const CALM: Duration = Duration::from_millis(500);
/// The same while they are scarce and none of this process' domains computes.
const QUIET: Duration = Duration::from_millis(100);
/// Part of a CPU up to which a domain does nothing.
const NOTHING: f64 = 0.002;
/// Part of all CPUs that is idle when they are not scarce.
const IDLE: f64 = 0.15;
/// And part that quotas may leave idle on average.
const WASTE: f64 = 0.15;
/// They are not scarce any more after so many looks: what an own host takes from this one is counted late, and looks idle.
const SURELY: u32 = 5;
/// A quota's period: the shorter, the shorter others' waits.
const PERIOD: Duration = Duration::from_millis(10);
/// The least quota the host takes.
const LEAST: Duration = Duration::from_millis(1);
/// How much a look counts in the average of idle CPUs, before there are quotas and then.
const EAGER: f64 = 0.3;
const SURE: f64 = 0.05;
/// Parts of all CPUs by which domains are held to less at a look while the host's tasks starve, to more while they do not.
const GIVE: f64 = 0.05;
const TAKE: f64 = 0.005;
/// Longest time without quotas after some that left CPUs idle.
const LONGEST_REST: Duration = Duration::from_millis(200);
/// Tasks made in the meantime, and those that moved themselves, are found after this at the latest.
const SWEEP: Duration = Duration::from_millis(500);
/// How often it is asked how many CPUs there are.
const ASK: Duration = Duration::from_secs(2);

/// What a domain was promised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Promise {
    weight: Option<u32>,
    reserved: Option<f64>,
    /// Its own limit, which stays its limit.
    most: Option<f64>,
}

impl Promise {
    fn of(limits: &Limits) -> Self {
        let r = &limits.resources;
        Self { weight: r.cpu_weight, reserved: r.cpu_reservation, most: r.cpus }
    }

    /// What is new over what was.
    fn or(self, old: Self) -> Self {
        Self {
            weight: self.weight.or(old.weight),
            reserved: self.reserved.or(old.reserved),
            most: self.most.or(old.most),
        }
    }
}

#[derive(Debug)]
struct Member {
    group: Arc<View>,
    promise: Promise,
}

/// All that the process' arbiter judges.
#[derive(Debug, Default)]
struct Bench {
    members: Mutex<Members>,
    /// There is one more.
    came: Condvar,
}

#[derive(Debug, Default)]
struct Members {
    all: HashMap<u64, Member>,
    next: u64,
    /// The thread runs.
    runs: bool,
}

fn bench() -> &'static Bench {
    static BENCH: std::sync::LazyLock<Bench> = std::sync::LazyLock::new(Bench::default);
    &BENCH
}

impl Bench {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> Vec<Seen> {
        let seen = |(id, m): (&u64, &Member)| Seen { id: *id, group: m.group.clone(), promise: m.promise };
        self.members().all.iter().map(seen).collect()
    }
}

/// A domain's place before the arbiter, until it is dropped.
#[derive(Debug)]
pub(crate) struct ArbiterEntry(u64);

impl ArbiterEntry {
    /// For a domain with such limits in this group.
    pub fn take(group: View, limits: &Limits) -> Self {
        let mut members = bench().members();
        let id = members.next;
        members.next += 1;
        members.all.insert(id, Member { group: Arc::new(group), promise: Promise::of(limits) });
        if !members.runs {
            let work = || Arbiter::new().run(bench());
            // Without it the host's scheduler is all there is; the next domain tries again.
            members.runs = doppel_sys::signal::spawn_blocked("arbiter", work).is_ok();
        }
        bench().came.notify_one();
        Self(id)
    }

    /// Its limits changed; those that are none stay.
    pub fn change(&self, limits: &Limits) {
        if let Some(member) = bench().members().all.get_mut(&self.0) {
            member.promise = Promise::of(limits).or(member.promise);
        }
    }
}

impl Drop for ArbiterEntry {
    fn drop(&mut self) {
        bench().members().all.remove(&self.0);
    }
}

/// Lets tasks run on all CPUs again that the arbiter of a process that has died may have moved.
pub(crate) fn let_run(tasks: &[u32]) {
    let cpus = Cpus::all();
    let all = cpus.count();
    if all > 1 {
        // One CPU (`placement`), or the first or last ones (`cpuset`).
        let ours = |now: &rustix::thread::CpuSet| {
            (0..all)
                .any(|n| *now == cpus.set(n, n + 1) || *now == cpus.set(0, n + 1) || *now == cpus.set(n, all))
        };
        cpus.drive(tasks, &cpus.set(0, all), ours);
    }
}

/// A domain in one look.
struct Seen {
    id: u64,
    group: Arc<View>,
    promise: Promise,
}

#[derive(Debug)]
struct Arbiter {
    records: HashMap<u64, Record>,
    /// Of all domains of the host together.
    domains: Option<Record>,
    ledger: Ledger,
    cpuset: Cpuset,
    places: Placements,
    cpus: Cpus,
    /// CPUs that this process may use at once, read when CPUs were idle last, and when that was.
    parallel: f64,
    asked: Option<Instant>,
    /// When tasks were last moved, and the CPU time that it took in this look.
    swept: Option<Instant>,
    moving: Duration,
    pacing: Pacing,
    /// When it last looked, and the CPU time of the whole host then.
    last: Option<(Instant, u64)>,
    steal_time: StealTime,
    /// CPUs that domains leave to the host's own tasks.
    spared: f64,
    /// CPUs idle, on average of the last looks.
    idle: f64,
    /// Looks in which they were many, one after the other.
    plenty: u32,
    /// Since when there are quotas.
    held_since: Option<Instant>,
    /// No quotas before this, and how long that rest was.
    rest: Option<Instant>,
    pause: Duration,
}

impl Arbiter {
    fn new() -> Self {
        Self {
            records: HashMap::new(),
            domains: None,
            ledger: Ledger::default(),
            cpuset: Cpuset::default(),
            places: Placements::default(),
            cpus: Cpus::all(),
            parallel: parallel(),
            asked: None,
            swept: None,
            moving: Duration::ZERO,
            pacing: Pacing::default(),
            last: None,
            steal_time: StealTime::default(),
            spared: 0.0,
            idle: 0.0,
            plenty: SURELY,
            held_since: None,
            rest: None,
            pause: Duration::ZERO,
        }
    }

    fn run(&mut self, bench: &Bench) {
        // Domains that starve others would starve it. Without the right to this it does what it can.
        let _ = doppel_sys::cpu::real_time();
        let latency = WakeLatency::new();
        let mut calm = PLENTY;
        loop {
            let mut members = bench.members();
            while members.all.is_empty() {
                self.records.clear();
                self.ledger.clear();
                (self.last, self.held_since) = (None, None);
                latency.want(false);
                members = bench.came.wait(members).unwrap_or_else(PoisonError::into_inner);
            }
            let any = members.all.values().next().map(|m| m.group.clone());
            drop(members);
            let before = spent();
            let scarce = any.is_some_and(|group| self.look(bench, &group, Instant::now(), latency.is_late()));
            let any_computes = !self.ledger.is_empty();
            latency.want(scarce && any_computes);
            let nap = match scarce {
                true if any_computes => SCARCE,
                true => QUIET,
                false => calm,
            };
            calm = if scarce { PLENTY } else { (calm * 2).min(CALM) };
            let looking = (spent() - before).saturating_sub(std::mem::take(&mut self.moving));
            std::thread::sleep(nap.max(self.pacing.rest(looking)));
        }
    }

    /// One look; whether CPUs are scarce. `any` group tells of the host; `late`: its own tasks starve.
    fn look(&mut self, bench: &Bench, any: &View, now: Instant, late: bool) -> bool {
        let Some(host) = any.host_cpu_time() else { return false };
        let Some((before, host_before)) = self.last.replace((now, host)) else { return false };
        // What this process may use is a matter of many files, and rarely changes.
        if self.plenty > 0 && self.asked.is_none_or(|last| now - last > ASK) {
            self.parallel = parallel();
            self.asked = Some(now);
        }
        let cpus = self.parallel;
        let seconds = (now - before).as_secs_f64();
        let idle = cpus - host.saturating_sub(host_before) as f64 / 1e9 / seconds;
        // What another virtual machine took is not idle.
        let idle =
            if self.plenty < SURELY { (idle - self.steal_time.more() / seconds).max(0.0) } else { idle };
        let used = cpus - idle;
        // One look says little: the host counts the time of those that run only now and then.
        let (scarce, weight) = if self.held_since.is_some() { (WASTE, SURE) } else { (IDLE, EAGER) };
        self.idle += weight * (idle - self.idle);
        // Nobody should wait until it is so on average.
        let least = if self.held_since.is_some() { self.idle } else { self.idle.min(idle) };
        self.plenty = if least <= scarce * cpus { 0 } else { self.plenty.saturating_add(1) };
        if self.plenty >= SURELY || (self.plenty > 0 && self.held_since.is_some()) {
            self.rest_if_held(bench, now);
            return false;
        }
        let step = if late { GIVE } else { -TAKE };
        self.spared = (self.spared + step * cpus).clamp(0.0, MOST_SPARED * cpus);
        let all = self.used_by_all(any, now);
        if self.ledger.is_empty() && self.held_since.is_none() && all < NOTHING {
            return true;
        }
        let seen = bench.seen();
        let sights = self.count(&seen, now);
        let own = sights.iter().map(|s| s.used).sum::<f64>();
        self.pacing.used(own, all);
        let lost = (used - own).clamp(0.0, cpus);
        if self.rest.is_none_or(|end| now >= end) {
            let (closed, placed) = (self.cpuset.is_closed(), !self.places.are_none());
            let look = HostSample { seconds, cpus, spared: self.spared, late, lost, closed, placed };
            self.judge(&seen, &sights, look);
            self.cpuset(&seen, now);
            let all = self.ledger.computing();
            let cpus = self.cpus.count();
            self.place(&seen, now, |places| places.settle(&all, cpus, now));
            if self.ledger.held().is_some() {
                self.held_since.get_or_insert(now);
            }
        }
        true
    }

    /// CPUs are idle: whoever was held back may have them.
    fn rest_if_held(&mut self, bench: &Bench, now: Instant) {
        self.spared = 0.0;
        self.records.clear();
        let held = self.ledger.clear();
        if held.is_empty() && !self.cpuset.is_closed() && self.places.are_none() {
            return;
        }
        let seen = bench.seen();
        for s in seen.iter().filter(|s| held.contains(&s.id)) {
            s.limit(None);
        }
        self.cpuset(&seen, now);
        self.place(&seen, now, Placements::clear);
        if let Some(since) = self.held_since.take() {
            // If quotas leave CPUs idle soon, again and again, they do harm.
            let lasted = now - since > LONGEST_REST;
            self.pause = if lasted { SCARCE } else { (self.pause * 2).clamp(SCARCE, LONGEST_REST) };
            self.rest = Some(now + self.pause);
        }
    }

    /// CPUs that all domains of the host together use: thousands that do nothing need not be looked at one by one.
    fn used_by_all(&mut self, any: &View, now: Instant) -> f64 {
        let Some(used) = any.domains_cpu_time() else { return f64::INFINITY };
        self.domains.get_or_insert_with(|| Record::new(used, now)).enter(used, now)
    }

    /// What each uses; nothing of those seen first, and of those that have done nothing for some looks, which are read now and then.
    fn count(&mut self, seen: &[Seen], now: Instant) -> Vec<CpuSample> {
        let mut old = std::mem::take(&mut self.records);
        let mut sights = Vec::new();
        for s in seen {
            let mut record = old.remove(&s.id);
            let mut used = 0.0;
            if !record.as_mut().is_some_and(Record::is_skipped) {
                let Some(time) = s.group.cpu_time() else { continue };
                let record = record.get_or_insert_with(|| Record::new(time, now));
                used = record.enter(time, now);
                record.rests(used < NOTHING && !self.ledger.is_active(s.id));
            }
            self.records.extend(record.map(|record| (s.id, record)));
            sights.push(CpuSample { id: s.id, promise: s.promise, used });
        }
        sights
    }

    /// Sets quotas where one gets too little because another gets too much.
    fn judge(&mut self, seen: &[Seen], sights: &[CpuSample], look: HostSample) {
        let find = |id| seen.iter().find(|s| s.id == id);
        let records = &mut self.records;
        let waited = |id| {
            let read = find(id).zip(records.get_mut(&id)).map(|(s, record)| record.waiting.read(&s.group));
            read.unwrap_or(0.0)
        };
        let changes = self.ledger.enter(sights, look, waited);
        for (id, quota) in changes {
            if let Some(s) = find(id) {
                s.limit(quota);
            }
        }
    }

    /// Those that are held run in the cpuset if it is closed, others do not; so do tasks that they have made since.
    fn cpuset(&mut self, seen: &[Seen], now: Instant) {
        let was = self.cpuset.is_closed();
        if !self.cpuset.fit(self.ledger.held(), self.cpus.count()) {
            return;
        }
        let changed = was != self.cpuset.is_closed();
        if changed {
            // CPUs are idle while tasks move.
            self.idle = 0.0;
            // Whoever is held pays for being watched.
            self.cpuset.enter(&self.cpus);
        }
        if self.sweeps(changed, now) {
            let before = spent();
            for s in seen.iter().filter(|s| !self.cpuset.is_closed() || self.ledger.is_active(s.id)) {
                let tasks = s.group.tasks();
                if self.cpuset.is_closed() && self.ledger.is_held(s.id) {
                    self.cpuset.take(&tasks, &self.cpus);
                } else {
                    self.cpuset.keep_out(&tasks, &self.cpus);
                }
            }
            self.moving += spent() - before;
        }
    }

    /// Those that compute run where they are placed, and weigh as much as there, or run everywhere.
    fn place(&mut self, seen: &[Seen], now: Instant, change: impl FnOnce(&mut Placements) -> bool) {
        let old = self.places.clone();
        let changed = change(&mut self.places);
        if !changed && (self.places.are_none() || !self.sweeps(false, now)) {
            return;
        }
        let before = spent();
        for s in seen {
            let (was, is) = (old.of(s.id), self.places.of(s.id));
            if was.or(is).is_none() {
                continue;
            }
            if was.map(|at| at.weighs) != is.map(|at| at.weighs) {
                s.weigh(is.map_or(1.0, |at| at.weighs));
            }
            let to = is.map_or(self.cpus.set(0, self.cpus.count()), |at| self.cpus.set(at.cpu, at.cpu + 1));
            // Their children begin where they were.
            self.cpus.drive(&s.group.tasks(), &to, |set| set.count() == 1);
        }
        self.moving += spent() - before;
    }

    /// Whether it is time to look for tasks to move.
    fn sweeps(&mut self, changed: bool, now: Instant) -> bool {
        let due = changed || self.swept.is_none_or(|last| now - last > SWEEP);
        if due {
            self.swept = Some(now);
        }
        due
    }
}

fn parallel() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64)
}

impl Seen {
    /// Lets it weigh such a part of what it was promised.
    fn weigh(&self, part: f64) {
        let _ = self.group.weigh_cpu(part * f64::from(self.promise.weight.unwrap_or(WEIGHT)));
    }

    /// Holds it to so many CPUs, or to its own limit only. A group that is gone needs no quota.
    fn limit(&self, quota: Option<f64>) {
        let _ = match quota {
            Some(cpus) => {
                let cpus = self.promise.most.map_or(cpus, |most| cpus.min(most));
                self.group.limit_cpu(cpus, PERIOD.max(LEAST.div_f64(cpus.max(0.001))))
            }
            None => self.group.unlimit_cpu(self.promise.most),
        };
    }
}
