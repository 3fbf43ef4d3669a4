//! Signals to the owners of open files (`vfs::sigio`).

use alloc::sync::Arc;

use super::{SigInfo, send_process, send_thread, sig};
use crate::Errno;
use crate::objects::vfs::sigio::{OWNERS, Owner, Owners};
use crate::process::task::{Process, TASKS};

fn exist(owner: Owner) -> bool {
    match owner {
        Owner::None => true,
        Owner::Thread(n) => TASKS.thread(n).is_ok(),
        Owner::Process(n) => TASKS.process(n).is_ok(),
        Owner::Group(n) => TASKS.all_processes().iter().any(|p| p.pgid() == n),
    }
}

/// Whether somebody with this real and effective user may signal `p`.
fn may([ruid, euid]: [u32; 2], p: &Process) -> bool {
    let c = p.cred();
    euid == 0 || [ruid, euid].iter().any(|u| *u == c.suid || *u == c.ruid)
}

/// A full queue still gets the plain signal.
fn send(owner: Owner, by: [u32; 2], info: SigInfo) {
    let post = |p: &Arc<Process>| {
        if may(by, p) && send_process(p, info) == Err(Errno::EAGAIN) {
            let _ = send_process(p, SigInfo::kernel(sig::SIGIO));
        }
    };
    match owner {
        Owner::None => {}
        Owner::Thread(n) => {
            if let Ok(t) = TASKS.thread(n)
                && may(by, &t.process)
            {
                let _ = send_thread(&t, info);
            }
        }
        Owner::Process(n) => {
            if let Ok(p) = TASKS.process(n) {
                post(&p);
            }
        }
        Owner::Group(n) => TASKS.all_processes().iter().filter(|p| p.pgid() == n).for_each(post),
    }
}

/// Gives open files their way to their owners; once, at boot.
pub(crate) fn offer() {
    OWNERS.set(Owners { exist, send });
}
