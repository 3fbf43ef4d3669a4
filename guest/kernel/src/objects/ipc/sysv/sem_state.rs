//! The state of a set of System V semaphores: values, and the operations that wait for others.
//!
//! Who changes a value does what waited for it, as on Linux: it happens at that moment, not when the waiter runs.
//! Key types: [`State`], [`SemBuf`] (one operation), [`Done`] (waiting ones that were done).

use alloc::vec;
use alloc::vec::Vec;

use doppel_machine::pod_struct;

use super::seconds;
use crate::{Errno, Result};

/// The greatest value.
pub const SEMVMX: i32 = 32767;

#[derive(Clone, Copy, Default)]
pub struct Sem {
    pub value: i32,
    /// Who changed it last.
    pub pid: i32,
}

/// A call's operations that wait.
struct Pending {
    ticket: u64,
    ops: Vec<SemBuf>,
    pid: i32,
    blocked: Blocked,
    done: Option<Result<()>>,
}

/// Operations that were done for a waiter.
pub struct Done {
    pub ops: Vec<SemBuf>,
    pub pid: i32,
}

pub struct State {
    pub sems: Vec<Sem>,
    pub removed: bool,
    pub otime: i64,
    pub ctime: i64,
    next: u64,
    /// First come, first served.
    pending: Vec<Pending>,
}

pod_struct! {
    /// `struct sembuf`.
    pub struct SemBuf {
        /// Number in the set.
        pub num: u16,
        /// Amount; 0 waits for zero.
        pub op: i16,
        /// See [`SemFlags`].
        pub flags: u16,
    }
}

bitflags::bitflags! {
    /// Flags of an operation on a semaphore.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct SemFlags: u16 {
        /// Fail rather than wait.
        const NOWAIT = 0o4000;
        /// Take it back when the process ends.
        const UNDO = 0x1000;
    }
}

impl SemBuf {
    /// Its flags; others are overlooked.
    pub fn flags(&self) -> SemFlags {
        SemFlags::from_bits_truncate(self.flags)
    }
}

/// Why an operation cannot be done now: which semaphore, and whether it must become zero.
#[derive(Clone, Copy)]
pub struct Blocked {
    num: usize,
    zero: bool,
    pub nowait: bool,
}

impl State {
    pub fn new(n: usize) -> Self {
        let sems = vec![Sem::default(); n];
        Self { sems, removed: false, otime: 0, ctime: seconds(), next: 0, pending: Vec::new() }
    }

    /// Does all operations or none.
    pub fn apply(&mut self, ops: &[SemBuf], pid: i32) -> Result<core::result::Result<(), Blocked>> {
        if self.removed {
            return Err(Errno::EIDRM);
        }
        let before: Vec<(usize, i32)> =
            ops.iter().map(|o| (usize::from(o.num), self.sems[usize::from(o.num)].value)).collect();
        let undo = |s: &mut Self| {
            for (n, v) in before.iter().rev() {
                s.sems[*n].value = *v;
            }
        };
        for o in ops {
            let num = usize::from(o.num);
            let nowait = o.flags().contains(SemFlags::NOWAIT);
            let old = self.sems[num].value;
            let new = old + i32::from(o.op);
            if (o.op == 0 && old != 0) || new < 0 {
                undo(self);
                return Ok(Err(Blocked { num, zero: o.op == 0, nowait }));
            }
            if new > SEMVMX {
                undo(self);
                return Err(Errno::ERANGE);
            }
            self.sems[num].value = new;
        }
        for o in ops {
            self.sems[usize::from(o.num)].pid = pid;
        }
        self.otime = seconds();
        Ok(Ok(()))
    }

    /// Has the operations wait; the ticket is for [`Self::outcome`] and [`Self::leave`].
    pub fn wait(&mut self, ops: &[SemBuf], pid: i32, blocked: Blocked) -> u64 {
        self.next += 1;
        self.pending.push(Pending { ticket: self.next, ops: ops.to_vec(), pid, blocked, done: None });
        self.next
    }

    /// Does what waits and can be done now, until nothing more can.
    pub fn settle(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        if self.removed {
            return done;
        }
        let mut again = true;
        while again {
            again = false;
            let mut list = core::mem::take(&mut self.pending);
            for p in list.iter_mut().filter(|p| p.done.is_none()) {
                match self.apply(&p.ops, p.pid) {
                    Ok(Err(b)) => {
                        p.blocked = b;
                        if b.nowait {
                            p.done = Some(Err(Errno::EAGAIN));
                        }
                    }
                    Ok(Ok(())) => p.done = Some(Ok(())),
                    Err(e) => p.done = Some(Err(e)),
                }
                if let Some(r) = p.done {
                    again |= r.is_ok() && p.ops.iter().any(|o| o.op != 0);
                    let ops = if r.is_ok() { p.ops.clone() } else { Vec::new() };
                    done.push(Done { ops, pid: p.pid });
                }
            }
            self.pending = list;
        }
        done
    }

    /// What became of operations that waited; they are forgotten then. `None` if they still wait.
    pub fn outcome(&mut self, ticket: u64) -> Option<Result<()>> {
        let at = self.pending.iter().position(|p| p.ticket == ticket)?;
        let found = self.pending[at].done.or(self.removed.then_some(Err(Errno::EIDRM)))?;
        self.pending.remove(at);
        Some(found)
    }

    /// Has operations wait no longer; what became of them if they have been done.
    pub fn leave(&mut self, ticket: u64) -> Option<Result<()>> {
        let at = self.pending.iter().position(|p| p.ticket == ticket)?;
        self.pending.remove(at).done
    }

    /// Threads that wait for a semaphore to become zero, or to grow.
    pub fn waiting(&self, num: usize, zero: bool) -> u32 {
        let these = |p: &&Pending| p.done.is_none() && p.blocked.num == num && p.blocked.zero == zero;
        self.pending.iter().filter(these).count() as u32
    }
}
