//! Descriptor tables.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_machine::sync::RwSpin;

use super::File;
use crate::{Errno, Result};

struct Slot {
    file: Arc<File>,
    cloexec: bool,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Option<Slot>>,
    /// No free slot lies below this.
    first_free: usize,
}

/// A table of descriptors, shared by the threads of a process (and by CLONE_FILES).
pub struct FdTable {
    slots: RwSpin<Slots>,
    /// RLIMIT_NOFILE: no descriptor number may reach it.
    limit: AtomicU64,
}

/// Most descriptors a table may hold, whatever the limit says (`/proc/sys/fs/nr_open`).
pub const NR_OPEN: u64 = 1 << 20;

impl FdTable {
    /// An empty table.
    pub fn new(limit: u64) -> Self {
        Self { slots: RwSpin::default(), limit: AtomicU64::new(limit) }
    }

    /// RLIMIT_NOFILE's soft value, kept here for speed.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit.min(NR_OPEN), Ordering::Relaxed);
    }

    /// The file behind `fd`.
    pub fn get(&self, fd: i32) -> Result<Arc<File>> {
        let t = self.slots.read();
        let slot = usize::try_from(fd).ok().and_then(|i| t.slots.get(i)).and_then(Option::as_ref);
        slot.map(|s| s.file.clone()).ok_or(Errno::EBADF)
    }

    /// As [`Self::get`], but O_PATH descriptors are EBADF: for calls that act on the open file.
    pub fn get_io(&self, fd: i32) -> Result<Arc<File>> {
        let f = self.get(fd)?;
        if f.flags() & super::file::flags::O_PATH != 0 { Err(Errno::EBADF) } else { Ok(f) }
    }

    /// Whether `fd` is closed on exec.
    pub fn cloexec(&self, fd: i32) -> Result<bool> {
        let t = self.slots.read();
        let slot = usize::try_from(fd).ok().and_then(|i| t.slots.get(i)).and_then(Option::as_ref);
        slot.map(|s| s.cloexec).ok_or(Errno::EBADF)
    }

    /// Sets or clears close-on-exec.
    pub fn set_cloexec(&self, fd: i32, on: bool) -> Result<()> {
        let mut t = self.slots.write();
        let slot = usize::try_from(fd).ok().and_then(|i| t.slots.get_mut(i)).and_then(Option::as_mut);
        slot.map(|s| s.cloexec = on).ok_or(Errno::EBADF)
    }

    /// Puts `file` at the lowest free descriptor that is at least `min`: EMFILE at the limit, EINVAL if
    /// `min` is beyond it.
    pub fn insert_from(&self, file: Arc<File>, cloexec: bool, min: i32) -> Result<i32> {
        let limit = self.limit.load(Ordering::Relaxed) as usize;
        let min = usize::try_from(min).map_err(|_| Errno::EINVAL)?;
        if min >= limit {
            return Err(Errno::EINVAL);
        }
        let mut t = self.slots.write();
        let mut i = min.max(t.first_free);
        while t.slots.get(i).is_some_and(Option::is_some) {
            i += 1;
        }
        if i >= limit {
            return Err(Errno::EMFILE);
        }
        if t.slots.len() <= i {
            t.slots.resize_with(i + 1, || None);
        }
        file.fd_added();
        t.slots[i] = Some(Slot { file, cloexec });
        if min <= t.first_free {
            t.first_free = i + 1;
        }
        Ok(i as i32)
    }

    /// Puts `file` at the lowest free descriptor.
    pub fn insert(&self, file: Arc<File>, cloexec: bool) -> Result<i32> {
        self.insert_from(file, cloexec, 0)
    }

    /// Puts `file` at exactly `fd` (dup2); what was there is closed.
    pub fn insert_at(&self, fd: i32, file: Arc<File>, cloexec: bool) -> Result<()> {
        let i = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        if i >= self.limit.load(Ordering::Relaxed) as usize {
            return Err(Errno::EBADF);
        }
        let old = {
            let mut t = self.slots.write();
            if t.slots.len() <= i {
                t.slots.resize_with(i + 1, || None);
            }
            file.fd_added();
            t.slots[i].replace(Slot { file, cloexec })
        };
        if let Some(s) = old {
            s.file.fd_removed();
        }
        Ok(())
    }

    /// Closes `fd`.
    pub fn close(&self, fd: i32) -> Result<()> {
        let old = {
            let mut t = self.slots.write();
            let i = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
            let old = t.slots.get_mut(i).and_then(Option::take).ok_or(Errno::EBADF)?;
            t.first_free = t.first_free.min(i);
            old
        };
        old.file.fd_removed();
        Ok(())
    }

    /// Removes every slot `pick` selects and closes their files.
    fn close_where(&self, pick: impl Fn(usize, &Slot) -> bool) {
        let mut closed = Vec::new();
        {
            let mut t = self.slots.write();
            for i in 0..t.slots.len() {
                if t.slots[i].as_ref().is_some_and(|s| pick(i, s)) {
                    closed.extend(t.slots[i].take());
                    t.first_free = t.first_free.min(i);
                }
            }
        }
        for s in closed {
            s.file.fd_removed();
        }
    }

    /// Closes all close-on-exec descriptors (exec).
    pub fn close_on_exec(&self) {
        self.close_where(|_, s| s.cloexec);
    }

    /// Closes `first..=last` (close_range).
    pub fn close_range(&self, first: u32, last: u32) {
        self.close_where(|i, _| (first as usize..=last as usize).contains(&i));
    }

    /// Sets close-on-exec on `first..=last` (CLOSE_RANGE_CLOEXEC).
    pub fn cloexec_range(&self, first: u32, last: u32) {
        let mut t = self.slots.write();
        let end = (last as usize).saturating_add(1).min(t.slots.len());
        let start = (first as usize).min(end);
        for s in t.slots[start..end].iter_mut().flatten() {
            s.cloexec = true;
        }
    }

    /// Closes everything (exit).
    pub fn close_all(&self) {
        self.close_where(|_, _| true);
    }

    /// A copy for a new process.
    pub fn fork(&self) -> Self {
        let t = self.slots.read();
        let slots: Vec<_> = t
            .slots
            .iter()
            .map(|s| {
                s.as_ref().map(|s| {
                    s.file.fd_added();
                    Slot { file: s.file.clone(), cloexec: s.cloexec }
                })
            })
            .collect();
        Self {
            slots: RwSpin::new(Slots { slots, first_free: t.first_free }),
            limit: AtomicU64::new(self.limit.load(Ordering::Relaxed)),
        }
    }

    /// Open descriptors in ascending order with their files (for /proc).
    pub fn list(&self) -> Vec<(i32, Arc<File>)> {
        let t = self.slots.read();
        t.slots
            .iter()
            .enumerate()
            .filter_map(|(i, s)| s.as_ref().map(|s| (i as i32, s.file.clone())))
            .collect()
    }
}

impl Drop for FdTable {
    fn drop(&mut self) {
        self.close_all();
    }
}
