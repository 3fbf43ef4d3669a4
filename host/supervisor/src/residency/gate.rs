//! The gate's facts: what is due, who is in memory, who waits.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::domains::Entry;
use crate::gatekeeper::agenda::Agenda;
use crate::gatekeeper::pressure::{Holding, Memory};
use crate::gatekeeper::queue::{Queue, Ticket, Want};
use crate::gatekeeper::rules::Rules;
use crate::locked;
use crate::residency::figures::Figures;
use crate::residency::host_memory::{Sample, sample};
use crate::time::seconds_now;

/// For so long what the host says of its memory is taken for true.
const FRESH: Duration = Duration::from_millis(50);
/// With one part in so many of the host's memory available, memory is plenty.
const PLENTY: u64 = 4;

/// How long nobody is asked for memory after nobody gave any.
const IN_VAIN: Duration = Duration::from_millis(900);

/// What is to be done at some time.
#[derive(Debug)]
pub(crate) enum Due {
    /// A domain is to be looked at, by the rule of this number.
    Look(Weak<Entry>, u64),
    /// A timer of a domain that has slept since then is due.
    Timer(Weak<Entry>, f64),
}

/// A domain in memory.
#[derive(Debug)]
struct Resident {
    entry: Weak<Entry>,
    owner: String,
    bytes: u64,
}

/// Who is in memory.
#[derive(Debug, Default)]
struct Ledger {
    residents: HashMap<String, Resident>,
    owners: BTreeMap<String, u64>,
    total: u64,
    /// What starts and wakes that go on just now were promised.
    promised: u64,
}

impl Ledger {
    fn count(&mut self, id: &str, bytes: u64) {
        let Some(one) = self.residents.get_mut(id) else { return };
        let before = std::mem::replace(&mut one.bytes, bytes);
        if let Some(of_owner) = self.owners.get_mut(&one.owner) {
            *of_owner = of_owner.saturating_sub(before).saturating_add(bytes);
        }
        self.total = self.total.saturating_sub(before).saturating_add(bytes);
    }

    fn leave(&mut self, id: &str) {
        self.count(id, 0);
        let Some(one) = self.residents.remove(id) else { return };
        if self.owners.get(&one.owner) == Some(&0) {
            self.owners.remove(&one.owner);
        }
    }
}

/// Who waits, each with whom to tell.
#[derive(Debug, Default)]
struct Line {
    queue: Queue,
    waiters: HashMap<Ticket, oneshot::Sender<Grant>>,
}

/// Memory that is promised to a start, until it has it.
#[derive(Debug)]
pub(crate) struct Grant {
    gate: Arc<Gate>,
    bytes: u64,
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut ledger = locked(&self.gate.ledger);
        ledger.promised = ledger.promised.saturating_sub(self.bytes);
        drop(ledger);
        self.gate.memory_changed();
    }
}

/// Why there is no memory.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There never will be so much.
    Never,
    /// So many wait already.
    Full(usize),
    /// So much is free now.
    Now(u64),
}

/// What one who wants memory is told.
#[derive(Debug)]
pub(crate) enum Said {
    Granted(Grant),
    /// It waits, in this place.
    Waits(Ticket, oneshot::Receiver<Grant>),
    Refused(Refused),
}

/// The gate.
#[derive(Debug)]
pub(crate) struct Gate {
    pub rules: Rules,
    pub figures: Mutex<Figures>,
    /// Rung when something is due earlier than before, or memory may be free for those who wait.
    pub bell: Notify,
    /// When room may be made again: none while it is being made.
    relief: Mutex<Option<Duration>>,
    begun: Instant,
    /// Memory of the host.
    host: u64,
    agenda: Mutex<Agenda<Due>>,
    ledger: Mutex<Ledger>,
    line: Mutex<Line>,
    sampled: Mutex<Option<(Instant, Sample)>>,
    numbers: AtomicU64,
}

impl Gate {
    pub fn new(rules: Rules, host: u64) -> Arc<Self> {
        Arc::new(Self {
            rules,
            figures: Mutex::default(),
            bell: Notify::new(),
            relief: Mutex::new(Some(Duration::ZERO)),
            begun: Instant::now(),
            host,
            agenda: Mutex::default(),
            ledger: Mutex::default(),
            line: Mutex::default(),
            sampled: Mutex::default(),
            numbers: AtomicU64::new(0),
        })
    }

    /// Memory of the host, in bytes.
    pub fn host(&self) -> u64 {
        self.host
    }

    /// The time by which it goes.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A moment, given in seconds since 1970.
    pub fn at(&self, seconds: f64) -> Duration {
        self.now() + Duration::try_from_secs_f64(seconds - seconds_now()).unwrap_or_default()
    }

    /// A number that nothing else has.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Something is due then.
    pub fn plan(&self, at: Duration, what: Due) {
        if locked(&self.agenda).add(at, what) {
            self.bell.notify_one();
        }
    }

    /// What is due by now.
    pub fn due(&self) -> Option<Due> {
        locked(&self.agenda).take(self.now())
    }

    /// When the next is due.
    pub fn next_due(&self) -> Option<Duration> {
        locked(&self.agenda).first()
    }

    /// Whether anything can be short of memory at all.
    pub fn minds_memory(&self) -> bool {
        self.rules.reserve.of(self.host) > 0
            || self.rules.budget.of(self.host).is_some()
            || self.rules.pressure_percent > 0.0
    }

    /// What is known of memory.
    pub fn memory(&self) -> Memory {
        let Sample { available, pressure } = self.sample();
        let ledger = locked(&self.ledger);
        Memory {
            available: available.saturating_sub(ledger.promised),
            reserve: self.rules.reserve.of(self.host),
            domains: ledger.total.saturating_add(ledger.promised),
            budget: self.rules.budget.of(self.host),
            pressure,
            pressure_limit: self.rules.pressure_percent,
            plenty: self.host / PLENTY,
        }
    }

    fn sample(&self) -> Sample {
        let mut sampled = locked(&self.sampled);
        match *sampled {
            Some((at, said)) if at.elapsed() < FRESH => said,
            _ => {
                let said = sample(self.rules.pressure_percent > 0.0);
                *sampled = Some((Instant::now(), said));
                said
            }
        }
    }

    /// Whether room is to be made now: nobody does, and it is not known that nobody would give any.
    pub fn begin_relief(&self) -> bool {
        let mut relief = locked(&self.relief);
        let may = relief.is_some_and(|from| from <= self.now());
        if may {
            *relief = None;
        }
        may
    }

    /// Room was made, or nobody would give any.
    pub fn end_relief(&self, freed: bool) {
        *locked(&self.relief) = Some(if freed { Duration::ZERO } else { self.now() + IN_VAIN });
        if freed {
            *locked(&self.sampled) = None;
            self.bell.notify_one();
        }
    }

    /// Owners with their memory and weights.
    pub fn owners(&self) -> BTreeMap<String, Holding> {
        let ledger = locked(&self.ledger);
        let holding = |owner: &str, bytes| Holding { bytes, weight: self.rules.share(owner) };
        ledger.owners.iter().map(|(owner, bytes)| (owner.clone(), holding(owner, *bytes))).collect()
    }

    /// Those that are in memory, with what each uses.
    pub fn residents(&self) -> Vec<(Arc<Entry>, u64)> {
        let ledger = locked(&self.ledger);
        ledger.residents.values().filter_map(|one| Some((one.entry.upgrade()?, one.bytes))).collect()
    }

    /// A domain is in memory, and takes so much as far as is known.
    pub fn enter(&self, entry: &Arc<Entry>, owner: &str, bytes: u64) {
        let mut ledger = locked(&self.ledger);
        ledger.leave(&entry.id);
        ledger.owners.entry(owner.to_owned()).or_default();
        let resident = Resident { entry: Arc::downgrade(entry), owner: owner.to_owned(), bytes: 0 };
        ledger.residents.insert(entry.id.clone(), resident);
        ledger.count(&entry.id, bytes);
    }

    /// It takes so much.
    pub fn count(&self, id: &str, bytes: u64) {
        locked(&self.ledger).count(id, bytes);
    }

    /// It is not in memory any more.
    pub fn leave(&self, id: &str) {
        locked(&self.ledger).leave(id);
        self.memory_changed();
    }

    fn memory_changed(&self) {
        if self.waiting() > 0 {
            self.bell.notify_one();
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        locked(&self.line).queue.len()
    }

    /// What the first that waits wants, and its priority.
    pub fn first_waiting(&self) -> Option<(u64, i32)> {
        locked(&self.line).queue.first().map(|want| (want.bytes, want.priority))
    }

    fn promise(self: &Arc<Self>, bytes: u64) -> Grant {
        locked(&self.ledger).promised += bytes;
        Grant { gate: self.clone(), bytes }
    }

    /// Somebody wants memory: has it at once if there is enough and nobody waits, else a place in the queue, if `wait`.
    pub fn want(self: &Arc<Self>, owner: String, priority: i32, bytes: u64, wait: bool) -> Said {
        if !self.minds_memory() {
            return Said::Granted(self.promise(bytes));
        }
        let memory = self.memory();
        let mut line = locked(&self.line);
        if line.queue.is_empty() && memory.free() >= bytes {
            drop(line);
            return Said::Granted(self.promise(bytes));
        }
        if !memory.can_ever(bytes, self.host) {
            return Said::Refused(Refused::Never);
        }
        if line.queue.len() >= self.rules.waiting {
            return Said::Refused(Refused::Full(line.queue.len()));
        }
        let (tell, mut told) = oneshot::channel();
        let ticket = line.queue.push(Want { owner, priority, bytes, since: self.now() });
        line.waiters.insert(ticket, tell);
        drop(line);
        // Those who wait may be for more than there is, and it may pass.
        self.serve();
        match told.try_recv() {
            Ok(grant) => Said::Granted(grant),
            Err(_) if wait => {
                self.bell.notify_one();
                Said::Waits(ticket, told)
            }
            Err(_) => {
                self.give_up(ticket);
                Said::Refused(Refused::Now(self.memory().free()))
            }
        }
    }

    /// One does not wait any more.
    pub fn give_up(&self, ticket: Ticket) {
        let mut line = locked(&self.line);
        line.queue.remove(ticket);
        line.waiters.remove(&ticket);
        drop(line);
        self.memory_changed();
    }

    /// Lets in whom there is memory for.
    pub fn serve(self: &Arc<Self>) {
        loop {
            if self.waiting() == 0 {
                return;
            }
            let free = self.memory().free();
            let mut line = locked(&self.line);
            let Some((ticket, want)) = line.queue.admit(free, self.now(), self.rules.patience()) else {
                return;
            };
            let waiter = line.waiters.remove(&ticket);
            drop(line);
            let grant = self.promise(want.bytes);
            // One that has just given up lets it go again.
            waiter.map(|waiter| waiter.send(grant));
        }
    }
}
