//! How CPUs are divided: weighted max-min fairness with guarantees, as Xen's and Linux-VServer's schedulers promise it.

/// What a domain is entitled to and what it could use, in CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Its part among others.
    pub weight: f64,
    /// What it gets first.
    pub reserved: f64,
    /// What it would use; infinite if it takes all it can get.
    pub wants: f64,
}

/// What each of them gets of so many CPUs: nobody more than it wants, and beyond guarantees nobody less for its weight
/// than one that could do with less.
pub(super) fn shares(claims: &[Claim], cpus: f64) -> Vec<f64> {
    let given = |level: f64| -> Vec<f64> {
        claims.iter().map(|c| (level * c.weight).max(c.reserved).min(c.wants)).collect()
    };
    let sum = |level: f64| given(level).iter().sum::<f64>();
    // The level at which all is given; reservations together fit (they are refused otherwise), and rise with it.
    let (mut low, mut high) = (0.0, 1.0);
    while sum(high) < cpus && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if sum(middle) < cpus { low = middle } else { high = middle }
    }
    given(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(weight: f64, reserved: f64, wants: f64) -> Claim {
        Claim { weight, reserved, wants }
    }

    #[track_caller]
    fn gives(claims: &[Claim], cpus: f64, expected: &[f64]) {
        let got = shares(claims, cpus);
        let near = got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near && got.len() == expected.len(), "{got:?}, not {expected:?}");
    }

    const ALL: f64 = f64::INFINITY;

    #[test]
    fn by_weight() {
        gives(&[claim(100.0, 0.0, ALL), claim(100.0, 0.0, ALL)], 2.0, &[1.0, 1.0]);
        gives(&[claim(100.0, 0.0, ALL), claim(300.0, 0.0, ALL)], 2.0, &[0.5, 1.5]);
    }

    #[test]
    fn what_one_does_not_want_is_the_others() {
        gives(
            &[claim(100.0, 0.0, 0.1), claim(100.0, 0.0, ALL), claim(100.0, 0.0, ALL)],
            2.0,
            &[0.1, 0.95, 0.95],
        );
        gives(&[claim(100.0, 0.0, 0.1), claim(100.0, 0.0, 0.2)], 2.0, &[0.1, 0.2]);
        gives(&[], 2.0, &[]);
    }

    #[test]
    fn reservations_come_first() {
        gives(&[claim(100.0, 1.5, ALL), claim(100.0, 0.0, ALL)], 2.0, &[1.5, 0.5]);
        gives(&[claim(100.0, 1.5, 0.2), claim(100.0, 0.0, ALL)], 2.0, &[0.2, 1.8]);
    }
}
