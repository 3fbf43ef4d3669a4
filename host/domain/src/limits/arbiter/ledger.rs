//! Who is owed CPU time by whom, and who is therefore held to its share.
//!
//! As in Xen's credit scheduler, time is accounted, not parts of it: what a domain gets beyond its share, or lacks of what
//! it would use of it, adds up, and is paid back. So a look may be as inexact as it is (the host counts the time of those
//! that run only at its ticks): errors do not add up. Old debts fade, so small unfairness that lasts stays the
//! host scheduler's.

use std::collections::BTreeMap;

use super::Promise;
use super::placement::Computes;
use super::shares::{Claim, shares};
use crate::limits::cgroup::WEIGHT;

/// Debts fade within about so many seconds, and are paid back within so many.
const FADES: f64 = 4.0;
const PAYS: f64 = 0.2;
/// Others are given so many seconds more than they are owed, for what interruptions take.
pub(super) const AHEAD: f64 = 0.1;
/// Debts above these seconds count: a few slices of the host's scheduler, and for each CPU of the share so many more.
const SLICES: f64 = 0.01;
const MUCH: f64 = 0.06;
/// In all, among those who are placed.
const MUCH_PLACED: f64 = 0.3;
/// Most that one owes or is owed.
const MOST: f64 = 0.5;
/// One that uses more CPUs than this does something.
const BUSY: f64 = 0.001;
/// One that waits for this part of its share wants all it can get.
const WAITS: f64 = 0.3;
/// One that waits for less than this part of its share has nothing to be paid.
const CONTENT: f64 = 0.05;
/// How much a look counts in averages.
const LOOK: f64 = 0.3;
/// One that would use about one CPU computes with one task; one that would use less than the least of these matters little.
const ONE: std::ops::RangeInclusive<f64> = 0.6..=1.5;
const LITTLE: f64 = 0.05;
/// Domains that are asked in one look whether they wait, taking turns; of these so many are asked although they get their
/// share. Where more are active they are not placed: among many the host's scheduler balances well.
const ASKED: usize = 24;
const FULL_ASKED: usize = 8;
/// A quota stays between these parts of the share, whatever is owed.
const LEAST: f64 = 0.3;
const HIGHEST: f64 = 1.3;
/// One that uses this part of its share or quota wants more.
const FULL: f64 = 0.9;
/// Each new quota comes with a full bucket: one that is off by less than the first part stays, by less than the second it
/// stays for so many seconds.
const CLOSE: f64 = 0.02;
const FAR: f64 = 0.2;
const PATIENCE: f64 = 0.1;
/// Most that domains give to the host's own tasks, as part of all CPUs.
pub(super) const MOST_SPARED: f64 = 0.5;

/// A domain in one look: the CPUs it used since the last one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuSample {
    pub id: u64,
    pub promise: Promise,
    pub used: f64,
}

/// How the host is in one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostSample {
    /// Since the last one.
    pub seconds: f64,
    pub cpus: f64,
    /// CPUs that are to be left to the host's own tasks, and whether these get too little.
    pub spared: f64,
    pub late: bool,
    /// CPUs that were neither idle nor the domains'.
    pub lost: f64,
    /// Those that are held have CPUs for themselves.
    pub closed: bool,
    /// Those that compute are placed, and what they owe each other is paid by their weights there.
    pub placed: bool,
}

#[derive(Debug, Default)]
struct Account {
    /// The last look at it.
    sight: CpuSample,
    /// Seconds of CPU time it should have got; below zero: should not.
    owed: f64,
    /// CPUs that it uses, and that its tasks wait for, on average.
    uses: f64,
    waits: f64,
    /// What it would use, all CPUs if it takes all it can get; and what it should have.
    wants: f64,
    share: f64,
    /// CPUs that it would use, on average.
    load: f64,
    /// So often it was asked whether it waits.
    heard: u64,
    /// In CPUs, and for how many seconds it has been the same.
    quota: Option<(f64, f64)>,
}

impl Account {
    /// Whether it may be worse off than its use shows.
    fn is_active(&self) -> bool {
        self.quota.is_some() || self.waits > BUSY
    }

    fn claim(&self, wants: f64) -> Claim {
        let promise = &self.sight.promise;
        Claim {
            weight: f64::from(promise.weight.unwrap_or(WEIGHT)),
            reserved: promise.reserved.unwrap_or(0.0),
            wants: promise.most.map_or(wants, |most| wants.min(most)),
        }
    }

    /// Its tasks waited for so many CPUs.
    fn hear(&mut self, waited: f64) {
        self.waits += LOOK * (waited - self.waits);
        // A first reading of waits tells nothing.
        let weight = if self.heard == 1 { 1.0 } else { LOOK };
        self.load += weight * (self.sight.used + waited - self.load);
        self.heard += 1;
    }

    /// Whether it uses all it may have.
    fn is_full(&self, share: f64) -> bool {
        self.uses >= FULL * self.quota.map_or(share, |(quota, _)| quota)
    }

    /// Enters what it would use, if all others took all they can get.
    fn want(&mut self, share: f64, cpus: f64) {
        // One that has all it may have may have all it wants.
        let takes_all = self.is_full(share) && (self.quota.is_some() || self.waits >= CONTENT * self.uses);
        let is_hungry = takes_all || self.waits >= WAITS * share.min(1.0);
        self.wants = if is_hungry { cpus } else { (self.uses + self.waits).min(cpus) };
    }

    /// Enters what it used and what it should have.
    fn enter(&mut self, share: f64, look: HostSample, is_any_held: bool) {
        self.share = share;
        let wants_all = self.wants >= look.cpus;
        let fades = if !wants_all && self.waits < CONTENT * share {
            PAYS
        } else if is_any_held && !look.closed && wants_all {
            f64::INFINITY
        } else {
            FADES
        };
        self.owed *= 1.0 - (look.seconds / fades).min(1.0);
        // What all lack, nobody owes.
        let due = if wants_all { share * (1.0 - look.lost / look.cpus) } else { share };
        self.owed = (self.owed + (due - self.sight.used) * look.seconds).clamp(-MOST, MOST);
        if let Some((_, age)) = &mut self.quota {
            *age += look.seconds;
        }
    }

    fn is_over(&self) -> bool {
        self.quota.is_some() || (self.owed < -much(self.share) && self.sight.used > self.share)
    }

    /// Whether it has had so much of a quota, or more, for some time.
    fn is_at(&self, cpus: f64) -> bool {
        self.quota.is_some_and(|(quota, age)| quota >= (1.0 - CLOSE) * cpus && age > PATIENCE)
    }

    /// Gives it a quota or none, others being owed so much. Whether that is new.
    fn change(&mut self, quota: Option<f64>, owed: f64) -> bool {
        let is_new = match (self.quota, quota) {
            (Some((now, age)), Some(quota)) => {
                let off = (quota - now) / now;
                let has_paid = owed < -AHEAD && off > CLOSE;
                has_paid || off.abs() > FAR || (off.abs() > CLOSE && age > PATIENCE)
            }
            (now, quota) => now.is_some() || quota.is_some(),
        };
        if is_new {
            self.quota = quota.map(|cpus| (cpus, 0.0));
        }
        is_new
    }
}

/// A debt that counts, in seconds.
fn much(share: f64) -> f64 {
    SLICES + MUCH * share.min(1.0)
}

/// The accounts of all domains that do something, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: BTreeMap<u64, Account>,
    held: Option<Held>,
    looks: usize,
}

/// Those that are held, together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// CPUs that they should have.
    pub share: f64,
    /// Seconds that others are owed.
    pub owed: f64,
}

impl Ledger {
    /// Enters a look; what quotas change, in CPUs. `waited` tells how many CPUs one has waited for since it was asked last.
    pub fn enter(
        &mut self,
        seen: &[CpuSample],
        look: HostSample,
        waited: impl FnMut(u64) -> f64,
    ) -> Vec<(u64, Option<f64>)> {
        self.admit(seen);
        self.ask(look.cpus, waited);
        let is_any_held = self.held.is_some();
        let shares = self.shares(look.cpus, |account| account.wants);
        for (account, share) in self.accounts.values_mut().zip(shares) {
            account.enter(share, look, is_any_held);
        }
        self.hold(look)
    }

    /// Has accounts for those that do something.
    fn admit(&mut self, seen: &[CpuSample]) {
        let mut old = std::mem::take(&mut self.accounts);
        for sight in seen {
            let account = old.remove(&sight.id);
            if sight.used > BUSY || account.as_ref().is_some_and(Account::is_active) {
                let mut account =
                    account.unwrap_or_else(|| Account { uses: sight.used, ..Account::default() });
                account.uses += LOOK * (sight.used - account.uses);
                account.sight = *sight;
                self.accounts.insert(sight.id, account);
            }
        }
    }

    /// Finds out what they would use: some are asked whether they wait.
    fn ask(&mut self, cpus: f64, mut waited: impl FnMut(u64) -> f64) {
        self.looks = self.looks.wrapping_add(1);
        let count = self.accounts.len();
        let turn = self.looks.wrapping_mul(FULL_ASKED) % count.max(1);
        let shares = self.shares(cpus, |_| cpus);
        for ((account, share), i) in self.accounts.values_mut().zip(shares).zip(0..) {
            let place = (i + turn) % count;
            let (is_full, is_held) = (account.is_full(share), account.quota.is_some());
            // One that uses up its quota waits.
            if (place < FULL_ASKED && !(is_full && is_held)) || (place < ASKED && !is_full) {
                account.hear(waited(account.sight.id).min(cpus));
            }
            account.want(share, cpus);
        }
    }

    /// What each should have if it would use so much.
    fn shares(&self, cpus: f64, wants: impl Fn(&Account) -> f64) -> Vec<f64> {
        let claims: Vec<_> = self.accounts.values().map(|account| account.claim(wants(account))).collect();
        shares(&claims, cpus)
    }

    /// Holds those that had too much to what they should have, while others lack it; what quotas that changes.
    fn hold(&mut self, look: HostSample) -> Vec<(u64, Option<f64>)> {
        let HostSample { cpus, spared, late, closed, placed, .. } = look;
        self.held = None;
        let (mut over, mut others): (Vec<_>, Vec<_>) =
            self.accounts.values_mut().partition(|account| account.is_over());
        let hunger: f64 = others.iter().map(|a| a.owed).filter(|owed| *owed > MUCH / 2.0).sum();
        // What one leaves goes to those placed beside it, who may be owed nothing.
        if hunger <= if placed { MUCH_PLACED } else { MUCH } {
            // Nobody is held for what nobody lacks, nor for the little that many lack.
            others.extend(over.extract_if(.., |account| account.quota.is_none()));
        }
        if late && (over.is_empty() || spared >= MOST_SPARED * cpus) {
            // One more of those that use the most, and more than their part of what is left.
            let left = 1.0 - spared / cpus;
            let most = others.iter().map(|account| account.sight.used).fold(0.0, f64::max);
            let lowest = (others.iter().enumerate())
                .filter(|(_, account)| account.sight.used > (account.share * left).max(most / 2.0))
                .min_by(|(_, a), (_, b)| a.owed.total_cmp(&b.owed));
            if let Some((i, _)) = lowest {
                over.push(others.swap_remove(i));
            }
        }
        let owed: f64 = others.iter().map(|account| account.owed).sum();
        let ahead = if others.iter().any(|account| account.wants >= cpus) { AHEAD } else { 0.0 };
        // Those that are over pay it by their shares.
        let pays = ((owed + ahead) / PAYS + spared) / over.iter().map(|account| account.share).sum::<f64>();
        let part = if closed { HIGHEST } else { (1.0 - pays).clamp(LEAST, HIGHEST) };
        let is_alone = over.len() == 1;
        let shared: f64 = others.iter().map(|account| account.share).sum();
        let mut changes = Vec::new();
        for account in over {
            let share = account.share;
            // One that is owed itself, unless others were paid just now, or are owed more for what they share.
            let is_worst = owed > 0.0 && account.owed * shared >= owed * share;
            let may_end = !is_alone || is_worst || account.is_at(HIGHEST * share);
            let frees = !closed && account.owed > much(share) && may_end;
            if account.change((!frees).then_some(part * share), owed) {
                changes.push((account.sight.id, account.quota.map(|(cpus, _)| cpus)));
            }
            if account.quota.is_some() {
                self.held.get_or_insert(Held { share: 0.0, owed }).share += share;
            }
        }
        changes
    }

    pub fn held(&self) -> Option<Held> {
        self.held
    }

    /// Those that matter, if all of them compute, each with one task.
    pub fn computing(&self) -> Vec<Computes> {
        let all = || self.accounts.iter().filter(|(_, a)| a.load > LITTLE);
        if self.held.is_some() || self.accounts.len() > ASKED || !all().all(|(_, a)| ONE.contains(&a.load)) {
            return Vec::new();
        }
        all().map(|(id, a)| Computes { id: *id, share: a.share, owed: a.owed }).collect()
    }

    pub fn is_held(&self, id: u64) -> bool {
        self.accounts.get(&id).is_some_and(|a| a.quota.is_some())
    }

    pub fn is_active(&self, id: u64) -> bool {
        self.accounts.contains_key(&id)
    }

    /// Nobody does anything.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Forgets all debts and quotas; who had one.
    pub fn clear(&mut self) -> Vec<u64> {
        self.held = None;
        let old = std::mem::take(&mut self.accounts);
        old.into_iter().filter(|(_, a)| a.quota.is_some()).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUS: f64 = 2.0;
    const LOOKS: f64 = 0.02;
    const FREE: HostSample = HostSample {
        seconds: LOOKS,
        cpus: CPUS,
        spared: 0.0,
        late: false,
        lost: 0.0,
        closed: false,
        placed: false,
    };

    /// A domain in a host whose scheduler gives whoever is first all it wants.
    struct Load {
        weight: u32,
        reserved: Option<f64>,
        /// CPUs it can use.
        wants: f64,
        quota: Option<f64>,
        /// Seconds that it ran in truth, and that the host has counted.
        ran: f64,
        counted: f64,
        waited: f64,
    }

    fn load(weight: u32, wants: f64) -> Load {
        Load { weight, reserved: None, wants, quota: None, ran: 0.0, counted: 0.0, waited: 0.0 }
    }

    /// Errors of what the host counts, below a tick for each CPU.
    struct Noise(u32);

    impl Noise {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(self.0 >> 8) / f64::from(1 << 24) * 0.008
        }
    }

    /// How `divide` and the ledger divide the CPUs among loads in so many seconds: CPU seconds of each. Those held use a
    /// little more than their quota.
    fn run(
        ledger: &mut Ledger,
        loads: &mut [Load],
        seconds: f64,
        divide: impl Fn(&[f64], &[Load]) -> Vec<f64>,
    ) -> Vec<f64> {
        let mut noise = Noise(1);
        let begun: Vec<_> = loads.iter().map(|l| l.ran).collect();
        for _ in 0..(seconds / LOOKS) as usize {
            let can: Vec<_> =
                loads.iter().map(|l| l.quota.map_or(l.wants, |q| (1.07 * q).min(l.wants))).collect();
            let got = divide(&can, loads);
            for (l, got) in loads.iter_mut().zip(got) {
                l.ran += got * LOOKS;
                l.waited = l.wants - got;
            }
            let seen: Vec<_> = (loads.iter_mut().zip(0..))
                .map(|(l, id)| {
                    let counted = (l.ran - noise.next()).max(l.counted);
                    let used = (counted - std::mem::replace(&mut l.counted, counted)) / LOOKS;
                    let promise = Promise { weight: Some(l.weight), reserved: l.reserved, most: None };
                    CpuSample { id, promise, used }
                })
                .collect();
            let changes = ledger.enter(&seen, FREE, |id| loads[id as usize].waited);
            for (id, quota) in changes {
                loads[id as usize].quota = quota;
            }
        }
        loads.iter().zip(begun).map(|(l, begun)| l.ran - begun).collect()
    }

    /// Each takes what it can and leaves next to nothing to the next.
    fn greedy(can: &[f64], _: &[Load]) -> Vec<f64> {
        let mut left = CPUS;
        let take = |can: &f64| {
            let got = can.min(0.99 * left);
            left -= got;
            got
        };
        can.iter().map(take).collect()
    }

    /// By weight, as Linux does with those that compute.
    fn fair(can: &[f64], loads: &[Load]) -> Vec<f64> {
        let claims: Vec<_> = can
            .iter()
            .zip(loads)
            .map(|(wants, l)| Claim { weight: f64::from(l.weight), reserved: 0.0, wants: *wants })
            .collect();
        shares(&claims, CPUS)
    }

    /// What each gets of the CPUs from one second after the start.
    fn split(loads: &mut [Load]) -> Vec<f64> {
        let mut ledger = Ledger::default();
        run(&mut ledger, loads, 1.0, greedy);
        run(&mut ledger, loads, 5.0, greedy).iter().map(|seconds| seconds / 5.0).collect()
    }

    #[test]
    fn who_is_starved_gets_its_share() {
        let got = split(&mut [load(100, 2.0), load(100, 2.0)]);
        assert!(got[1] > 0.98, "{got:?}");
        let got = split(&mut [load(100, 2.0), load(300, 2.0), load(400, 2.0)]);
        assert!(got[1] > 0.97 * 0.75 && got[2] > 0.97, "{got:?}");
    }

    #[test]
    fn among_those_that_compute_the_host_is_left_alone() {
        let mut loads: Vec<_> = (1..=8).map(|w| load(100 * w, 1.0)).collect();
        run(&mut Ledger::default(), &mut loads, 10.0, |can, loads| {
            assert!(loads.iter().all(|l| l.quota.is_none()));
            fair(can, loads)
        });
    }

    #[test]
    fn a_reservation_is_kept_whoever_was_first() {
        for first in [0, 1] {
            let mut loads = [Load { reserved: Some(1.4), ..load(100, 2.0) }, load(100, 2.0)];
            let mut ledger = Ledger::default();
            loads[1 - first].wants = 0.0;
            run(&mut ledger, &mut loads, 1.0, fair);
            loads[1 - first].wants = 2.0;
            run(&mut ledger, &mut loads, 1.0, fair);
            let got = run(&mut ledger, &mut loads, 5.0, fair);
            assert!(got[0] > 0.95 * 1.4 * 5.0 && got[1] > 0.9 * 0.6 * 5.0, "{first}: {got:?}");
        }
    }

    #[test]
    fn who_does_not_wait_takes_nothing_from_others() {
        let got = split(&mut [load(100, 0.3), load(100, 2.0)]);
        assert!(got[1] > 0.98 * 1.68, "{got:?}");
    }

    #[test]
    fn who_wants_less_than_its_share_gets_it_and_others_the_rest() {
        let got = split(&mut [load(100, 2.0), load(100, 0.5)]);
        assert!(got[1] > 0.92 * 0.5 && got[0] > 0.95 * 1.5, "{got:?}");
    }

    #[test]
    fn what_one_leaves_the_other_has() {
        let mut loads = [load(100, 2.0), load(100, 2.0)];
        let mut ledger = Ledger::default();
        run(&mut ledger, &mut loads, 2.0, greedy);
        assert!(loads[0].quota.is_some());
        loads[1].wants = 0.0;
        let got = run(&mut ledger, &mut loads, 2.0, greedy);
        assert!(got[0] / 2.0 > 0.9 * CPUS, "{got:?}");
    }

    fn sights(used: [f64; 2]) -> [CpuSample; 2] {
        [0, 1].map(|id| CpuSample { id, used: used[id as usize], ..CpuSample::default() })
    }

    #[test]
    fn who_was_paid_too_much_is_not_held_while_nobody_lacks_anything() {
        for look in [FREE, HostSample { closed: true, ..FREE }, HostSample { late: true, ..FREE }] {
            let mut ledger = Ledger::default();
            (0..20).for_each(|_| _ = ledger.enter(&sights([1.9, 0.1]), FREE, |_| 1.0));
            assert!(ledger.is_held(0) && !ledger.is_held(1));
            for _ in 0..20 {
                ledger.enter(&sights([0.6, 1.4]), look, |_| 1.0);
                assert!(!ledger.is_held(1), "{look:?} {ledger:?}");
            }
        }
    }

    /// Even if the others are owed something too: what nobody used, or others than domains.
    #[test]
    fn who_is_owed_the_most_is_not_held() {
        let mut ledger = Ledger::default();
        (0..20).for_each(|_| _ = ledger.enter(&sights([1.9, 0.1]), FREE, |_| 1.0));
        assert!(ledger.is_held(0));
        let looks = (0..100).take_while(|_| {
            ledger.enter(&sights([0.3, 0.95]), FREE, |_| 1.0);
            ledger.is_held(0)
        });
        // It pays first.
        let looks = looks.count();
        assert!((10..60).contains(&looks), "{looks} {ledger:?}");
    }

    #[test]
    fn those_who_are_placed_are_held_for_much_only() {
        let held = |placed| {
            let mut ledger = Ledger::default();
            let look = HostSample { placed, ..FREE };
            (1..99).find(|_| !ledger.enter(&sights([1.3, 0.7]), look, |_| 1.0).is_empty()).unwrap_or(99)
        };
        let (soon, late) = (held(false), held(true));
        assert!((10..20).contains(&soon) && (50..99).contains(&late), "{soon} {late}");
    }

    #[test]
    fn who_never_waits_lacks_nothing() {
        let mut ledger = Ledger::default();
        for _ in 0..50 {
            ledger.enter(&sights([1.2, 0.3]), FREE, |_| 0.0);
        }
        assert!(ledger.accounts.values().all(|account| account.owed.abs() < 1e-3), "{ledger:?}");
    }

    #[test]
    fn for_the_little_that_many_lack_nobody_is_held() {
        let mut ledger = Ledger::default();
        let sight = |(id, used)| CpuSample { id, used, ..CpuSample::default() };
        // One has more than the others, who would take more.
        let seen: Vec<_> =
            [0.3].into_iter().chain([0.09; 20]).zip(0..).map(|(used, id)| sight((id, used))).collect();
        for _ in 0..150 {
            assert_eq!(ledger.enter(&seen, FREE, |_| 0.02), []);
        }
        let owed: f64 = ledger.accounts.values().map(|account| account.owed).filter(|owed| *owed > 0.0).sum();
        assert!(owed > MUCH && ledger.accounts[&0].is_over(), "{owed} {ledger:?}");
    }

    #[test]
    fn what_all_lack_nobody_owes() {
        let mut ledger = Ledger::default();
        for _ in 0..50 {
            ledger.enter(&sights([0.7, 0.7]), HostSample { lost: 0.6, ..FREE }, |_| 1.0);
        }
        assert!(ledger.accounts.values().all(|account| account.owed.abs() < 1e-6), "{ledger:?}");
    }

    #[test]
    fn where_the_host_starves_who_does_little_is_not_held() {
        let mut ledger = Ledger::default();
        (0..9).for_each(|_| _ = ledger.enter(&sights([1.2, 0.1]), FREE, |_| 0.0));
        let late = HostSample { spared: 0.1, late: true, ..FREE };
        // It has more than it wanted on average, the other less than it would take.
        ledger.enter(&sights([1.2, 0.2]), late, |_| 0.0);
        assert!(!ledger.is_held(1), "{ledger:?}");
    }

    #[test]
    fn where_the_host_starves_one_more_is_held_until_it_does_not() {
        let mut ledger = Ledger::default();
        let mut late = |late, spared| {
            ledger.enter(&sights([1.0, 1.0]), HostSample { spared, late, ..FREE }, |_| 1.0).len()
        };
        assert_eq!((late(false, 0.0), late(true, 0.1), late(true, 0.1)), (0, 1, 0));
        assert_eq!(late(true, MOST_SPARED * CPUS), 2);
    }
}
