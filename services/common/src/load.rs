//! Whether the host has more to run than CPUs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// How long an answer holds: looking costs a microsecond or two.
const HOLDS: Duration = Duration::from_micros(500);

/// The host's load.
#[derive(Debug)]
pub struct Load {
    file: File,
    cpus: usize,
    /// The last answer, and when it was found.
    last: Option<(Instant, bool)>,
}

impl Load {
    /// Opens what tells of it, which needs no right later.
    ///
    /// # Errors
    /// What the host says.
    pub fn open() -> io::Result<Self> {
        Self::of_cpus(std::thread::available_parallelism()?.get())
    }

    /// The same for a host of so many CPUs.
    ///
    /// # Errors
    /// What the host says.
    pub fn of_cpus(cpus: usize) -> io::Result<Self> {
        Ok(Self { file: File::open("/proc/loadavg")?, cpus, last: None })
    }

    /// Whether there is no CPU for somebody who wants one.
    pub fn is_crowded(&mut self, now: Instant) -> bool {
        if let Some((at, crowded)) = self.last
            && now.saturating_duration_since(at) < HOLDS
        {
            return crowded;
        }
        let mut text = [0; 64];
        // Who cannot know makes room.
        let crowded = self
            .file
            .read_at(&mut text, 0)
            .ok()
            .and_then(|n| running(&text[..n]))
            .is_none_or(|n| n > self.cpus);
        self.last = Some((now, crowded));
        crowded
    }
}

/// How many tasks run or want to: the number before the bar in "0.00 0.00 0.00 2/345 6789".
fn running(loadavg: &[u8]) -> Option<usize> {
    std::str::from_utf8(loadavg).ok()?.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_runs_itself() {
        let load = Load::open().unwrap();
        let text = std::fs::read("/proc/loadavg").unwrap();
        assert!(running(&text) >= Some(1) && load.cpus >= 1);
        assert_eq!(running(b"0.00 0.01 0.05 3/210 4242\n"), Some(3));
        assert_eq!(running(b"nonsense"), None);
    }

    #[test]
    fn an_answer_holds_for_a_while() {
        let (mut load, now) = (Load::open().unwrap(), Instant::now());
        load.last = Some((now, true));
        load.cpus = usize::MAX;
        assert!(load.is_crowded(now + HOLDS / 2));
        assert!(!load.is_crowded(now + HOLDS));
    }
}
