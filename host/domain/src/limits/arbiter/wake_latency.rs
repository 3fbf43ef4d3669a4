//! Whether the host's own tasks get a CPU: a thread like any other of theirs that sleeps and looks how late it wakes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it sleeps, and how much later than that it wakes when the host's tasks starve: a few slices.
const SLEEP: Duration = Duration::from_millis(10);
const LATE: Duration = Duration::from_millis(30);

#[derive(Debug)]
struct Shared {
    start: Instant,
    /// Milliseconds after the start when it was last awake.
    awake: AtomicU64,
    /// It is wanted.
    wanted: Mutex<bool>,
    changed: Condvar,
}

/// Measures how late its thread wakes, only while that is wanted.
#[derive(Debug)]
pub(super) struct WakeLatency(Arc<Shared>);

impl WakeLatency {
    /// One that is not wanted yet. Without a thread for it, the host's tasks are never late.
    pub fn new() -> Self {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            awake: AtomicU64::new(0),
            wanted: Mutex::new(false),
            changed: Condvar::new(),
        });
        let its = shared.clone();
        let spawned = doppel_sys::signal::spawn_blocked("wake-latency", move || its.measure());
        if spawned.is_err() {
            shared.awake.store(u64::MAX, Ordering::Relaxed);
        }
        Self(shared)
    }

    /// Has it measure or rest.
    pub fn want(&self, wanted: bool) {
        let mut now = self.0.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != wanted {
            *now = wanted;
            // It is not late for the time it was not wanted.
            self.0.awake.fetch_max(self.0.now(), Ordering::Relaxed);
            self.0.changed.notify_one();
        }
    }

    /// Whether it should have been awake long since.
    pub fn is_late(&self) -> bool {
        let silent = self.0.now().saturating_sub(self.0.awake.load(Ordering::Relaxed));
        u128::from(silent) > (SLEEP + LATE).as_millis()
    }
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn measure(&self) {
        loop {
            let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.changed.wait_while(wanted, |wanted| !*wanted).unwrap_or_else(PoisonError::into_inner));
            std::thread::sleep(SLEEP);
            self.awake.fetch_max(self.now(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_on_time_where_there_is_time() {
        let latency = WakeLatency::new();
        std::thread::sleep(Duration::from_millis(100));
        assert!(latency.is_late(), "nobody wanted it");
        latency.want(true);
        assert!(!latency.is_late());
        let on_time = (0..200).filter(|_| {
            std::thread::sleep(Duration::from_millis(1));
            !latency.is_late()
        });
        assert!(on_time.count() > 50);
    }
}
