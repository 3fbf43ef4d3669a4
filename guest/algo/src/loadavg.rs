//! Load averages, as Linux computes them, from the CPU time used between two looks.
//!
//! Linux samples the number of runnable tasks every 5 seconds. A domain has no such tick: the average number of
//! CPUs in use since the last look takes the place of all samples that would have been taken meanwhile.

/// Fractional bits.
const SHIFT: u32 = 11;
const ONE: u64 = 1 << SHIFT;
/// e^(-5 s / 1, 5, 15 min).
const DECAY: [u64; 3] = [1884, 2014, 2037];
const STEP_NS: u64 = 5_000_000_000;

/// The three averages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadAvg {
    avg: [u64; 3],
    /// Time and CPU time of the last update.
    at_ns: u64,
    cpu_ns: u64,
}

/// `x^n` in fixed point.
fn power(mut x: u64, mut n: u64) -> u64 {
    let mut r = ONE;
    while n > 0 {
        if n & 1 == 1 {
            r = (r * x + ONE / 2) >> SHIFT;
        }
        x = (x * x + ONE / 2) >> SHIFT;
        n >>= 1;
    }
    r
}

impl LoadAvg {
    /// Looks: at `now_ns`, all threads together have used `cpu_ns`.
    pub fn update(&mut self, now_ns: u64, cpu_ns: u64) {
        let steps = now_ns.saturating_sub(self.at_ns) / STEP_NS;
        if steps == 0 {
            return;
        }
        let gap_us = (now_ns - self.at_ns) / 1000;
        let used_us = cpu_ns.saturating_sub(self.cpu_ns) / 1000;
        let active = used_us.saturating_mul(ONE) / gap_us;
        for (avg, decay) in self.avg.iter_mut().zip(DECAY) {
            let e = power(decay, steps);
            *avg = (*avg * e + active.saturating_mul(ONE - e)) >> SHIFT;
        }
        (self.at_ns, self.cpu_ns) = (now_ns, cpu_ns);
    }

    /// The averages in hundredths.
    pub fn hundredths(&self) -> [u64; 3] {
        self.avg.map(|a| (a * 100 + ONE / 2) >> SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn one_busy_cpu_tends_to_one() {
        let mut l = LoadAvg::default();
        l.update(60 * S, 60 * S);
        let [one, five, fifteen] = l.hundredths();
        assert!((60..67).contains(&one) && (16..20).contains(&five) && (5..8).contains(&fifteen));
        l.update(3600 * S, 3600 * S);
        let [one, five, fifteen] = l.hundredths();
        assert!((97..=100).contains(&one) && (95..=100).contains(&five) && (95..=100).contains(&fifteen));
    }

    #[test]
    fn idleness_decays_and_short_gaps_wait() {
        let mut l = LoadAvg::default();
        l.update(600 * S, 1200 * S);
        let before = l.hundredths();
        l.update(604 * S, 1200 * S);
        assert_eq!(l.hundredths(), before);
        l.update(900 * S, 1200 * S);
        assert!(l.hundredths()[0] < 5 && l.hundredths()[2] < before[2]);
    }

    #[test]
    fn clocks_that_stand_still_are_harmless() {
        let mut l = LoadAvg::default();
        l.update(100 * S, 50 * S);
        l.update(90 * S, 40 * S);
        l.update(200 * S, 10 * S);
        assert!(l.hundredths()[0] < 50);
        l.update(u64::MAX, u64::MAX);
    }
}
