//! Threads for work that waits, in a process whose host may have none left to give.
//!
//! Each piece of work gets a thread of its own while it lasts: it may wait for a domain that does as it likes. If the
//! host gives none (a limit of tasks, no memory), the few made beforehand do what must be done ([`run`]): later, but
//! done. What a domain wishes for itself must not keep these busy; whoever calls [`try_run`] answers for it.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use doppel_sys::signal::spawn_blocked;

use crate::lock::lock;

/// Threads made beforehand.
const RESERVE: usize = 2;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

static RESERVED: Mutex<Option<Sender<Job>>> = Mutex::new(None);

/// Makes those threads, if they are not there; they never end.
///
/// # Errors
/// What the host says.
pub(crate) fn prepare() -> io::Result<()> {
    let mut reserved = lock(&RESERVED);
    if reserved.is_none() {
        *reserved = Some(workers("reserve", RESERVE)?);
    }
    Ok(())
}

/// Threads that do what is sent, one after the other, for ever; an error only if there would be none at all.
pub(crate) fn workers(name: &str, count: usize) -> io::Result<Sender<Job>> {
    let (sender, receiver) = channel::<Job>();
    // Nobody ever ends them, so the queue is leaked.
    let queue: &'static Mutex<Receiver<Job>> = Box::leak(Box::new(Mutex::new(receiver)));
    let work = move || {
        loop {
            let Ok(job) = lock(queue).recv() else { return };
            job();
        }
    };
    for made in 0..count {
        match spawn_blocked(name, work) {
            Err(error) if made == 0 => return Err(error),
            // Fewer do as well.
            Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(sender)
}

/// Does `job` on a thread of its own, or gives it back if the host has none.
pub(crate) fn try_run(job: Job) -> Result<(), Job> {
    let job = Arc::new(Mutex::new(Some(job)));
    let its = job.clone();
    let work = move || {
        let job = lock(&its).take();
        if let Some(job) = job {
            job();
        }
    };
    match spawn_blocked("job", work) {
        Ok(_) => Ok(()),
        // No thread, so nobody has taken it.
        Err(_) => lock(&job).take().map_or(Ok(()), Err),
    }
}

/// Does `job` on a thread of its own, or on one of those made beforehand as soon as one is free.
pub(crate) fn run(job: Job) {
    if let Err(job) = try_run(job) {
        leave(job);
    }
}

/// Leaves `job` to those made beforehand.
pub(crate) fn leave(job: Job) {
    let reserved = lock(&RESERVED).clone();
    match reserved {
        // They never end, so it is taken.
        Some(reserved) => _ = reserved.send(job),
        // Whoever did not prepare waits for it.
        None => job(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_wherever_it_goes() {
        prepare().unwrap();
        let (tell, told) = channel();
        for how in [run, leave, |job| assert!(try_run(job).is_ok())] {
            let tell = tell.clone();
            how(Box::new(move || tell.send(()).unwrap()));
            told.recv().unwrap();
        }
    }
}
