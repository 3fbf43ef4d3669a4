//! How guest threads and vCPUs wait and are woken: the lock-free part of the scheduler.
//!
//! Key types: [`ParkWord`] (one thread's wait), [`VcpuSet`] (which vCPUs of an address space spin or sleep),
//! [`Cpus`] (how many vCPUs of the domain are awake), [`Window`] (how long a thread's next wait may spin),
//! [`Handover`] (whether a thread that wakes another is about to wait itself).
//! Boundary: no queue, no clock and no host call in here; guest/kernel `sched` has those. `park/model.rs` checks
//! the protocol under every interleaving (`make loom`).
//!
//! The rule that no wake-up is lost, twice: whoever makes work stores it and *then* looks who waits; whoever
//! waits says so and *then* looks for work. A fence stands between the two steps on both sides.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(all(test, loom)))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

const RUNNING: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;
const SPINNING: u32 = 3;
const SLEEPING: u32 = 4;

/// The state of one thread's wait. A notification that comes before the wait ends it at once; one that comes
/// while the thread spins, or sleeps together with its vCPU, needs no queue, because the thread still has its vCPU.
///
/// Every transition is an exchange, so the thread sees all that any of its notifiers did before.
#[derive(Debug, Default)]
pub struct ParkWord(AtomicU32);

impl ParkWord {
    /// Begins a wait that spins; false if there is a notification (now used up).
    pub fn spin(&self) -> bool {
        self.begin(SPINNING)
    }

    /// Begins a wait off the vCPU; false if there is a notification (now used up).
    pub fn leave(&self) -> bool {
        self.begin(PARKED)
    }

    /// Turns a spinning wait into one asleep on the vCPU; false if it is over.
    pub fn sleep(&self) -> bool {
        if self.0.compare_exchange(SPINNING, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        self.resume();
        false
    }

    fn begin(&self, to: u32) -> bool {
        if self.0.compare_exchange(RUNNING, to, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        self.resume();
        false
    }

    /// Whether the wait is over. For a thread that keeps its vCPU.
    pub fn notified(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NOTIFIED
    }

    /// Turns a wait on the vCPU into one off it; false if it is over.
    pub fn give_up(&self) -> bool {
        for from in [SPINNING, SLEEPING] {
            if self.0.compare_exchange(from, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return true;
            }
        }
        self.resume();
        false
    }

    /// The thread runs again after a wait; true if it was notified.
    pub fn resume(&self) -> bool {
        self.0.swap(RUNNING, Ordering::AcqRel) == NOTIFIED
    }

    /// Notifies; gives what the caller, and nobody else, must do.
    pub fn notify(&self) -> Duty {
        match self.0.swap(NOTIFIED, Ordering::AcqRel) {
            PARKED => Duty::Queue,
            SLEEPING => Duty::WakeVcpu,
            _ => Duty::Nothing,
        }
    }

    /// Whether the thread waits.
    pub fn waits(&self) -> bool {
        matches!(self.0.load(Ordering::Relaxed), PARKED | SPINNING | SLEEPING)
    }
}

/// What a notification leaves to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// The thread knows or will know.
    Nothing,
    /// It left its vCPU: queue it.
    Queue,
    /// It sleeps with its vCPU: wake that ([`VcpuSet::claim_slot`]).
    WakeVcpu,
}

/// Who will look at the run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looker {
    /// A vCPU that spins: it has been told already.
    Spinner,
    /// The sleeping vCPU of this slot: the caller must wake it.
    Sleeper(u32),
}

/// The vCPUs of one address space, by slot: which exist, spin, sleep.
///
/// A bit in `spinning` or `sleeping` is an offer to look at the run queue. Whoever queues work takes one offer
/// ([`Self::claim`]); the vCPU learns on the way back whether its offer was taken.
#[derive(Debug, Default)]
pub struct VcpuSet {
    used: AtomicU64,
    spinning: AtomicU64,
    sleeping: AtomicU64,
    /// Offers taken whose vCPUs have not come back yet.
    coming: AtomicU32,
}

/// Most vCPUs of one address space.
pub const MAX_SLOTS: u32 = 64;

const fn bit(slot: u32) -> u64 {
    1 << slot
}

impl VcpuSet {
    /// A free slot below `limit`, now used.
    pub fn add(&self, limit: u32) -> Option<u32> {
        let limit = limit.min(MAX_SLOTS);
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let slot = used.trailing_ones();
            if slot >= limit {
                return None;
            }
            match self.used.compare_exchange(used, used | bit(slot), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(slot),
                Err(now) => used = now,
            }
        }
    }

    /// Gives back a slot whose vCPU did not start.
    pub fn remove(&self, slot: u32) {
        self.used.fetch_and(!bit(slot), Ordering::AcqRel);
    }

    /// How many vCPUs there are.
    pub fn count(&self) -> u32 {
        self.used.load(Ordering::Acquire).count_ones()
    }

    /// Finds somebody to look at work that the caller has just published; `None` if all are busy.
    pub fn claim(&self) -> Option<Looker> {
        fence(Ordering::SeqCst);
        if take(&self.spinning, &self.coming).is_some() {
            return Some(Looker::Spinner);
        }
        take(&self.sleeping, &self.coming).map(Looker::Sleeper)
    }

    /// As [`Self::claim`], but only a vCPU that sleeps.
    pub fn claim_sleeper(&self) -> Option<u32> {
        fence(Ordering::SeqCst);
        take(&self.sleeping, &self.coming)
    }

    /// Claims the vCPU of this slot if it sleeps; if not, it is on its way back already.
    pub fn claim_slot(&self, slot: u32) -> bool {
        take_slot(&self.sleeping, &self.coming, slot) & bit(slot) != 0
    }

    /// Whether some vCPU was claimed and has not come back yet: it will look at all there is.
    pub fn coming(&self) -> bool {
        fence(Ordering::SeqCst);
        // Below zero while a vCPU has come back before its waker counted it.
        self.coming.load(Ordering::Acquire).cast_signed() > 0
    }

    /// Whether some vCPU sleeps, unclaimed.
    pub fn any_sleeping(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Acquire) != 0
    }

    /// Forgets all vCPUs: their host process is no more.
    pub fn clear(&self) {
        for set in [&self.used, &self.spinning, &self.sleeping] {
            set.store(0, Ordering::Release);
        }
        self.coming.store(0, Ordering::Release);
    }

    /// Offers to look, while spinning. The caller looks at the queue once more before it spins.
    pub fn spin_begin(&self, slot: u32) {
        self.spinning.fetch_or(bit(slot), Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Whether the offer still stands. For the spin loop.
    pub fn spin_goes_on(&self, slot: u32) -> bool {
        self.spinning.load(Ordering::Relaxed) & bit(slot) != 0
    }

    /// Ends spinning. True if the offer was taken: the caller must see that the queue is looked at.
    pub fn spin_end(&self, slot: u32) -> bool {
        self.withdraw(&self.spinning, slot)
    }

    /// Offers to look, while asleep. True if now all vCPUs sleep. The caller looks at the queue once more before
    /// it sleeps.
    pub fn sleep_begin(&self, slot: u32) -> bool {
        let sleeping = self.sleeping.fetch_or(bit(slot), Ordering::AcqRel) | bit(slot);
        fence(Ordering::SeqCst);
        sleeping == self.used.load(Ordering::Acquire)
    }

    /// Ends a sleep. True if the offer was taken: then the waker has counted this vCPU as awake ([`Cpus`]), and
    /// the caller must look at the queue.
    pub fn sleep_end(&self, slot: u32) -> bool {
        self.withdraw(&self.sleeping, slot)
    }

    fn withdraw(&self, set: &AtomicU64, slot: u32) -> bool {
        let taken = set.fetch_and(!bit(slot), Ordering::AcqRel) & bit(slot) == 0;
        if taken {
            self.coming.fetch_sub(1, Ordering::AcqRel);
            fence(Ordering::SeqCst);
        }
        taken
    }
}

/// Takes one offer of `set`.
fn take(set: &AtomicU64, coming: &AtomicU32) -> Option<u32> {
    let mut offers = set.load(Ordering::Acquire);
    while offers != 0 {
        let slot = offers.trailing_zeros();
        let seen = take_slot(set, coming, slot);
        if seen & bit(slot) != 0 {
            return Some(slot);
        }
        offers = seen;
    }
    None
}

/// Takes the offer of `slot` if there is one; gives the offers before.
fn take_slot(set: &AtomicU64, coming: &AtomicU32, slot: u32) -> u64 {
    let seen = set.fetch_and(!bit(slot), Ordering::AcqRel);
    if seen & bit(slot) != 0 {
        // Not earlier: were it undone in vain, others would for a moment count on a vCPU that does not come.
        coming.fetch_add(1, Ordering::AcqRel);
    }
    seen
}

/// The CPUs a domain may use and the vCPUs that want them.
#[derive(Debug)]
pub struct Cpus {
    allowed: u32,
    /// vCPUs that run, spin, or have been woken.
    awake: AtomicU32,
}

impl Cpus {
    /// A domain that may use `allowed` CPUs at a time; 0: none of its vCPUs may spin.
    pub fn new(allowed: u32) -> Self {
        Self { allowed, awake: AtomicU32::new(0) }
    }

    /// One more vCPU is awake. Whoever wakes it counts it, so that spinners make room before it arrives.
    pub fn wake(&self) {
        self.awake.fetch_add(1, Ordering::AcqRel);
    }

    /// One vCPU fewer is awake.
    pub fn sleep(&self) {
        self.awake.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a vCPU that is awake may spin: nobody who has work lacks a CPU for it.
    pub fn may_spin(&self) -> bool {
        self.awake.load(Ordering::Relaxed) <= self.allowed
    }

    /// How many vCPUs are awake.
    pub fn awake(&self) -> u32 {
        self.awake.load(Ordering::Relaxed)
    }
}

/// Whether the next wait of a thread may spin, from how the last ones went.
///
/// Short waits open the window. A spin in vain closes it, and each one in a row doubles the number of short waits it
/// takes to open it again, because on a busy host the other side may share our CPU and then no spin can succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    open: bool,
    /// Spins in vain, less those that were long made up for: two to this power waits open the window.
    distrust: u8,
    /// Short waits since the window closed, or good spins since `distrust` last fell.
    good: u16,
}

impl Window {
    /// Length of an open window: about what a sleep and a wake-up through the host take, up to 40 µs where the host is a
    /// virtual machine: shorter, it would close on the other side's first wake-up, and for long. Spinning longer could
    /// not pay.
    pub const NS: u64 = 60_000;
    /// Waits up to this are short. More than the window: both sides may only be slow because both sleep.
    const SHORT_NS: u64 = 2 * Self::NS;
    const DISTRUST_MAX: u8 = 9;
    /// Good spins that make up for one in vain.
    const FORGIVE: u16 = 16;

    /// From [`Self::to_raw`].
    pub const fn from_raw(raw: u32) -> Self {
        Self { open: raw & 0x100 != 0, distrust: raw as u8, good: (raw >> 16) as u16 }
    }

    /// For keeping in an atomic word.
    pub const fn to_raw(self) -> u32 {
        (self.good as u32) << 16 | (self.open as u32) << 8 | self.distrust as u32
    }

    /// Whether to spin.
    pub const fn is_open(self) -> bool {
        self.open
    }

    /// The window after a spin that saw the wake-up.
    #[must_use]
    pub const fn after_good_spin(mut self) -> Self {
        if self.distrust > 0 {
            self.good += 1;
            if self.good >= Self::FORGIVE {
                self.good = 0;
                self.distrust -= 1;
            }
        }
        self
    }

    /// The window after a spin through all of it.
    #[must_use]
    pub fn after_vain_spin(self) -> Self {
        Self { open: false, distrust: (self.distrust + 1).min(Self::DISTRUST_MAX), good: 0 }
    }

    /// The window after a wait without a spin that a notification ended after `waited` ns.
    #[must_use]
    pub fn after_wait(mut self, waited: u64) -> Self {
        if !self.open && waited <= Self::SHORT_NS {
            self.good += 1;
            if self.good >= 1 << self.distrust {
                self.open = true;
                self.good = 0;
            }
        }
        self
    }
}

/// Whether a thread that wakes another of its address space is about to wait itself, from how it went before. Then its
/// own vCPU takes the other up at once, and no sleeping vCPU needs to be woken through the host.
///
/// Each time the thread went on in spite of its record doubles the record that is asked of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handover {
    /// Broken promises, less those that were long made up for.
    distrust: u8,
    /// How often in a row it waited soon.
    good: u16,
}

impl Handover {
    /// A thread that waits this soon after it woke another hands over: a wake-up through the host takes longer.
    pub const SOON_NS: u64 = 3_000;
    /// Two to this power and more in a row are a record.
    const RECORD: u8 = 4;
    const DISTRUST_MAX: u8 = 8;
    /// In a row, this makes up for one broken promise.
    const FORGIVE: u16 = 8 << (Self::RECORD + Self::DISTRUST_MAX);

    /// From [`Self::to_raw`].
    pub const fn from_raw(raw: u32) -> Self {
        Self { distrust: raw as u8, good: (raw >> 16) as u16 }
    }

    /// For keeping in an atomic word.
    pub const fn to_raw(self) -> u32 {
        (self.good as u32) << 16 | self.distrust as u32
    }

    /// Whether the thread is expected to wait soon.
    pub const fn is_expected(self) -> bool {
        self.good >= 1 << (Self::RECORD + self.distrust)
    }

    /// The record after the thread waited `ns` after it woke another.
    #[must_use]
    pub fn after(self, ns: u64) -> Self {
        if ns > Self::SOON_NS {
            let broken = u8::from(self.is_expected());
            return Self { distrust: (self.distrust + broken).min(Self::DISTRUST_MAX), good: 0 };
        }
        let good = self.good + 1;
        if good < Self::FORGIVE {
            return Self { good, ..self };
        }
        Self { distrust: self.distrust.saturating_sub(1), good: 1 << (Self::RECORD + self.distrust) }
    }
}
