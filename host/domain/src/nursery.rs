//! Threads that start domains and never end.
//!
//! The host kills a domain's first process when the *thread* that forked it ends. What is started here lives as long
//! as the process does, whichever thread asked for it, and several are started at a time.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;

use crate::core::lock;

/// As many as help: a start is work for one CPU, here and in the host kernel.
const MOST: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// Does `job` on one of the threads.
pub(crate) fn run(job: Job) {
    static JOBS: OnceLock<Sender<Job>> = OnceLock::new();
    let jobs = JOBS.get_or_init(|| {
        let (sender, receiver) = channel::<Job>();
        // Nobody ever ends them, so the queue is leaked.
        let queue: &'static Mutex<Receiver<Job>> = Box::leak(Box::new(Mutex::new(receiver)));
        for _ in 0..thread::available_parallelism().map_or(1, |n| n.get().min(MOST)) {
            thread::spawn(move || {
                doppel_sys::signal::block_all();
                loop {
                    let Ok(job) = lock(queue).recv() else { return };
                    job();
                }
            });
        }
        sender
    });
    jobs.send(job).expect("the threads never end");
}
