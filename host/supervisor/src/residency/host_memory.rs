//! What the host says of its memory.

use std::fs;

/// What it says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Bytes that can be given away without paging.
    pub available: u64,
    /// Hundredths of the last ten seconds in which some tasks waited for memory; 0 where the host does not tell.
    pub pressure: f64,
}

/// Asks it. A host that does not say has memory without end: nothing waits for what nobody could tell to be there.
pub(super) fn sample(with_pressure: bool) -> Sample {
    let told = || pressure(&fs::read_to_string("/proc/pressure/memory").ok()?);
    Sample {
        available: doppel_sys::memory::available().unwrap_or(u64::MAX),
        pressure: if with_pressure { told().unwrap_or(0.0) } else { 0.0 },
    }
}

fn pressure(psi: &str) -> Option<f64> {
    let some = psi.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_writes() {
        let psi =
            "some avg10=12.34 avg60=1.00 avg300=0.00 total=1\nfull avg10=9.00 avg60=0 avg300=0 total=0\n";
        assert_eq!(pressure(psi), Some(12.34));
        assert_eq!(pressure("full avg10=9.00"), None);
        assert!(sample(true).available > 0);
    }
}
