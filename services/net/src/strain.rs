//! Whether others would notice what burdens the service: the host has no CPU left, and they move bytes.

use std::time::{Duration, Instant};

use doppel_service::Load;

/// For how long after others have moved bytes they are thought to move more.
const WINDOW: Duration = Duration::from_millis(20);
/// For how long after somebody has waited for a CPU there is none left. Of those who ask and answer by turns only one may want to
/// run at most moments, so this is seen only now and then.
const CROWDED: Duration = Duration::from_millis(250);

/// Of one service.
#[derive(Debug)]
pub(crate) struct Strain {
    load: Load,
    crowded: Option<Instant>,
    /// Who has moved bytes last, and who else before that.
    last: Option<(usize, Instant)>,
    other: Option<(usize, Instant)>,
    /// As if it always were so.
    #[cfg(test)]
    pub always: bool,
}

impl Strain {
    pub fn new(load: Load) -> Self {
        Self {
            load,
            crowded: None,
            last: None,
            other: None,
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

    /// A client has moved bytes.
    pub fn moved(&mut self, i: usize, now: Instant) {
        if self.last.is_some_and(|(last, _)| last != i) {
            self.other = self.last;
        }
        self.last = Some((i, now));
    }

    /// Whether others than this client, if it is one, would notice.
    pub fn is_felt(&mut self, by: Option<usize>, now: Instant) -> bool {
        #[cfg(test)]
        if self.always {
            return true;
        }
        let is_recent = |at: Instant| now.saturating_duration_since(at) < WINDOW;
        let moves =
            [self.last, self.other].into_iter().flatten().any(|(i, at)| Some(i) != by && is_recent(at));
        moves
            && (self.is_crowded(now)
                || self.crowded.is_some_and(|at| now.saturating_duration_since(at) < CROWDED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_is_no_strain_for_others() {
        let mut s = Strain::new(Load::open().unwrap());
        let now = Instant::now();
        s.crowded = Some(now);
        s.moved(1, now);
        assert!(!s.is_felt(Some(1), now) && s.is_felt(Some(2), now) && s.is_felt(None, now));
        s.moved(2, now);
        s.moved(2, now);
        assert!(s.is_felt(Some(1), now) && s.is_felt(Some(2), now));
        assert!(!s.is_felt(Some(1), now + WINDOW));
    }

    #[test]
    fn a_host_that_had_no_cpu_has_none_for_a_while() {
        let mut s = Strain::new(Load::of_cpus(usize::MAX).unwrap());
        let now = Instant::now();
        s.crowded = Some(now);
        for (after, is) in [(CROWDED / 2, true), (CROWDED, false)] {
            s.moved(1, now + after);
            assert_eq!(s.is_felt(Some(2), now + after), is);
        }
    }
}
