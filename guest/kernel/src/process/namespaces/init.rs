//! The end of a PID namespace: with its first process all others in it end (`pid_namespaces(7)`).

use alloc::sync::Arc;

use crate::core::sched::wait_until_uninterruptible;
use crate::process::life::wait::reap;
use crate::process::namespaces::numbers;
use crate::process::signal::{sig, terminate};
use crate::process::task::{Process, TASKS, Thread};
use crate::{Errno, Result};

/// EPERM unless the thread may end its PID namespace: the first is the domain's own.
pub(crate) fn may_reboot(t: &Thread) -> Result<()> {
    const SYS_BOOT: u32 = 22;
    let here = numbers::of(&t.process);
    if here.is_first() || !t.cred().capable_in(here.user(), SYS_BOOT) { Err(Errno::EPERM) } else { Ok(()) }
}

/// Ends the thread's PID namespace; its first process ends with this signal.
pub(crate) fn reboot(t: &Thread, signal: i32) -> Result<u64> {
    let init = TASKS.process(numbers::of(&t.process).init())?;
    terminate(&init, signal);
    // The caller ends with it.
    terminate(&t.process, sig::SIGKILL);
    Ok(0)
}

/// The last thread of `p` ends: if it was the first process of its namespace, ends all others in it and waits until
/// they have ended, so that who waits for it finds none of them.
pub(crate) fn end_namespace(p: &Arc<Process>) {
    let Some(mine) = p.numbers.as_ref().filter(|n| n.is_init()) else { return };
    let here = &mine.namespace;
    here.end();
    p.signals.ignore_children();
    let others = || -> alloc::vec::Vec<Arc<Process>> {
        let all = TASKS.all_processes().into_iter();
        all.filter(|q| !Arc::ptr_eq(q, p) && numbers::of(q).is_within(here)).collect()
    };
    // No new ones come: whoever forks finds the namespace ended, or is found here.
    for q in others() {
        terminate(&q, sig::SIGKILL);
    }
    wait_until_uninterruptible(&here.ends, || {
        let left = others();
        for q in left.iter().filter(|q| q.is_zombie() && q.ppid() == p.pid) {
            reap(p, q);
        }
        left.iter().all(|q| q.is_zombie()).then_some(())
    });
}
