//! Whether others would notice what burdens the service: the host has no CPU left, and they move bytes. And whether they ask
//! for something and wait for answers, so that they would notice long turns.

use std::time::{Duration, Instant};

use doppel_service::Load;

/// For how long after others have moved bytes they are thought to move more.
const WINDOW: Duration = Duration::from_millis(20);
/// For how long after somebody has waited for a CPU there is none left. Of those who ask and answer by turns only one may want to
/// run at most moments, so this is seen only now and then.
const CROWDED: Duration = Duration::from_millis(250);
/// For how long after a question or an answer the next is expected.
const EXPECTED: Duration = Duration::from_millis(1);

/// Two clients, the last one of which something is known and who else before that, and when.
#[derive(Debug, Default)]
struct LastTwo([Option<(usize, Instant)>; 2]);

impl LastTwo {
    fn note(&mut self, i: usize, now: Instant) {
        if self.0[0].is_some_and(|(last, _)| last != i) {
            self.0[1] = self.0[0];
        }
        self.0[0] = Some((i, now));
    }

    /// Whether there was another client than this one, if it is one, not longer ago than that.
    fn has_others(&self, than: Option<usize>, now: Instant, ago: Duration) -> bool {
        self.0.iter().flatten().any(|(i, at)| Some(*i) != than && now.saturating_duration_since(*at) < ago)
    }
}

/// Of one service.
#[derive(Debug)]
pub(crate) struct Pressure {
    load: Load,
    crowded: Option<Instant>,
    /// Who has moved bytes, and who few of them.
    moved: LastTwo,
    asked: LastTwo,
    /// As if it always were so.
    #[cfg(test)]
    pub always: bool,
}

impl Pressure {
    pub fn new(load: Load) -> Self {
        Self {
            load,
            crowded: None,
            moved: LastTwo::default(),
            asked: LastTwo::default(),
            #[cfg(test)]
            always: false,
        }
    }

    /// Whether somebody waits for a CPU.
    pub fn is_crowded(&mut self, now: Instant) -> bool {
        let is = self.load.is_crowded(now);
        if is {
            self.crowded = Some(now);
        }
        is
    }

    /// A client has moved bytes. `few`: as many as a question or its answer has.
    pub fn moved(&mut self, i: usize, now: Instant, few: bool) {
        self.moved.note(i, now);
        if few {
            self.asked.note(i, now);
        }
    }

    /// Whether others than this client, if it is one, would notice long turns.
    pub fn is_awaited(&self, by: Option<usize>, now: Instant) -> bool {
        #[cfg(test)]
        if self.always {
            return true;
        }
        self.asked.has_others(by, now, EXPECTED)
    }

    /// Whether others than this client, if it is one, would notice.
    pub fn is_felt(&mut self, by: Option<usize>, now: Instant) -> bool {
        #[cfg(test)]
        if self.always {
            return true;
        }
        if !self.moved.has_others(by, now, WINDOW) {
            return false;
        }
        self.is_crowded(now);
        self.crowded.is_some_and(|at| now.saturating_duration_since(at) < CROWDED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_is_no_strain_for_others() {
        let mut s = Pressure::new(Load::open().unwrap());
        let now = Instant::now();
        s.crowded = Some(now);
        s.moved(1, now, false);
        assert!(!s.is_felt(Some(1), now) && s.is_felt(Some(2), now) && s.is_felt(None, now));
        s.moved(2, now, false);
        s.moved(2, now, false);
        assert!(s.is_felt(Some(1), now) && s.is_felt(Some(2), now));
        assert!(!s.is_felt(Some(1), now + WINDOW));
    }

    #[test]
    fn a_host_that_had_no_cpu_has_none_for_a_while() {
        let mut s = Pressure::new(Load::of_cpus(usize::MAX).unwrap());
        let now = Instant::now();
        s.crowded = Some(now);
        for (after, is) in [(CROWDED / 2, true), (CROWDED, false)] {
            s.moved(1, now + after, false);
            assert_eq!(s.is_felt(Some(2), now + after), is);
        }
    }

    #[test]
    fn who_asks_is_expected_to_ask_again_soon() {
        let mut s = Pressure::new(Load::open().unwrap());
        let now = Instant::now();
        s.moved(1, now, false);
        assert!(!s.is_awaited(Some(2), now), "it moves much");
        s.moved(1, now, true);
        assert!(!s.is_awaited(Some(1), now) && s.is_awaited(Some(2), now) && s.is_awaited(None, now));
        assert!(!s.is_awaited(Some(2), now + EXPECTED));
    }
}
