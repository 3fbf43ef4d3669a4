//! The vCPU that the service wakes itself: one on which a thread sleeps that has been busy with sockets outside.
//!
//! Without one PID 1 is woken, which wakes the thread: twice through the host. The vCPU sleeps on its own word and on the
//! channel's bell, so whoever in the domain has work for it wakes it as ever, whatever the service does.

use core::sync::atomic::{AtomicU32, Ordering};

use doppel_abi_service::sleeps;
use doppel_machine::{host, network as channel};

use super::Network;
use super::network;
use crate::core::sched;

/// The current thread uses a socket outside: what it waits for next may come from there.
pub fn used() {
    sched::goes_outside();
}

impl sched::Outside for Network {
    type Watch<'a> = Watch<'a>;

    fn get() -> Option<&'static Self> {
        network()
    }

    fn release(&self) {
        Self::release(self);
    }

    fn rings(&self) -> bool {
        channel::header().bell.load(Ordering::SeqCst) != self.heard.load(Ordering::Relaxed)
    }

    /// The thread runs on then, and looks again before it sleeps.
    fn look_in_place(&self) {
        self.serve(sleeps::SOON);
    }

    fn watch(&self) -> Option<Watch<'_>> {
        Watch::take(self)
    }
}

/// The right to be woken by the service. One vCPU of a domain has it.
pub struct Watch<'a>(&'a Network);

impl<'a> Watch<'a> {
    /// Takes it; none if another vCPU has it.
    fn take(network: &'a Network) -> Option<Self> {
        if network.watched.load(Ordering::Relaxed) || network.watched.swap(true, Ordering::SeqCst) {
            return None;
        }
        channel::header().watched.store(1, Ordering::SeqCst);
        Some(Self(network))
    }
}

impl sched::Watch for Watch<'_> {
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

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        channel::header().watched.store(0, Ordering::SeqCst);
        self.0.watched.store(false, Ordering::SeqCst);
    }
}
