#![allow(clippy::disallowed_methods, reason = "a test may fail for want of a thread")]

extern crate std;

use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        core::hint::spin_loop();
    }
}

/// A writer's call must not go to a reader that sleeps on the same word. In each round two writers enter once, so
/// one that was forgotten stays so.
#[test]
fn writers_come_through_among_readers() {
    const ROUNDS: u64 = 2000;
    // Readers sleep with a deadline, which needs a clock.
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut u64) -> i32;
    }
    crate::clock::set_vdso(clock_gettime as *const () as u64);
    let shield: &'static Shield = Box::leak(Box::default());
    let over = Arc::new(AtomicBool::new(false));
    let (done, waiting) = mpsc::channel();
    let start = Arc::new(Barrier::new(2));
    for i in 0..2 {
        let over = over.clone();
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                shield.announce(&shield.slots[i].0);
                shield.slots[i].0.fetch_sub(1, Ordering::Release);
            }
        });
        let (start, done) = (start.clone(), done.clone());
        thread::spawn(move || {
            for round in 0..ROUNDS {
                start.wait();
                // The second one comes while the first is inside, at all moments of that time.
                spin(Duration::from_micros(i as u64 * (round % 40)));
                shield.shut();
                spin(Duration::from_micros(40));
                shield.open();
            }
            done.send(()).expect("the test has given up");
        });
    }
    for _ in 0..2 {
        waiting.recv_timeout(Duration::from_secs(30)).expect("a writer was forgotten");
    }
    over.store(true, Ordering::Relaxed);
}
