//! Descriptor tables.
//!
//! Key types: [`FdTable`]; [`Files`], a thread's use of one, through which it looks up its own files without a
//! lock or a count ([`FileRef`]; how, and why that is safe, is told in `doppel_machine::slots`).
//! Boundary: everybody else (/proc/PID/fd, pidfd_getfd, kcmp) takes the table's lock and a counted reference. Only
//! the threads that use a table change it; SCM_RIGHTS and pidfd_getfd insert into the caller's own.
//! A thread attaches before it runs (clone), moves to a copy at exec and unshare, and leaves as it ends; the
//! last reference to a table closes what is left in it. A file that is closed while a call uses it stays open until
//! that call ends ([`File::let_go`]).
//! Lock order: a table's lock → nothing; files are closed outside it. fork holds the old and the new table's.

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::slots::{Attached, Borrowed, Held, Locked, Removed, SLOTS_MAX, Slots, Table};

use super::File;
use crate::core::events::{Kind, record};
use crate::{Errno, Result};

/// What is kept with the files of a table.
pub struct Meta {
    /// No free slot lies below this.
    first_free: usize,
    /// RLIMIT_NOFILE: no descriptor number may reach it.
    limit: usize,
    /// Close-on-exec, a bit for each descriptor.
    cloexec: Vec<u64>,
}

impl Meta {
    fn cloexec(&self, i: usize) -> bool {
        self.cloexec.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 != 0)
    }

    fn set_cloexec(&mut self, i: usize, on: bool) {
        if let Some(w) = self.cloexec.get_mut(i / 64) {
            *w = *w & !(1 << (i % 64)) | u64::from(on) << (i % 64);
        } else if on {
            self.cloexec.resize(i / 64 + 1, 0);
            self.cloexec[i / 64] = 1 << (i % 64);
        }
    }
}

/// A table of descriptors, shared by the threads of a process (and by CLONE_FILES).
pub struct FdTable {
    slots: Slots<File, Meta>,
}

/// A thread's use of its table.
pub type Files = Attached<FdTable>;
/// A thread's own table, for opening and closing.
pub type FilesRef<'a> = Borrowed<'a, FdTable>;
/// The open file of a descriptor of the calling thread; it stays open if the descriptor is closed meanwhile.
pub type FileRef<'a> = Held<'a, File, Meta>;

/// What only a file looked up through a thread's own table can tell.
pub trait Alone {
    /// Whether only the calling thread can reach the file: its one descriptor is in a table nobody shares.
    fn alone(&self) -> bool;
}

impl Alone for FileRef<'_> {
    #[inline]
    fn alone(&self) -> bool {
        self.unshared() && self.fd_count() == 1
    }
}

/// Most descriptors a table may hold, whatever the limit says (`/proc/sys/fs/nr_open`).
pub const NR_OPEN: u64 = SLOTS_MAX as u64;

type Guard<'a> = Locked<'a, File, Meta>;

fn index(fd: i32) -> Result<usize> {
    usize::try_from(fd).map_err(|_| Errno::EBADF)
}

/// A descriptor was removed from a table, whose lock is not held.
fn closed(f: Removed<File>) {
    match f {
        Removed::Free(f) => f.fd_removed(),
        Removed::Held(f) => f.fd_closed(),
    }
}

impl Table for FdTable {
    type Item = File;
    type Meta = Meta;
    fn slots(&self) -> &Slots<File, Meta> {
        &self.slots
    }
}

impl FdTable {
    /// An empty table.
    pub fn new(limit: u64) -> Self {
        let limit = limit.min(NR_OPEN) as usize;
        let meta = Meta { first_free: 0, limit, cloexec: Vec::new() };
        Self { slots: Slots::new(meta, |file| file.let_go()) }
    }

    /// RLIMIT_NOFILE's soft value, kept here for speed.
    pub fn set_limit(&self, limit: u64) {
        self.slots.lock().meta_mut().limit = limit.min(NR_OPEN) as usize;
    }

    /// Whether several threads use the table.
    pub fn shared(&self) -> bool {
        self.slots.users() > 1
    }

    /// The file behind `fd`, counted. Threads reach their own files through [`Files`] instead.
    pub fn get(&self, fd: i32) -> Result<Arc<File>> {
        self.slots.lock().get(index(fd)?).cloned().ok_or(Errno::EBADF)
    }

    /// Whether `fd` is closed on exec.
    pub fn cloexec(&self, fd: i32) -> Result<bool> {
        let t = self.slots.lock();
        let i = index(fd)?;
        if t.get(i).is_some() { Ok(t.meta().cloexec(i)) } else { Err(Errno::EBADF) }
    }

    /// Sets or clears close-on-exec.
    pub fn set_cloexec(&self, fd: i32, on: bool) -> Result<()> {
        let mut t = self.slots.lock();
        let i = index(fd)?;
        if t.get(i).is_none() {
            return Err(Errno::EBADF);
        }
        t.meta_mut().set_cloexec(i, on);
        Ok(())
    }

    /// Puts `file` at the lowest free descriptor that is at least `min`: EMFILE at the limit, EINVAL if
    /// `min` is beyond it.
    pub fn insert_from(&self, file: Arc<File>, cloexec: bool, min: i32) -> Result<i32> {
        let mut t = self.slots.lock();
        let (limit, first_free) = (t.meta().limit, t.meta().first_free);
        let min = usize::try_from(min).map_err(|_| Errno::EINVAL)?;
        if min >= limit {
            return Err(Errno::EINVAL);
        }
        let mut i = min.max(first_free);
        while t.get(i).is_some() {
            i += 1;
        }
        if i >= limit {
            record(Kind::FilesRefused, [limit as u64, 0, 0]);
            return Err(Errno::EMFILE);
        }
        file.fd_added();
        t.meta_mut().set_cloexec(i, cloexec);
        let none = t.set(i, file);
        debug_assert!(none.is_none());
        if min <= first_free {
            t.meta_mut().first_free = i + 1;
        }
        Ok(i as i32)
    }

    /// Puts `file` at the lowest free descriptor.
    pub fn insert(&self, file: Arc<File>, cloexec: bool) -> Result<i32> {
        self.insert_from(file, cloexec, 0)
    }

    /// Puts `file` at exactly `fd` (dup2); what was there is closed.
    pub fn insert_at(&self, fd: i32, file: Arc<File>, cloexec: bool) -> Result<()> {
        let i = index(fd)?;
        let old = {
            let mut t = self.slots.lock();
            if i >= t.meta().limit {
                return Err(Errno::EBADF);
            }
            file.fd_added();
            t.meta_mut().set_cloexec(i, cloexec);
            t.set(i, file)
        };
        if let Some(f) = old {
            closed(f);
        }
        Ok(())
    }

    fn take(t: &mut Guard<'_>, i: usize) -> Option<Removed<File>> {
        let f = t.take(i)?;
        let m = t.meta_mut();
        m.first_free = m.first_free.min(i);
        Some(f)
    }

    /// Closes `fd`.
    pub fn close(&self, fd: i32) -> Result<()> {
        let old = Self::take(&mut self.slots.lock(), index(fd)?).ok_or(Errno::EBADF)?;
        closed(old);
        Ok(())
    }

    /// Removes every descriptor of `range` that `pick` selects and closes their files.
    fn close_where(&self, first: usize, last: usize, pick: impl Fn(&Guard<'_>, usize) -> bool) {
        let mut closed_files = Vec::new();
        {
            let mut t = self.slots.lock();
            for i in first..t.end().min(last.saturating_add(1)) {
                if pick(&t, i) {
                    closed_files.extend(Self::take(&mut t, i));
                }
            }
        }
        closed_files.into_iter().for_each(closed);
    }

    /// Closes all close-on-exec descriptors (exec).
    pub fn close_on_exec(&self) {
        self.close_where(0, usize::MAX, |t, i| t.meta().cloexec(i));
    }

    /// Closes `first..=last` (close_range).
    pub fn close_range(&self, first: u32, last: u32) {
        self.close_where(first as usize, last as usize, |_, _| true);
    }

    /// Sets close-on-exec on `first..=last` (CLOSE_RANGE_CLOEXEC).
    pub fn cloexec_range(&self, first: u32, last: u32) {
        let mut t = self.slots.lock();
        for i in first as usize..t.end().min((last as usize).saturating_add(1)) {
            if t.get(i).is_some() {
                t.meta_mut().set_cloexec(i, true);
            }
        }
    }

    /// Closes everything (exit).
    pub fn close_all(&self) {
        self.close_where(0, usize::MAX, |_, _| true);
    }

    /// A copy for a new process.
    pub fn fork(&self) -> Self {
        let t = self.slots.lock();
        let (m, end) = (t.meta(), t.end());
        let meta = Meta { first_free: m.first_free, limit: m.limit, cloexec: m.cloexec.clone() };
        let new = Self { slots: Slots::new(meta, |file| file.let_go()) };
        let mut copy = new.slots.lock();
        copy.reserve((0..end).filter(|i| t.get(*i).is_some()).count());
        for i in 0..end {
            if let Some(f) = t.get(i) {
                f.fd_added();
                let none = copy.set(i, f.clone());
                debug_assert!(none.is_none());
            }
        }
        drop(copy);
        new
    }

    /// The largest open descriptor.
    pub fn last(&self) -> Option<usize> {
        let t = self.slots.lock();
        (0..t.end()).rev().find(|i| t.get(*i).is_some())
    }

    /// Open descriptors in ascending order with their files (for /proc).
    pub fn list(&self) -> Vec<(i32, Arc<File>)> {
        let t = self.slots.lock();
        (0..t.end()).filter_map(|i| t.get(i).map(|f| (i as i32, f.clone()))).collect()
    }
}

impl Drop for FdTable {
    fn drop(&mut self) {
        self.close_all();
    }
}
