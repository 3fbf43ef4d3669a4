//! What is known of a domain's memory: written down while it sleeps or waits, and in mind while it runs.

use std::time::Duration;

use doppel_api::{self as api, HibernationReason};
use doppel_domain::Rests;
use serde::{Deserialize, Serialize};

use crate::gatekeeper::idle::{Counters, Watch};
use crate::keeper::protocol::Usage;
use crate::time;

/// What the gatekeeper is called where it hibernates a domain.
pub(crate) const GATEKEEPER: &str = "gatekeeper";

/// A hibernation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slept {
    /// Who asked for it; none: the gatekeeper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub reason: HibernationReason,
    /// When, in seconds since 1970.
    pub at: f64,
    /// When a timer of it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<f64>,
    /// Bytes of memory in its image.
    #[serde(default)]
    pub bytes: u64,
    /// `due` and `bytes` are known. A supervisor that died before it heard of them has its successor wake the domain.
    #[serde(default)]
    pub settled: bool,
}

impl Slept {
    /// When it wakes by itself, if it is the gatekeeper's.
    pub fn wakes_at(&self) -> Option<f64> {
        match (self.reason, self.settled) {
            (HibernationReason::Request, _) => None,
            (_, true) => self.due,
            // Its timers are not known: whatever they are, they are not late then.
            (_, false) => Some(self.at),
        }
    }

    /// As the interface gives it.
    pub fn describe(&self) -> api::Hibernation {
        api::Hibernation {
            by: self.by.clone().unwrap_or_else(|| GATEKEEPER.into()),
            reason: self.reason,
            at: time::of_seconds(self.at),
            wakes_at: self.wakes_at().map(time::of_seconds),
            memory_bytes: self.bytes,
        }
    }
}

/// A start or wake that waits, written down so that a supervisor that dies loses none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// Since when, in seconds since 1970.
    pub since: f64,
    /// Until when at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
    /// How much it wants.
    pub bytes: u64,
}

impl Pending {
    /// As the interface gives it.
    pub fn describe(&self) -> api::Waiting {
        api::Waiting {
            what: api::WaitingFor::Memory,
            since: time::of_seconds(self.since),
            until: self.until.map(time::of_seconds),
            memory_bytes: self.bytes,
        }
    }
}

/// A domain in memory. Times are the gate's.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    /// Its rule, if it has one, and the number that looks at it must have: others are of a rule before.
    pub watch: Option<(Watch, u64)>,
    /// What it had done when it was last counted, and when that was.
    pub counters: Counters,
    pub counted: Duration,
    /// Of the regular counts, those that pass without it.
    pub rests: Rests<4, MOST_SKIPPED>,
    /// When it was last known to work, or used.
    pub active: Duration,
    /// Until then it is left alone.
    pub protected: Duration,
}

/// Most regular counts in a row that pass without one that does nothing: five minutes of them, if there are not very many domains.
const MOST_SKIPPED: u32 = 63;

impl Residence {
    /// Something was wanted of it.
    pub fn touch(&mut self, now: Duration) {
        self.active = now;
        if let Some((watch, _)) = &mut self.watch {
            watch.touch(now);
        }
    }
}

/// What a keeper counted, as the gatekeeper's rules see it; none on a host that counts no CPU time.
pub(crate) fn counters(usage: &Usage) -> Option<Counters> {
    let traffic = usage.traffic.unwrap_or_default();
    Some(Counters {
        cpu: Duration::try_from_secs_f64(usage.cpu_seconds?).ok()?,
        packets: traffic.sent.packets.saturating_add(traffic.received.packets),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_nothing_is_counted_less_and_less_often() {
        let mut rests = Rests::<4, MOST_SKIPPED>::default();
        let mut counted = Vec::new();
        for count in 0..160 {
            if !rests.skips() {
                counted.push(count);
                rests.looked(count == 84);
            }
        }
        assert_eq!(counted, [0, 4, 20, 84, 85, 89, 105]);
    }

    /// Times are told as they were before the supervisor was replaced, to the last digit.
    #[test]
    fn what_is_written_down_is_read_as_it_was() {
        for n in 0..10_000_u32 {
            let at = 1_795_753_700.0 + f64::from(n) * 9.7e-6;
            let slept = Slept { at, due: Some(at + 9.0), settled: true, ..Slept::default() };
            let read: Slept = serde_json::from_slice(&serde_json::to_vec(&slept).unwrap()).unwrap();
            assert_eq!(read, slept);
        }
    }
}
