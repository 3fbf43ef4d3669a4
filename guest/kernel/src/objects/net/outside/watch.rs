//! The vCPU that the service wakes itself: one on which a thread sleeps that has been busy with sockets outside.
//!
//! Without one PID 1 is woken, which wakes the thread: twice through the host. The vCPU sleeps on its own word and on the
//! channel's bell, so whoever in the domain has work for it wakes it as ever, whatever the service does.

use core::sync::atomic::{AtomicU32, Ordering};

use doppel_abi_service::sleeps;
use doppel_machine::{host, network as channel};

use super::Network;
use crate::core::sched;

/// The network service, among a thread's sources of wake-ups.
pub const SOURCE: u8 = 1;

/// The current thread uses a socket outside: what it waits for next may come from there.
pub fn used() {
    sched::goes_outside(SOURCE);
}

impl Network {
    /// Whether there is news.
    pub fn rings(&self) -> bool {
        channel::header().bell.load(Ordering::SeqCst) != self.heard.load(Ordering::Relaxed)
    }

    /// Takes the news, for a thread that runs on then, and looks again before it sleeps.
    pub fn look_in_place(&self) {
        self.serve(sleeps::SOON);
    }
}

/// The right to be woken by the service. One vCPU of a domain has it.
pub struct Watch(&'static Network);

impl Watch {
    /// Takes it; none if another vCPU has it.
    pub fn take(network: &'static Network) -> Option<Self> {
        if network.watched.load(Ordering::Relaxed) || network.watched.swap(true, Ordering::SeqCst) {
            return None;
        }
        channel::header().watched.store(1, Ordering::SeqCst);
        Some(Self(network))
    }
}

impl sched::Watch for Watch {
    fn sleep(&self, word: &AtomicU32, seen: u32, deadline: Option<u64>) {
        let header = channel::header();
        let heard = self.0.heard.load(Ordering::SeqCst);
        if self.0.link.lock().sleep(sleeps::IDLE) || header.bell.load(Ordering::SeqCst) != heard {
            return;
        }
        if !host::futex_wait_either([(word, seen), (&header.bell, heard)], deadline) {
            // An older host: PID 1 is woken, as if nobody watched.
            header.watched.store(0, Ordering::SeqCst);
            host::futex_wait(word, seen, deadline);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        channel::header().watched.store(0, Ordering::SeqCst);
        self.0.watched.store(false, Ordering::SeqCst);
    }
}
