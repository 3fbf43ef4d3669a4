//! System V semaphores (`semget(2)`, `semop(2)`), with undo at process exit.
//!
//! Key types: [`Set`], [`Undos`] (what each process' SEM_UNDO operations add up to).
//! Lock order: a set's state → undo table.

use alloc::collections::BTreeMap;

use doppel_machine::sync::SpinLock;

use super::namespace::here;
use super::sem_state::{Done, SEMVMX, SemBuf, SemFlags, State};
use super::{Entry, Perm};
use crate::core::sched::WaitQueue;
use crate::{Errno, Result};

/// A set of semaphores.
pub struct Set {
    pub(crate) perm: SpinLock<Perm>,
    pub(crate) state: SpinLock<State>,
    pub(crate) changed: WaitQueue,
}

impl Entry for Set {
    fn perm(&self) -> &SpinLock<Perm> {
        &self.perm
    }
}

/// Adjustments of one process: (set, semaphore) → amount.
type Undo = BTreeMap<(i32, u16), i32>;

/// Adjustments at exit, by process.
#[derive(Default)]
pub(crate) struct Undos(pub(crate) SpinLock<BTreeMap<i32, Undo>>);

/// What undo counts of operations that were done.
fn note_all(id: i32, done: &[Done]) {
    for d in done {
        note_undo(id, &d.ops, d.pid);
    }
}

impl Set {
    /// Changes values, and does what waited for that, in the caller's name: a waiter has what it got even if the set is
    /// removed or changed again before it runs.
    pub(crate) fn change<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let (t, woken) = {
            let mut s = self.state.lock();
            let t = f(&mut s);
            let done = s.settle();
            note_all(self.perm.lock().id, &done);
            (t, !done.is_empty())
        };
        if woken {
            self.changed.notify_all();
        }
        t
    }

    /// One attempt at `ops`, or a look at what became of them. `None` if they must wait.
    pub(crate) fn attempt(&self, ops: &[SemBuf], pid: i32, ticket: &mut Option<u64>) -> Option<Result<()>> {
        if let Some(t) = *ticket {
            let found = self.state.lock().outcome(t)?;
            *ticket = None;
            return Some(found);
        }
        self.change(|s| match s.apply(ops, pid) {
            Err(e) => Some(Err(e)),
            Ok(Ok(())) => {
                note_undo(self.perm.lock().id, ops, pid);
                Some(Ok(()))
            }
            Ok(Err(b)) if b.nowait => Some(Err(Errno::EAGAIN)),
            Ok(Err(b)) => {
                *ticket = Some(s.wait(ops, pid, b));
                None
            }
        })
    }
}

/// Remembers what SEM_UNDO operations have to be taken back.
fn note_undo(id: i32, ops: &[SemBuf], pid: i32) {
    if ops.iter().all(|o| !o.flags().contains(SemFlags::UNDO)) {
        return;
    }
    let here = here();
    let mut t = here.undos.0.lock();
    let mine = t.entry(pid).or_default();
    for o in ops.iter().filter(|o| o.flags().contains(SemFlags::UNDO)) {
        *mine.entry((id, o.num)).or_default() -= i32::from(o.op);
    }
}

/// Undoes the SEM_UNDO operations of a process that ends.
pub fn process_exit(pid: i32) {
    let here = here();
    let Some(mine) = here.undos.0.lock().remove(&pid) else { return };
    for ((id, num), amount) in mine {
        let Ok(set) = here.sets.find(id) else { continue };
        set.change(|s| {
            if let Some(sem) = s.sems.get_mut(usize::from(num)) {
                sem.value = (sem.value + amount).clamp(0, SEMVMX);
                sem.pid = pid;
            }
        });
    }
}
