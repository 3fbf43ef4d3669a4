//! Pending signals, in the order they are taken.

use alloc::collections::VecDeque;

use super::{SYNCHRONOUS, SigInfo, SigSet, bit, code, sig};

/// Pending signals of a thread or a process: each standard signal once, real-time signals queued.
#[derive(Default)]
pub(crate) struct Queue {
    set: SigSet,
    list: VecDeque<SigInfo>,
}

/// What became of a signal to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// It is pending now.
    Yes,
    /// A standard signal that was pending already.
    Already,
    /// The queue is full.
    Full,
}

impl Queue {
    /// Adds a signal, at most `limit` in total. A standard signal is never lost: when the queue is full it
    /// becomes pending without details.
    pub(crate) fn push(&mut self, info: SigInfo, limit: usize) -> Queued {
        let b = bit(info.signo);
        let standard = info.signo < sig::SIGRTMIN;
        // Each timer has one signal of its own.
        if standard && self.set & b != 0 && (info.code != code::SI_TIMER || info.trapno == 0) {
            return Queued::Already;
        }
        if self.list.len() >= limit && !(standard && self.list.len() < limit + 32) {
            return Queued::Full;
        }
        self.set |= b;
        self.list.push_back(info);
        Queued::Yes
    }

    /// The set of pending signals.
    pub(crate) fn set(&self) -> SigSet {
        self.set
    }

    /// Takes the next signal among `allowed`: faults first, then by number, then by age.
    pub(crate) fn take(&mut self, allowed: SigSet) -> Option<SigInfo> {
        let ready = self.set & allowed;
        if ready == 0 {
            return None;
        }
        let first = if ready & SYNCHRONOUS != 0 { ready & SYNCHRONOUS } else { ready };
        let signo = first.trailing_zeros() as i32 + 1;
        let i = self.list.iter().position(|s| s.signo == signo)?;
        let info = self.list.remove(i)?;
        if !self.list.iter().any(|s| s.signo == signo) {
            self.set &= !bit(signo);
        }
        Some(info)
    }

    /// Forgets the signals in `gone`.
    pub(crate) fn discard(&mut self, gone: SigSet) {
        if self.set & gone != 0 {
            self.list.retain(|s| bit(s.signo) & gone == 0);
            self.set &= !gone;
        }
    }
}
