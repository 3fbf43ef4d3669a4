//! Rounds of paging for the domains of this process, on a thread of its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::run::state::Core;

/// How long at most until it is seen that a domain is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The thread, once there is a domain with a target; it never ends.
static PAGER: Mutex<Option<Sender<Weak<Core>>>> = Mutex::new(None);

/// Has rounds made for a domain as long as it lives and has a target; also when the target has changed.
pub(crate) fn look_after(core: &Arc<Core>) {
    if core.paging_due().is_none() {
        return;
    }
    let mut pager = lock(&PAGER);
    if pager.is_none() {
        let (sender, receiver) = channel();
        // Without a thread nothing is paged out, which is no harm; the next domain tries again.
        let made = doppel_sys::signal::spawn_blocked("pager", move || rounds(&receiver));
        *pager = made.is_ok().then_some(sender);
    }
    if let Some(sender) = &*pager {
        // The same holds if the thread has panicked.
        let _ = sender.send(Arc::downgrade(core));
    }
}

fn rounds(fresh: &Receiver<Weak<Core>>) {
    let mut members: Vec<Weak<Core>> = Vec::new();
    let mut next = Instant::now() + LOOK_AGAIN;
    loop {
        match fresh.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(member) if !members.iter().any(|m| m.ptr_eq(&member)) => members.push(member),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        next = Instant::now() + LOOK_AGAIN;
        members.retain(|member| {
            let Some(core) = member.upgrade().filter(|core| !core.is_dead()) else { return false };
            if core.paging_due().is_some_and(|due| due <= Instant::now()) {
                core.page();
            }
            let Some(due) = core.paging_due() else { return false };
            next = next.min(due);
            true
        });
    }
}
