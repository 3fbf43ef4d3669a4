//! What all domains together have of the host's inotify, which counts instances and watches by user: others of that user want some, too.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One in so many of what the host allows a user is for this process.
const PART: usize = 4;

/// How many are left.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<AtomicUsize>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share(Arc<AtomicUsize>);

impl Budget {
    /// Of what this file of the host's limits says.
    pub fn of(limit: &str) -> Self {
        let said = std::fs::read_to_string(Path::new("/proc/sys/fs/inotify").join(limit));
        // A host without it has no inotify, and says so.
        let most = said.ok().and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(PART);
        Self::new(most / PART)
    }

    fn new(left: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(left)))
    }

    /// One, if there is one left.
    pub fn take(&self) -> Option<Share> {
        let taken = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        taken.is_ok().then(|| Share(self.0.clone()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_had_again() {
        let budget = Budget::new(2);
        let (one, two) = (budget.take(), budget.take());
        assert!(one.is_some() && two.is_some() && budget.take().is_none());
        drop(one);
        let again = budget.take();
        assert!(again.is_some() && budget.take().is_none());
        assert!(Budget::of("max_user_watches").take().is_some());
    }
}
