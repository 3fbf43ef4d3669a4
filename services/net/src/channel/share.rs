//! One domain's share of its service domain: what a turn may cost, and how fast its bytes may go. Turns go to who has used least
//! (`turns`), so each domain with something to do gets the same, by bytes or by time, whichever is more (surplus round robin: who overdraws has less in its next
//! turn). A turn ends when its time is up, so that a step of work is as long as that and one call of the host, whatever it does.

use std::time::{Duration, Instant};

use crate::channel::bucket::Bucket;
use crate::rules::{Direction, Rates};

/// What a turn may cost, in bytes.
const QUANTUM: isize = 512 << 10;
/// The same while others wait for answers.
const BRIEF: isize = 128 << 10;
/// Bytes that are moved in a nanosecond where nothing else takes time: a whole turn is an eighth of a millisecond,
/// a brief one a quarter of that.
const SPEED: u64 = 4;
/// Most that is charged for a turn's time: who was kept waiting for a CPU in it does not wait long for that.
const MOST_TIME: u64 = 2 * QUANTUM.unsigned_abs() as u64;
/// What a call of the host costs whatever it moves, and what a request does, in bytes that could have been moved meanwhile.
const CALL: usize = 4 << 10;
const REQUEST: usize = 16 << 10;

/// Most bytes of streams that are moved in a turn of who asks and waits for answers.
const FEW: usize = 4 << 10;

/// Turns in a row without any effect before a client is left alone for a while, and how long.
const IN_VAIN: u32 = 256;
const PAUSE: Duration = Duration::from_millis(25);

/// What a client may still do in its turn.
#[derive(Debug, Default)]
pub(crate) struct Share {
    credit: isize,
    /// When the turn began, what it may cost, and what of it is charged.
    begun: Option<Instant>,
    allowed: isize,
    /// Something was done in this turn.
    used: bool,
    /// Bytes that were moved in it and burden nobody, if any were.
    moved: Option<usize>,
    /// Turns in which nothing was, since one in which something was.
    in_vain: u32,
    out: Option<Limit>,
    inward: Option<Limit>,
    /// Bytes that are its own before others', and whether there were some when its turn began.
    guaranteed: Option<Bucket>,
    is_within: bool,
}

/// What time costs, in bytes that could have been moved in it.
fn cost(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(SPEED)
}

/// Bytes of one direction.
#[derive(Debug)]
struct Limit {
    bucket: Bucket,
    /// Something waits for it.
    holds: bool,
}

impl Share {
    /// Other rates from now on.
    pub fn set_rates(&mut self, rates: Rates, now: Instant) {
        let limit = |rate| Limit { bucket: Bucket::of_bytes(rate, now), holds: false };
        (self.out, self.inward) = (rates.outbound.map(limit), rates.inbound.map(limit));
        self.guaranteed = rates.guaranteed.map(|rate| Bucket::of_bytes(rate, now));
        self.is_within = false;
    }

    fn limit(&mut self, way: Direction) -> Option<&mut Limit> {
        match way {
            Direction::Out => self.out.as_mut(),
            Direction::In => self.inward.as_mut(),
        }
    }

    /// Bytes that may be moved this way now. None: what would move waits until [`Self::resumes`].
    pub fn most(&mut self, way: Direction) -> usize {
        let Some(limit) = self.limit(way) else { return usize::MAX };
        let level = limit.bucket.level(Instant::now());
        limit.holds |= level == 0;
        level
    }

    /// When what waits for its rate may go on.
    pub fn resumes(&self) -> Option<Instant> {
        let both = [&self.out, &self.inward].into_iter().flatten();
        both.filter(|limit| limit.holds).map(|limit| limit.bucket.ready()).min()
    }

    /// What waited looks again.
    pub fn resume(&mut self) {
        for limit in [&mut self.out, &mut self.inward].into_iter().flatten() {
            limit.holds = false;
        }
    }

    /// So many bytes go this way, at whatever cost.
    pub fn passed(&mut self, way: Direction, bytes: usize) {
        if let Some(limit) = self.limit(way) {
            limit.bucket.spend(bytes);
        }
        if let Some(bucket) = &mut self.guaranteed {
            bucket.spend(bytes);
        }
    }

    /// Whether this turn is one that it is guaranteed, which does not count among its others.
    pub fn is_within(&self) -> bool {
        self.is_within
    }

    /// A turn begins. `brief`: others wait for answers.
    pub fn begin(&mut self, now: Instant, brief: bool) {
        let quantum = if brief { BRIEF } else { QUANTUM };
        // What was not used is not saved; what was overdrawn is owed.
        self.credit = (self.credit + quantum).min(quantum);
        self.is_within = self.guaranteed.as_mut().is_some_and(|bucket| bucket.level(now) > 0);
        (self.used, self.moved) = (false, None);
        (self.begun, self.allowed) = (Some(now), self.credit);
    }

    /// A turn is over. Some: nothing came of many in a row, so it is not looked at until then.
    pub fn end(&mut self, now: Instant) -> Option<Instant> {
        if let Some(begun) = self.begun.take() {
            let time = cost(now.saturating_duration_since(begun)).min(MOST_TIME);
            let charged = self.allowed.saturating_sub(self.credit);
            let more = isize::try_from(time).unwrap_or(isize::MAX).saturating_sub(charged);
            self.credit = self.credit.saturating_sub(more.max(0));
        }
        self.in_vain = if self.used { 0 } else { self.in_vain + 1 };
        if self.in_vain < IN_VAIN {
            return None;
        }
        self.in_vain = 0;
        Some(now + PAUSE)
    }

    /// Whether the turn must end.
    pub fn is_spent(&self) -> bool {
        self.credit <= 0
            || self.used
                && self.begun.is_some_and(|begun| {
                    cost(begun.elapsed()) >= u64::try_from(self.allowed).unwrap_or_default()
                })
    }

    /// So many bytes were moved by a call of the host.
    pub fn moved(&mut self, way: Direction, bytes: usize) {
        self.moved = Some(self.moved.unwrap_or(0).saturating_add(bytes));
        self.launched(way, bytes);
    }

    /// The same for a datagram that it sends.
    pub fn launched(&mut self, way: Direction, bytes: usize) {
        self.passed(way, bytes);
        self.take(bytes + CALL);
    }

    /// Whether bytes of streams were moved in this turn, or some came.
    pub fn has_moved(&self) -> bool {
        self.moved.is_some()
    }

    /// Whether these were as few as a question or its answer has.
    pub fn has_moved_few(&self) -> bool {
        self.moved.is_some_and(|bytes| bytes <= FEW)
    }

    /// A request is carried out, or a caller let in.
    pub fn asked(&mut self) {
        self.take(REQUEST);
    }

    /// Requests it may make in this turn.
    pub fn requests(&self) -> usize {
        usize::try_from(self.credit).map_or(0, |credit| credit.div_ceil(REQUEST))
    }

    /// It has taken an answer, or has room for one.
    pub fn answered(&mut self) {
        self.used = true;
    }

    fn take(&mut self, cost: usize) {
        self.used = true;
        self.credit = self.credit.saturating_sub_unsigned(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn that takes no time, however slow this machine is.
    fn ahead() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn turns_are_guaranteed_as_long_as_fewer_bytes_were_moved() {
        let begun = Instant::now();
        let mut s = Share::default();
        s.begin(begun, false);
        assert!(!s.is_within(), "nothing was guaranteed");
        s.set_rates(Rates { guaranteed: Some(10 << 20), ..Rates::default() }, begun);
        for _ in 0..2 {
            s.begin(begun, false);
            assert!(s.is_within());
            s.moved(Direction::In, 512 << 10);
        }
        s.moved(Direction::Out, 512 << 10);
        s.begin(begun, false);
        assert!(!s.is_within(), "a tenth of a second's bytes at once");
        s.begin(begun + Duration::from_millis(50), false);
        assert!(!s.is_within());
        s.begin(begun + Duration::from_millis(100), false);
        assert!(s.is_within());
    }

    #[test]
    fn what_is_overdrawn_is_owed_and_what_is_left_is_not_saved() {
        let mut s = Share::default();
        for _ in 0..3 {
            s.begin(ahead(), false);
            assert_eq!(s.credit, QUANTUM);
        }
        s.moved(Direction::Out, 2 * QUANTUM.unsigned_abs());
        assert!(s.is_spent() && s.requests() == 0);
        s.begin(ahead(), false);
        assert!(s.is_spent());
        s.begin(ahead(), false);
        assert!(!s.is_spent() && s.requests() > 0);
        while !s.is_spent() {
            s.asked();
        }
    }

    #[test]
    fn who_has_nothing_to_say_is_not_heard_for_a_while() {
        let (mut s, now) = (Share::default(), Instant::now());
        let mut turns = |work: &dyn Fn(u32) -> bool| {
            (0..3 * IN_VAIN)
                .filter(|i| {
                    s.begin(ahead(), false);
                    if work(*i) {
                        s.moved(Direction::In, 1);
                    }
                    s.end(now).is_some()
                })
                .count()
        };
        assert_eq!(turns(&|i| i % IN_VAIN == 0), 0);
        assert_eq!(turns(&|_| false), 3);
    }

    #[test]
    fn time_is_charged_where_calls_cost_more_than_their_bytes() {
        let (mut s, now) = (Share::default(), Instant::now());
        let whole = Duration::from_nanos(QUANTUM.unsigned_abs() as u64 / SPEED);
        s.begin(now.checked_sub(whole).unwrap(), false);
        assert!(!s.is_spent(), "one call a turn at least");
        s.moved(Direction::Out, 1);
        assert!(s.is_spent());
        assert_eq!(s.end(now), None);
        assert_eq!(s.credit, 0);
        // Who was kept waiting in its turn does not owe all of that.
        s.begin(now, false);
        s.moved(Direction::Out, 1);
        let _ = s.end(now + Duration::from_secs(1));
        assert_eq!(s.credit, -QUANTUM);
    }

    #[test]
    fn a_brief_turn_is_a_quarter_of_a_whole_one_and_what_is_owed_is_owed_in_it() {
        let mut s = Share::default();
        s.begin(ahead(), false);
        s.begin(ahead(), true);
        assert_eq!(s.credit, BRIEF);
        s.moved(Direction::Out, BRIEF.unsigned_abs() - CALL);
        assert!(s.is_spent());
        s.moved(Direction::Out, BRIEF.unsigned_abs() - CALL);
        s.begin(ahead(), true);
        assert!(s.is_spent());
        s.begin(ahead(), false);
        assert_eq!(s.credit, QUANTUM);
    }

    #[test]
    fn a_question_and_its_answer_are_few_bytes_in_a_turn() {
        let mut s = Share::default();
        s.begin(ahead(), false);
        assert!(!s.has_moved_few(), "nothing is not few");
        s.launched(Direction::Out, 1);
        assert!(!s.has_moved_few(), "what it sends as datagrams does not count");
        s.moved(Direction::In, FEW - 1);
        s.moved(Direction::Out, 1);
        assert!(s.has_moved_few() && s.has_moved());
        s.moved(Direction::Out, 1);
        assert!(!s.has_moved_few() && s.has_moved());
    }
}
