//! File locks: POSIX record locks, open file description locks, flock.
//!
//! Key type: [`Locks`], attached to an inode. Record locks (POSIX and OFD) share one set of ranges; flock has
//! a set of its own. Lock order: a file's locks → the wait graph.

mod outside;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use doppel_algo::record_locks::{self, RecordLocks};
use doppel_machine::sync::SpinLock;

use super::Attachments;
use crate::core::part::Part;
use crate::core::sched::{Mutex, WaitQueue, wait_until};
use crate::{Errno, Result};

pub use outside::{Outside, Scope};

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
    /// Processes whose edges in the wait graph come from conflicts with `records` as they are.
    waiting: Vec<i32>,
}

/// The locks of one file.
#[derive(Default)]
pub struct Locks {
    state: SpinLock<State>,
    changed: WaitQueue,
    /// Who changes locks that others outside see.
    turn: Mutex<()>,
}

/// Which process waits for a lock of which other (EDEADLK). An edge holds only while the locks it came from are
/// unchanged: it is made under their file's lock, and any change takes it away, so that a woken waiter which has not
/// run yet closes no circle. Whoever still has to wait makes a new one.
#[derive(Default)]
pub(crate) struct WaitGraph {
    edges: SpinLock<BTreeMap<i32, i32>>,
}

/// The domain's.
pub(crate) static WAIT_GRAPH: Part<WaitGraph> = Part::new();

/// Most locks on one file.
const LOCKS_MAX: usize = 1 << 16;

/// The locks of a file with these attachments: EINVAL if it cannot have any.
pub fn of(slot: Option<&Attachments>) -> Result<Arc<Locks>> {
    Ok(slot.ok_or(Errno::EINVAL)?.get_or_insert(Locks::default))
}

/// What keeps an open file from a lock of `flock`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    /// Somebody here has one that conflicts.
    Taken,
    /// The domain has one of this kind.
    Had,
    /// Nothing here.
    Free,
}

impl State {
    fn is_taken(&self, file: u64, exclusive: bool) -> bool {
        self.whole.iter().any(|(f, e)| *f != file && (*e || exclusive))
    }

    /// Looks for a lock of `flock`. A change of kind gives the old one up first, as on Linux; the second: it did.
    fn try_whole(&mut self, file: u64, exclusive: bool) -> (Whole, bool) {
        let had = self.whole.len();
        self.whole.retain(|(f, e)| *f != file || *e == exclusive);
        let gave_up = self.whole.len() != had;
        let state = match () {
            () if self.is_taken(file, exclusive) => Whole::Taken,
            // Who is not in the way has the same kind.
            () if !self.whole.is_empty() => Whole::Had,
            () => Whole::Free,
        };
        (state, gave_up)
    }

    fn add_whole(&mut self, file: u64, exclusive: bool) {
        if !self.whole.iter().any(|(f, _)| *f == file) {
            self.whole.push((file, exclusive));
        }
    }
}

impl Locks {
    /// The first lock that keeps `want` from being set.
    pub fn conflict(&self, want: &Range) -> Option<Range> {
        self.state.lock().records.conflict(want).copied()
    }

    /// The first lock of the same owner in the range.
    pub fn own(&self, range: &Range) -> Option<Range> {
        self.state.lock().records.own(range).copied()
    }

    /// Sets (or with `unlock` clears) a record lock; waits if `block`, else EAGAIN.
    pub fn set(&self, want: Range, unlock: bool, block: bool) -> Result<()> {
        let attempt = |wait: bool| {
            let mut s = self.state.lock();
            if !unlock && let Some(r) = s.records.conflict(&want) {
                let holder = r.owner;
                return if !wait { Err(Errno::EAGAIN) } else { s.wait(want.owner, holder).map(|()| false) };
            }
            s.apply(want, unlock).map(|()| true)
        };
        match attempt(false) {
            Err(Errno::EAGAIN) if block => {
                let r = wait_until(&self.changed, None, || match attempt(true) {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(())),
                    Err(e) => Some(Err(e)),
                });
                // After a signal the edge is still there.
                self.state.lock().stop(want.owner);
                r??;
            }
            r => _ = r?,
        }
        self.changed.notify_all();
        Ok(())
    }

    /// flock: `None` unlocks, `Some(exclusive)` locks; waits if `block`, else EAGAIN.
    pub fn flock(&self, file: u64, lock: Option<bool>, block: bool) -> Result<()> {
        let Some(exclusive) = lock else {
            self.state.lock().whole.retain(|(f, _)| *f != file);
            self.changed.notify_all();
            return Ok(());
        };
        let try_lock = || {
            let mut s = self.state.lock();
            let (state, gave_up) = s.try_whole(file, exclusive);
            let locked = state != Whole::Taken;
            if locked {
                s.add_whole(file, exclusive);
            }
            (locked, gave_up)
        };
        let (locked, gave_up) = try_lock();
        if gave_up {
            self.changed.notify_all();
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
            s.moved();
            s.records.len() + s.whole.len() != before
        };
        if changed {
            self.changed.notify_all();
        }
    }

    /// Drops the record locks of a process, and all of an open file.
    pub fn drop_of(&self, pid: Option<i32>, file: Option<u64>) {
        let owners = [pid.map(Owner::Process), file.map(Owner::File)];
        self.drop_where(|r| owners.contains(&Some(r.owner)), |f| file == Some(f));
    }

    /// Every lock for /proc/locks: kind, process (-1 if none), whether exclusive, first and last byte. `pid` is who is
    /// said to hold those of flock.
    pub fn rows(&self, pid: i32) -> Vec<(&'static str, i32, bool, u64, u64)> {
        let s = self.state.lock();
        let records = s.records.iter().map(|r| match r.owner {
            Owner::Process(p) => ("POSIX", p, r.exclusive, r.start, r.end),
            Owner::File(_) => ("OFDLCK", -1, r.exclusive, r.start, r.end),
        });
        let whole = s.whole.iter().map(|(_, exclusive)| ("FLOCK", pid, *exclusive, 0, i64::MAX as u64));
        records.chain(whole).collect()
    }

    /// Lines of /proc/PID/fdinfo/N: the locks that the process or the open file holds.
    pub fn describe(&self, file: u64, pid: i32, out: &mut String) {
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
        self.moved();
        Ok(())
    }

    /// Notes that `me` waits for `holder`.
    fn wait(&mut self, me: Owner, holder: Owner) -> Result<()> {
        let (Owner::Process(me), Owner::Process(holder)) = (me, holder) else { return Ok(()) };
        if !WAIT_GRAPH.get().wait(me, holder) {
            return Err(Errno::EDEADLK);
        }
        if !self.waiting.contains(&me) {
            self.waiting.push(me);
        }
        Ok(())
    }

    /// `me` waits no longer.
    fn stop(&mut self, me: Owner) {
        if let Owner::Process(me) = me
            && let Some(k) = self.waiting.iter().position(|p| *p == me)
        {
            self.waiting.swap_remove(k);
            WAIT_GRAPH.get().stop(me);
        }
    }

    /// The record locks changed: all who wait for one have to look again.
    fn moved(&mut self) {
        if !self.waiting.is_empty() {
            let graph = WAIT_GRAPH.get();
            self.waiting.drain(..).for_each(|p| graph.stop(p));
        }
    }
}

impl WaitGraph {
    /// Notes that `me` waits for `holder`; false if that closes a circle.
    fn wait(&self, me: i32, holder: i32) -> bool {
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

    fn stop(&self, me: i32) {
        self.edges.lock().remove(&me);
    }
}
