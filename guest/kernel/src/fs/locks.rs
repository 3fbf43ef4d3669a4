//! File locks: POSIX record locks, open file description locks, flock.
//!
//! Key type: [`Locks`], attached to an inode. Record locks (POSIX and OFD) share one set of ranges; flock has
//! a set of its own. Lock order: a file's locks → the wait graph.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use doppel_algo::record_locks::{self, RecordLocks};
use doppel_machine::sync::SpinLock;

use super::file::File;
use crate::sched::{WaitQueue, wait_until};
use crate::{Errno, Result, kernel};

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A process (POSIX).
    Process(i32),
    /// An open file description, by its id (OFD, flock).
    File(u64),
}

/// A locked range.
pub type Range = record_locks::Range<Owner>;

#[derive(Default)]
struct State {
    records: RecordLocks<Owner>,
    /// flock holders: file id and whether exclusive.
    whole: Vec<(u64, bool)>,
}

/// The locks of one file.
#[derive(Default)]
pub struct Locks {
    state: SpinLock<State>,
    changed: WaitQueue,
}

/// Which process waits for a lock of which other (EDEADLK).
#[derive(Default)]
struct WaitGraph {
    edges: SpinLock<BTreeMap<i32, i32>>,
}

/// Most locks on one file.
const LOCKS_MAX: usize = 1 << 16;

/// The locks of a file's inode: EINVAL if it cannot have any.
pub fn of(file: &File) -> Result<Arc<Locks>> {
    let slot = file.inode.as_ref().and_then(|i| i.attachments()).ok_or(Errno::EINVAL)?;
    Ok(slot.get_or_insert(Locks::default))
}

impl Locks {
    /// The first lock that keeps `want` from being set.
    pub fn conflict(&self, want: &Range) -> Option<Range> {
        self.state.lock().records.conflict(want).copied()
    }

    /// Sets (or with `unlock` clears) a record lock; waits if `block`, else EAGAIN.
    pub fn set(&self, want: Range, unlock: bool, block: bool) -> Result<()> {
        let try_set = || {
            let mut s = self.state.lock();
            if !unlock && let Some(r) = s.records.conflict(&want) {
                return Err(r.owner);
            }
            Ok(s.apply(want, unlock))
        };
        let done = match try_set() {
            Ok(r) => r,
            Err(_) if !block => return Err(Errno::EAGAIN),
            Err(holder) => self.wait_set(want.owner, holder, try_set)?,
        };
        done?;
        self.changed.wake_all(0);
        Ok(())
    }

    fn wait_set(
        &self,
        me: Owner,
        mut holder: Owner,
        mut try_set: impl FnMut() -> core::result::Result<Result<()>, Owner>,
    ) -> Result<Result<()>> {
        let graph = kernel().service::<WaitGraph>();
        let r = wait_until(&self.changed, None, || {
            match try_set() {
                Ok(r) => return Some(r),
                Err(h) => holder = h,
            }
            (!graph.wait(me, holder)).then_some(Err(Errno::EDEADLK))
        });
        graph.stop(me);
        r
    }

    /// flock: `None` unlocks, `Some(exclusive)` locks; waits if `block`, else EAGAIN.
    pub fn flock(&self, file: u64, lock: Option<bool>, block: bool) -> Result<()> {
        let Some(exclusive) = lock else {
            self.state.lock().whole.retain(|(f, _)| *f != file);
            self.changed.wake_all(0);
            return Ok(());
        };
        let try_lock = || {
            let mut s = self.state.lock();
            // A change of kind gives the old lock up first, as on Linux.
            let had = s.whole.len();
            s.whole.retain(|(f, e)| *f != file || *e == exclusive);
            let gave_up = s.whole.len() != had;
            if s.whole.iter().any(|(f, e)| *f != file && (*e || exclusive)) {
                return (false, gave_up);
            }
            if !s.whole.iter().any(|(f, _)| *f == file) {
                s.whole.push((file, exclusive));
            }
            (true, gave_up)
        };
        let (locked, gave_up) = try_lock();
        if gave_up {
            self.changed.wake_all(0);
        }
        if locked {
            return Ok(());
        }
        if !block {
            return Err(Errno::EAGAIN);
        }
        wait_until(&self.changed, None, || try_lock().0.then_some(()))
    }

    /// Drops what `keep` refuses, and wakes waiters if that was anything.
    fn drop_where(&self, records: impl Fn(&Range) -> bool, whole: impl Fn(u64) -> bool) {
        let changed = {
            let mut s = self.state.lock();
            let before = s.records.len() + s.whole.len();
            s.records.drop_where(&records);
            s.whole.retain(|(f, _)| !whole(*f));
            s.records.len() + s.whole.len() != before
        };
        if changed {
            self.changed.wake_all(0);
        }
    }

    fn describe(&self, file: u64, pid: i32, out: &mut String) {
        let s = self.state.lock();
        for r in s.records.iter() {
            let (kind, who) = match r.owner {
                Owner::Process(p) if p == pid => ("POSIX", p),
                Owner::File(f) if f == file => ("OFDLCK", -1),
                _ => continue,
            };
            let rw = if r.exclusive { "WRITE" } else { "READ" };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "lock:\t1: {kind}  ADVISORY  {rw} {who} {} {}", r.start, r.end);
        }
        for (f, exclusive) in &s.whole {
            if *f == file {
                let rw = if *exclusive { "WRITE" } else { "READ" };
                let _ = writeln!(out, "lock:\t1: FLOCK  ADVISORY  {rw} {pid} 0 EOF");
            }
        }
    }
}

impl State {
    /// Replaces the owner's locks in a range by the new one (or none).
    fn apply(&mut self, want: Range, unlock: bool) -> Result<()> {
        if self.records.len() >= LOCKS_MAX {
            return Err(Errno::ENOLCK);
        }
        if unlock {
            self.records.clear(&want)
        } else {
            self.records.set(want)
        }
        Ok(())
    }
}

impl WaitGraph {
    /// Notes that `me` waits for `holder`; false if that closes a circle.
    fn wait(&self, me: Owner, holder: Owner) -> bool {
        let (Owner::Process(me), Owner::Process(holder)) = (me, holder) else { return true };
        let mut e = self.edges.lock();
        let (mut at, mut steps) = (holder, 0);
        while let Some(next) = e.get(&at) {
            if *next == me {
                return false;
            }
            at = *next;
            steps += 1;
            if steps > e.len() {
                break;
            }
        }
        e.insert(me, holder);
        true
    }

    fn stop(&self, me: Owner) {
        if let Owner::Process(me) = me {
            self.edges.lock().remove(&me);
        }
    }
}

/// Lines of /proc/PID/fdinfo/N: the locks on the file that the process or the open file holds.
pub fn describe(file: &File, pid: i32, out: &mut String) {
    let slot = file.inode.as_ref().and_then(|i| i.attachments());
    if let Some(l) = slot.and_then(super::inode::Attachments::get::<Locks>) {
        l.describe(file.id, pid, out);
    }
}

/// A descriptor of `file` was closed by the current process; `last` if no descriptor is left anywhere.
pub(super) fn closed(file: &File, last: bool) {
    let slot = file.inode.as_ref().and_then(|i| i.attachments());
    let Some(locks) = slot.and_then(super::inode::Attachments::get::<Locks>) else { return };
    let pid = crate::task::current().process.pid;
    locks.drop_where(
        |r| r.owner == Owner::Process(pid) || (last && r.owner == Owner::File(file.id)),
        |f| last && f == file.id,
    );
}
