//! Starts, clones and wakes go in when there is memory for them, and wait for it first in, first out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doppel_api::{Code, EventKind, Problem};

use tokio::sync::Notify;

use crate::core::Core;
use crate::domains::Entry;
use crate::gatekeeper::queue::Ticket;
use crate::gatekeeper::rules::{Policy, Subject};
use crate::locked;
use crate::residency::gate::{Grant, Refused, Said};
use crate::residency::residence::Pending;
use crate::time::seconds_now;

/// How long a start or wake may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Somebody asked for it, and waits as long as the domain's rule says.
    Asked,
    /// It comes by itself: by a restart policy, the network, a timer.
    Endless,
}

/// One that waits; however that ends, it does not any more.
struct Waiter<'a> {
    core: &'a Core,
    entry: &'a Arc<Entry>,
    ticket: Ticket,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.core.gate.give_up(self.ticket);
        locked(&self.entry.row).pending = None;
        locked(&self.entry.live).cancel = None;
        self.core.save_soon(self.entry);
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Bytes for people.
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn no_memory(entry: &Entry, bytes: u64, refused: &Refused) -> Problem {
    let (name, wanted) = (entry.name(), mib(bytes));
    let text = match refused {
        Refused::Never => format!(
            "domain {name} wants {wanted} of memory, and domains never have so much here: see reserve and budget of [gatekeeper] in doppeld.toml"
        ),
        Refused::Full(n) => format!(
            "domain {name} would have to wait for {wanted} of memory, and {n} wait already, as many as may: try again later"
        ),
        Refused::Now(free) => format!(
            "domain {name} wants {wanted} of memory, of which {} are free, and is not to wait (wait_seconds)",
            mib(*free)
        ),
    };
    Problem::new(Code::Capacity, text)
}

impl Core {
    /// What counts for a domain.
    pub fn policy(&self, entry: &Entry) -> Policy {
        let row = locked(&entry.row);
        let config = &row.config;
        self.gate.rules.of(Subject { owner: &row.owner, labels: &config.labels, asked: &config.residency })
    }

    /// Memory that a domain needs to begin with.
    pub fn wanted(&self, entry: &Entry, wake: bool) -> u64 {
        let row = locked(&entry.row);
        let reserved = row.config.resources.memory_reservation_bytes.unwrap_or(0);
        let asleep = row.slept.as_ref().filter(|_| wake).map(|slept| slept.bytes);
        let begins = asleep.unwrap_or_else(|| self.gate.rules.start_bytes.of(self.gate.host()));
        begins.max(reserved)
    }

    /// Returns when there is memory for a domain that is to start or wake, with what is promised to it until it has it.
    pub async fn let_in(&self, entry: &Arc<Entry>, wake: bool, patience: Patience) -> Result<Grant, Problem> {
        let policy = self.policy(entry);
        let bytes = self.wanted(entry, wake);
        let owner = locked(&entry.row).owner.clone();
        // One that waited when a supervisor died waits no longer than it would have.
        let until = match patience {
            Patience::Endless => None,
            Patience::Asked => Some(
                locked(&entry.row)
                    .pending
                    .and_then(|pending| pending.until)
                    .unwrap_or_else(|| seconds_now() + policy.wait.as_secs_f64()),
            ),
        };
        let waits = until.is_none_or(|until| until > seconds_now());
        let (ticket, told) = match self.gate.want(owner, policy.priority, bytes, waits) {
            Said::Granted(grant) => {
                locked(&entry.row).pending = None;
                return Ok(grant);
            }
            Said::Refused(refused) => {
                locked(&entry.row).pending = None;
                locked(&self.gate.figures).refused += 1;
                return Err(no_memory(entry, bytes, &refused));
            }
            Said::Waits(ticket, told) => (ticket, told),
        };
        let begun = Instant::now();
        let waiter = Waiter { core: self, entry, ticket };
        let cancelled = Arc::new(Notify::new());
        locked(&entry.live).cancel = Some(cancelled.clone());
        locked(&entry.row).pending = Some(Pending { since: seconds_now(), until, bytes });
        self.save_soon(entry);
        self.event(
            EventKind::Waiting,
            entry,
            &[("what", "memory".into()), ("memory_bytes", bytes.to_string())],
        );
        let granted = tokio::select! {
            granted = told => granted.map_err(|_| Problem::new(Code::Internal, "the queue for memory has gone")),
            () = too_late(until) => Err(Problem::new(
                Code::Timeout,
                format!(
                    "domain {} waited {} for {} of memory: stop or hibernate others, or let it wait longer (wait_seconds)",
                    entry.name(), seconds(begun.elapsed()), mib(bytes),
                ),
            )),
            () = cancelled.notified() => Err(Problem::new(
                Code::Cancelled,
                format!("domain {} waited for memory, and is not to start any more", entry.name()),
            )),
        };
        drop(waiter);
        match &granted {
            Ok(_) => locked(&self.gate.figures).waited(begun.elapsed()),
            Err(_) => locked(&self.gate.figures).refused += 1,
        }
        granted
    }

    /// One that waits for memory is not to start any more.
    pub fn stop_waiting(&self, entry: &Entry) {
        if let Some(cancel) = &locked(&entry.live).cancel {
            cancel.notify_one();
        }
    }

    /// Goes on with a start or wake that waited when a supervisor died.
    pub fn go_on_waiting(self: &Arc<Self>, entry: &Arc<Entry>) {
        let Some(pending) = locked(&entry.row).pending else { return };
        let (core, entry) = (self.clone(), entry.clone());
        tokio::spawn(async move {
            let _turn = entry.turn.lock().await;
            let (live, asleep) = {
                let row = locked(&entry.row);
                (crate::domains::is_live(row.state), row.asleep.is_some())
            };
            if live || core.check_there(&entry).is_err() {
                locked(&entry.row).pending = None;
                return core.save_soon(&entry);
            }
            let patience = if pending.until.is_some() { Patience::Asked } else { Patience::Endless };
            if let Err(problem) = core.launch(&entry, asleep, patience).await {
                tracing::warn!("domain {}, which waited for memory, does not start: {problem}", entry.name());
            }
        });
    }
}

async fn too_late(until: Option<f64>) {
    match until {
        Some(until) => {
            tokio::time::sleep(Duration::try_from_secs_f64(until - seconds_now()).unwrap_or_default()).await
        }
        None => std::future::pending().await,
    }
}
