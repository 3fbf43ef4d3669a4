//! The arbiter of CPU time: sees that domains get what their weights and reservations entitle them to.
//!
//! Weights are the host scheduler's to keep, and with domains that compute it keeps them. With one whose many tasks sleep
//! and wake all the time it does not (Linux 6.18: 200 tasks that sleep 200 µs leave two that compute in a group of the
//! same weight 2 % of their share; docs/supervisor.md). Quotas hold all the same. So a thread looks, while no CPU is idle,
//! what each domain gets. If one waits for a CPU and gets less than its share, those that get more than theirs are held to
//! it by a quota: a token bucket, refilled every [`PERIOD`]. If the host's own tasks get no CPU (`canary`), all busy domains
//! are held to less, until they do. When CPUs fall idle the quotas go.
//!
//! Key types: [`Seat`], a domain's place; `Arbiter`, the thread's state; `shares` computes who gets what.
//! There is one arbiter in a process; it judges the process' own domains only.

mod canary;
mod shares;
mod waiting;

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cgroup::{Limits, View};
use canary::Canary;
use shares::{Claim, shares};
use waiting::Waiting;

/// Between two looks while CPUs are scarce, and while they are not.
const SCARCE: Duration = Duration::from_millis(20);
const PLENTY: Duration = Duration::from_millis(50);
/// A look may take this part of the time at most.
const EFFORT: u32 = 200;
/// Part of all CPUs that is idle when they are not scarce.
const IDLE: f64 = 0.05;
/// And part that quotas may leave idle on average.
const WASTE: f64 = 0.08;
/// Too little or too much is so many seconds of CPU time less or more than its share, a few slices of the host's
/// scheduler; and most that is remembered.
const MUCH: f64 = 0.05;
const MOST_OWED: f64 = 0.2;
/// And such parts of its share on average: among domains that only compute the host's scheduler is fair by itself, and
/// better at it.
const TOO_ILL: f64 = 0.5;
const TOO_WELL: f64 = 1.15;
/// One that uses more CPUs than this does something.
const BUSY: f64 = 0.001;
/// One waits if so many of its tasks did on average.
const WAITS: f64 = 0.3;
/// A quota's period: the shorter, the shorter others' waits.
const PERIOD: Duration = Duration::from_millis(10);
/// The least quota the host takes.
const LEAST: Duration = Duration::from_millis(1);
/// How much a look counts in an average over some.
const EAGER: f64 = 0.3;
/// And in one over many.
const SLOW: f64 = 0.1;
/// Most that is taken off a share for what was used beyond a quota.
const MOST_EXCESS: f64 = 0.4;
/// A quota that is off by less than the first of these parts stays, by less than the second it stays for a while.
const CLOSE: f64 = 0.01;
const NEAR: f64 = 0.05;
const PATIENCE: Duration = Duration::from_millis(200);
/// Parts of all CPUs by which domains are held to less at a look while the host's tasks starve, to more while they do not;
/// and most that they give.
const GIVE: f64 = 0.05;
const TAKE: f64 = 0.005;
const MOST_SPARED: f64 = 0.5;
/// Longest time without quotas after some that left CPUs idle.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// What a group weighs that nobody gave a weight.
const WEIGHT: u32 = 100;

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
        Self { weight: r.cpu_weight, reserved: r.cpu_reservation, most: limits.cpus }
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
        let seen = |(id, m): (&u64, &Member)| Seen {
            id: *id,
            group: m.group.clone(),
            promise: m.promise,
            used: 0.0,
        };
        self.members().all.iter().map(seen).collect()
    }
}

/// A domain's place before the arbiter, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(u64);

impl Seat {
    /// For a domain with such limits in this group.
    pub fn take(group: View, limits: &Limits) -> Self {
        let mut members = bench().members();
        let id = members.next;
        members.next += 1;
        members.all.insert(id, Member { group: Arc::new(group), promise: Promise::of(limits) });
        if !members.runs {
            let work = || Arbiter::default().run(bench());
            // Without it the host's scheduler is all there is; the next domain tries again.
            members.runs = std::thread::Builder::new().name("arbiter".into()).spawn(work).is_ok();
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

impl Drop for Seat {
    fn drop(&mut self) {
        bench().members().all.remove(&self.0);
    }
}

/// What the arbiter remembers of a domain.
#[derive(Debug, Default)]
struct Record {
    /// CPU time in nanoseconds when it last looked.
    used: u64,
    waiting: Waiting,
    /// How much less than its share it has got, in seconds.
    owed: f64,
    /// What part of its fair share it gets on average.
    served: f64,
    /// The quota it has set, in CPUs, and when; what the domain uses beyond it on average.
    quota: Option<(f64, Instant)>,
    excess: f64,
}

/// A domain as it is seen in one look.
struct Seen {
    id: u64,
    group: Arc<View>,
    promise: Promise,
    /// CPUs used since the last look.
    used: f64,
}

#[derive(Debug, Default)]
struct Arbiter {
    records: HashMap<u64, Record>,
    /// When it last looked, and the CPU time of the whole host then.
    last: Option<(Instant, u64)>,
    /// CPUs that domains leave to the host's own tasks.
    spared: f64,
    /// CPUs idle, on average of the last looks.
    idle: f64,
    /// Since when there are quotas.
    held_since: Option<Instant>,
    /// No quotas before this, and how long that rest was.
    rest: Option<Instant>,
    pause: Duration,
}

impl Arbiter {
    fn run(&mut self, bench: &Bench) {
        // Domains that starve others would starve it. Without the right to this it does what it can.
        let _ = doppel_sys::cpu::real_time();
        let canary = Canary::new();
        loop {
            let mut members = bench.members();
            while members.all.is_empty() {
                self.records.clear();
                (self.last, self.held_since) = (None, None);
                canary.want(false);
                members = bench.came.wait(members).unwrap_or_else(PoisonError::into_inner);
            }
            let any = members.all.values().next().map(|m| m.group.clone());
            drop(members);
            let begun = Instant::now();
            let scarce = any.is_some_and(|group| self.look(bench, &group, begun, canary.is_late()));
            canary.want(scarce);
            let nap = if scarce { SCARCE } else { PLENTY };
            std::thread::sleep(nap.max(begun.elapsed() * EFFORT));
        }
    }

    /// One look; whether CPUs are scarce. `any` group tells of the host; `late`: its own tasks starve.
    fn look(&mut self, bench: &Bench, any: &View, now: Instant, late: bool) -> bool {
        let Some(host) = any.host_cpu_time() else { return false };
        let Some((before, host_before)) = self.last.replace((now, host)) else { return false };
        let cpus = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let seconds = (now - before).as_secs_f64();
        let idle = cpus - host.saturating_sub(host_before) as f64 / 1e9 / seconds;
        self.idle += EAGER * (idle - self.idle);
        // One look says little: the host counts the time of those that run only now and then.
        let scarce = if self.held_since.is_some() { WASTE } else { IDLE };
        if self.idle > scarce * cpus {
            self.rest_if_held(bench, now);
            return false;
        }
        let step = if late { GIVE } else { -TAKE };
        self.spared = (self.spared + step * cpus).clamp(0.0, MOST_SPARED * cpus);
        let known = !self.records.is_empty();
        let seen = self.count(bench, seconds);
        if known && self.rest.is_none_or(|end| now >= end) {
            self.judge(&seen, cpus, idle.max(0.0), (now, seconds));
        }
        true
    }

    /// CPUs are idle: whoever was held back may have them.
    fn rest_if_held(&mut self, bench: &Bench, now: Instant) {
        if let Some(since) = self.held_since.take() {
            for s in bench.seen() {
                self.set(&s, None);
            }
            // If quotas leave CPUs idle soon, again and again, they do harm.
            let lasted = now - since > LONGEST_REST;
            self.pause = if lasted { SCARCE } else { (self.pause * 2).clamp(SCARCE, LONGEST_REST) };
            self.rest = Some(now + self.pause);
        }
        self.spared = 0.0;
        self.records.clear();
    }

    /// All domains, and what each has used since the last look.
    fn count(&mut self, bench: &Bench, seconds: f64) -> Vec<Seen> {
        let mut seen = bench.seen();
        let mut old = std::mem::take(&mut self.records);
        for s in &mut seen {
            let Some(used) = s.group.cpu_time() else { continue };
            let mut record =
                old.remove(&s.id).unwrap_or_else(|| Record { used, served: 1.0, ..Record::default() });
            s.used = used.saturating_sub(std::mem::replace(&mut record.used, used)) as f64 / 1e9 / seconds;
            self.records.insert(s.id, record);
        }
        seen
    }

    /// Sets quotas where one gets too little because another gets too much.
    fn judge(&mut self, seen: &[Seen], cpus: f64, idle: f64, (now, seconds): (Instant, f64)) {
        let starved = self.spared > 0.0;
        let all = seen.iter().map(|s| s.used).sum::<f64>() + idle;
        let capacity = if starved { all.min(cpus - self.spared) } else { all };
        let held: Vec<_> = seen.iter().map(|s| self.is_held(s.id)).collect();
        let claims = |wants: &[f64]| -> Vec<Claim> {
            let claim = |(s, wants): (&Seen, &f64)| Claim {
                weight: f64::from(s.promise.weight.unwrap_or(WEIGHT)),
                reserved: s.promise.reserved.unwrap_or(0.0),
                wants: wants.min(s.promise.most.unwrap_or(cpus)),
            };
            seen.iter().zip(wants).map(claim).collect()
        };
        // Those that do something, as if they took all they can get.
        let mut wants: Vec<_> =
            seen.iter().zip(&held).map(|(s, held)| if *held || s.used > BUSY { cpus } else { 0.0 }).collect();
        let fair = shares(&claims(&wants), capacity);
        let mut hungry = starved;
        for (i, (s, fair)) in seen.iter().zip(fair).enumerate() {
            if wants[i] > 0.0 && !held[i] && self.is_owed(s, fair, seconds) {
                if self.waits(s, seconds) {
                    hungry = true;
                } else {
                    wants[i] = s.used;
                    self.forgive(s.id);
                }
            }
        }
        if !hungry && self.held_since.is_none() {
            return;
        }
        for ((s, share), held) in seen.iter().zip(shares(&claims(&wants), capacity)).zip(held) {
            let takes = self.records.get(&s.id).is_some_and(|r| r.owed < -MUCH && r.served > TOO_WELL);
            if held || (hungry && s.used > share && takes) {
                self.hold(s, share, now);
                self.held_since.get_or_insert(now);
            }
        }
    }

    /// Whether one has got much less than its fair part, in CPU time and for some time.
    fn is_owed(&mut self, s: &Seen, fair: f64, seconds: f64) -> bool {
        let Some(r) = self.records.get_mut(&s.id) else { return false };
        r.owed = (r.owed + (fair - s.used) * seconds).clamp(-MOST_OWED, MOST_OWED);
        r.served += SLOW * (s.used / fair.max(f64::MIN_POSITIVE) - r.served);
        r.owed > MUCH && r.served < TOO_ILL
    }

    fn forgive(&mut self, id: u64) {
        if let Some(record) = self.records.get_mut(&id) {
            (record.owed, record.served) = (0.0, 1.0);
        }
    }

    fn is_held(&self, id: u64) -> bool {
        self.records.get(&id).is_some_and(|r| r.quota.is_some())
    }

    /// Holds one to its share. What it used beyond its last quota, which the host grants in slices, is taken off.
    fn hold(&mut self, s: &Seen, share: f64, now: Instant) {
        let Some(record) = self.records.get_mut(&s.id) else { return };
        if let Some((quota, since)) = record.quota {
            let more = s.used - quota - record.excess;
            record.excess = (record.excess + SLOW * more).clamp(-MOST_EXCESS * share, MOST_EXCESS * share);
            // Each new quota comes with a full bucket: a small correction can wait.
            let off = (share - record.excess - quota).abs() / share;
            if off < CLOSE || (off < NEAR && now - since < PATIENCE) {
                return;
            }
        }
        let quota = share - record.excess;
        self.set(s, Some(quota));
    }

    fn waits(&mut self, s: &Seen, seconds: f64) -> bool {
        let waited = self.records.get_mut(&s.id).and_then(|r| r.waiting.read(&s.group));
        waited.is_some_and(|ns| ns as f64 / 1e9 / seconds >= WAITS)
    }

    fn set(&mut self, s: &Seen, quota: Option<f64>) {
        let Some(record) = self.records.get_mut(&s.id) else { return };
        if record.quota.map(|(cpus, _)| cpus) == quota {
            return;
        }
        let result = match quota {
            Some(cpus) => {
                let cpus = s.promise.most.map_or(cpus, |most| cpus.min(most));
                let period = PERIOD.max(LEAST.div_f64(cpus.max(0.001)));
                s.group.limit_cpu(cpus, period)
            }
            None => s.group.unlimit_cpu(s.promise.most),
        };
        // A group that is gone needs no quota.
        if result.is_ok() {
            record.quota = quota.map(|cpus| (cpus, Instant::now()));
        }
    }
}
