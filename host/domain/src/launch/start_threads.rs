//! Threads that start domains and never end.
//!
//! The host kills a domain's first process when the *thread* that forked it ends. What is started here lives as long
//! as the process does, whichever thread asked for it, and several are started at a time.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::Sender;

use crate::lock::lock;
use crate::run::workers::{Job, workers};

/// As many as help: a start is work for one CPU, here and in the host kernel.
const MOST: usize = 4;

static JOBS: Mutex<Option<Sender<Job>>> = Mutex::new(None);

/// Makes the threads, if they are not there.
///
/// # Errors
/// What the host says.
pub(crate) fn prepare() -> io::Result<Sender<Job>> {
    let mut jobs = lock(&JOBS);
    if let Some(jobs) = &*jobs {
        return Ok(jobs.clone());
    }
    let count = std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST));
    Ok(jobs.insert(workers("start", count)?).clone())
}

/// Does `job` on one of the threads.
///
/// # Errors
/// If there is none.
pub(crate) fn run(job: Job) -> io::Result<()> {
    // They never end, so it is taken.
    prepare().map(|jobs| _ = jobs.send(job))
}
