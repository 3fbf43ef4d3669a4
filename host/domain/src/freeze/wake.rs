//! What can wait until a woken domain runs: its working set is recorded for the next time, the rest of its image checked.

use std::sync::Arc;
use std::time::Duration;

use doppel_freezer::{FrozenImage, WorkingSet};

use crate::run::workers;
use crate::{Domain, Error};

/// How long after a wake touched pages count as its working set.
const FIRST: Duration = Duration::from_secs(1);

impl Domain {
    /// Does that for a domain that woke from an image opened with [`doppel_freezer::FrozenStore::open_to_wake`], on a
    /// thread of its own. If the image turns out to be damaged, the domain is killed. `tell` hears what goes wrong.
    ///
    /// # Errors
    /// What the host says.
    pub fn settle_wake(&self, tell: impl Fn(String) + Send + 'static) -> Result<(), Error> {
        let Some(image) = self.core.born.resume.as_ref().map(|r| r.image.clone()) else { return Ok(()) };
        let (killer, pid, core) = (self.killer()?, self.pid(), Arc::downgrade(&self.core));
        // Nobody waits for it; the process may end before.
        workers::run(Box::new(move || {
            std::thread::sleep(FIRST);
            // The image of one that has ended may be gone, and its process number another's.
            let lives = || core.upgrade().is_some_and(|core| !core.is_dead());
            if !lives() {
                return;
            }
            if let Err(error) = record(&image, pid, lives) {
                tell(format!("warning: no working set for the next wake: {error}"));
            }
            if let Err(error) = image.check_rest() {
                tell(format!("{error}; its domain is stopped"));
                killer.kill();
            }
        }));
        Ok(())
    }
}

fn record(image: &FrozenImage, pid: i32, lives: impl Fn() -> bool) -> Result<(), doppel_freezer::Error> {
    let touched = WorkingSet::observe(pid, &image.inodes()?)?;
    if lives() { touched.save(image.path()) } else { Ok(()) }
}
