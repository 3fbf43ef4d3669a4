//! Locks of files that others than this kernel may lock as well: whoever is outside sees one holder, which is the domain.
//!
//! A lock is had outside first and noted here then, and given up outside once nobody here has a part of it any more; one change of a file's
//! locks at a time. Nobody outside tells when a lock becomes free, so who waits for that asks again and again.
//! Lock order: a file's turn → its locks.

use alloc::vec::Vec;

use super::{Locks, Owner, Range, Whole};
use crate::core::sched::{can_wait, wait_until};
use crate::core::time;
use crate::{Errno, Result};

/// Between two tries to get a lock, at first and in the end.
const NAP_NS: u64 = 500_000;
const LONGEST_NAP_NS: u64 = 20_000_000;

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The file, by `flock(2)`.
    Whole,
    /// From the first to the last byte, by `fcntl(2)`.
    Bytes(u64, u64),
}

/// Who keeps a file's locks for the domain.
pub trait Outside: Send + Sync {
    /// Locks it for the domain, in place of what that has there.
    ///
    /// # Errors
    /// EAGAIN: somebody outside has a lock that conflicts.
    fn lock(&self, scope: Scope, exclusive: bool) -> Result<()>;

    /// Gives it up; `last`: nothing of the file is locked by the domain any more.
    fn unlock(&self, scope: Scope, last: bool);

    /// First and last byte of the first lock outside that conflicts, and whether it is exclusive.
    ///
    /// # Errors
    /// What the keeper of the file says.
    fn conflict(&self, start: u64, end: u64, exclusive: bool) -> Result<Option<(u64, u64, bool)>>;
}

/// Sleeps of somebody who asks again.
struct Naps(u64);

impl Locks {
    /// As [`Self::conflict`], with what is locked outside; its owner is no process here.
    pub fn conflict_with(&self, outside: &dyn Outside, want: &Range) -> Result<Option<Range>> {
        if let Some(found) = self.conflict(want) {
            return Ok(Some(found));
        }
        let found = outside.conflict(want.start, want.end, want.exclusive)?;
        Ok(found.map(|(start, end, exclusive)| Range { owner: Owner::File(0), start, end, exclusive }))
    }

    /// As [`Self::set`], against those outside too.
    pub fn set_with(&self, outside: &dyn Outside, want: Range, unlock: bool, block: bool) -> Result<()> {
        let mut naps = Naps(NAP_NS);
        loop {
            let turn = self.turn.lock();
            if unlock {
                self.state.lock().apply(want, true)?;
                self.give_up(outside, &[want], false);
                break;
            }
            if self.conflict(&want).is_some() {
                drop(turn);
                if !block {
                    return Err(Errno::EAGAIN);
                }
                self.wait_for_others(want)?;
                continue;
            }
            match outside.lock(Scope::Bytes(want.start, want.end), want.exclusive) {
                Ok(()) => {
                    let applied = self.state.lock().apply(want, false);
                    if applied.is_err() {
                        self.give_up(outside, &[want], false);
                    }
                    applied?;
                    break;
                }
                Err(Errno::EAGAIN) if block => {
                    drop(turn);
                    naps.sleep(self)?;
                }
                Err(e) => return Err(e),
            }
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Whoever keeps the file's locks has forgotten those of the domain: they are had again, as far as nobody else has them.
    pub fn had_again(&self, outside: &dyn Outside) {
        let (ranges, whole) = {
            let s = self.state.lock();
            let ranges: Vec<Range> = s.records.iter().copied().collect();
            (ranges, s.whole.first().map(|(_, exclusive)| *exclusive))
        };
        let ranges = ranges.iter().map(|r| (Scope::Bytes(r.start, r.end), r.exclusive));
        for (scope, exclusive) in ranges.chain(whole.map(|exclusive| (Scope::Whole, exclusive))) {
            // The programs here believe that they have it; nobody can tell them.
            let _ = outside.lock(scope, exclusive);
        }
    }

    /// Waits until nobody here is in the way.
    fn wait_for_others(&self, want: Range) -> Result<()> {
        let waited = wait_until(&self.changed, None, || {
            let mut s = self.state.lock();
            match s.records.conflict(&want).map(|found| found.owner) {
                None => Some(Ok(())),
                Some(holder) => s.wait(want.owner, holder).err().map(Err),
            }
        });
        // After a signal the edge is still there.
        self.state.lock().stop(want.owner);
        waited?
    }

    /// As [`Self::flock`], against those outside too.
    pub fn flock_with(
        &self,
        outside: &dyn Outside,
        file: u64,
        lock: Option<bool>,
        block: bool,
    ) -> Result<()> {
        let Some(exclusive) = lock else {
            self.drop_with(outside, None, None, Some(file));
            return Ok(());
        };
        let mut naps = Naps(NAP_NS);
        loop {
            let turn = self.turn.lock();
            let (state, gave_up) = self.state.lock().try_whole(file, exclusive);
            let got = match state {
                Whole::Taken => Err(Errno::EAGAIN),
                Whole::Had => Ok(()),
                Whole::Free => outside.lock(Scope::Whole, exclusive),
            };
            if got.is_ok() {
                self.state.lock().add_whole(file, exclusive);
            }
            drop(turn);
            if gave_up {
                self.changed.notify_all();
            }
            match (got, state) {
                (Err(Errno::EAGAIN), Whole::Taken) if block => {
                    let free = || (!self.state.lock().is_taken(file, exclusive)).then_some(());
                    wait_until(&self.changed, None, free)?;
                }
                (Err(Errno::EAGAIN), _) if block => naps.sleep(self)?,
                (got, _) => return got,
            }
        }
    }

    /// As [`Self::drop_of`], with what was locked outside for it; `whole`: an open file whose lock of `flock` alone goes.
    pub fn drop_with(&self, outside: &dyn Outside, pid: Option<i32>, file: Option<u64>, whole: Option<u64>) {
        // Without a thread nobody may be asked; what is locked outside then goes with the file.
        let turn = can_wait().then(|| self.turn.lock());
        let owners = [pid.map(Owner::Process), file.map(Owner::File)];
        let (dropped, unlocked) = {
            let s = self.state.lock();
            let of_theirs = |r: &&Range| owners.contains(&Some(r.owner));
            let dropped: Vec<Range> = s.records.iter().filter(of_theirs).copied().collect();
            (dropped, s.whole.iter().any(|(f, _)| Some(*f) == file.or(whole)))
        };
        if dropped.is_empty() && !unlocked {
            return;
        }
        self.drop_where(|r| owners.contains(&Some(r.owner)), |f| Some(f) == file.or(whole));
        if turn.is_some() {
            self.give_up(outside, &dropped, unlocked);
        }
    }

    /// Gives up outside what nobody here has any more of these ranges and, if `whole`, of the file's lock.
    fn give_up(&self, outside: &dyn Outside, ranges: &[Range], whole: bool) {
        let (free, whole, last) = {
            let s = self.state.lock();
            let free: Vec<_> = ranges.iter().flat_map(|r| s.records.free(r.start, r.end)).collect();
            (free, whole && s.whole.is_empty(), s.records.is_empty() && s.whole.is_empty())
        };
        if last {
            return outside.unlock(Scope::Bytes(0, i64::MAX as u64), true);
        }
        for (start, end) in free {
            outside.unlock(Scope::Bytes(start, end), false);
        }
        if whole {
            outside.unlock(Scope::Whole, false);
        }
    }
}

impl Naps {
    /// Sleeps, unless a lock here changes meanwhile.
    fn sleep(&mut self, locks: &Locks) -> Result<()> {
        let until = time::monotonic_ns() + self.0;
        self.0 = (self.0 * 2).min(LONGEST_NAP_NS);
        match wait_until(&locks.changed, Some(until), || None::<()>) {
            Err(Errno::ETIMEDOUT) | Ok(()) => Ok(()),
            Err(e) => Err(e),
        }
    }
}
