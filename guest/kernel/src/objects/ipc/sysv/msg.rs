//! System V message queues (`msgget(2)`, `msgop(2)`).

use crate::core::subject::shown_pid;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use super::{Entry, Perm, UserPerm};
use crate::core::sched::WaitQueue;

bitflags::bitflags! {
    /// Flags of msgsnd and msgrcv; others are overlooked.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) struct MessageFlags: u32 {
        const NOWAIT = 0o4000;
        const NOERROR = 0o10000;
        const EXCEPT = 0o20000;
        const COPY = 0o40000;
    }
}

pub(crate) struct Message {
    pub(crate) kind: i64,
    pub(crate) data: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) messages: VecDeque<Message>,
    pub(crate) bytes: u64,
    pub(crate) max_bytes: u64,
    pub(crate) removed: bool,
    pub(crate) stime: i64,
    pub(crate) rtime: i64,
    pub(crate) ctime: i64,
    pub(crate) lspid: i32,
    pub(crate) lrpid: i32,
}

/// A message queue.
pub struct Queue {
    pub(crate) perm: SpinLock<Perm>,
    pub(crate) state: SpinLock<State>,
    /// Those who wait for a message, and for room.
    pub(crate) receivers: WaitQueue,
    pub(crate) senders: WaitQueue,
}

impl Entry for Queue {
    fn perm(&self) -> &SpinLock<Perm> {
        &self.perm
    }
}

impl State {
    /// The place of the message that a receiver asks for.
    pub(crate) fn find(&self, kind: i64, flags: MessageFlags) -> Option<usize> {
        let m = &self.messages;
        if flags.contains(MessageFlags::COPY) {
            return usize::try_from(kind).ok().filter(|i| *i < m.len());
        }
        match kind {
            0 => (!m.is_empty()).then_some(0),
            k if k > 0 && flags.contains(MessageFlags::EXCEPT) => m.iter().position(|x| x.kind != k),
            k if k > 0 => m.iter().position(|x| x.kind == k),
            // The lowest type up to the amount, the first of it.
            k => {
                let max = k.checked_neg().unwrap_or(i64::MAX);
                let lowest = m.iter().map(|x| x.kind).filter(|t| *t <= max).min()?;
                m.iter().position(|x| x.kind == lowest)
            }
        }
    }
}

pod_struct! {
    /// `struct msqid64_ds`.
    pub struct MsqidDs {
        /// Permissions.
        pub perm: UserPerm,
        /// Last send.
        pub stime: i64,
        /// Last receive.
        pub rtime: i64,
        /// Last change.
        pub ctime: i64,
        /// Bytes in the queue.
        pub cbytes: u64,
        /// Messages in the queue.
        pub qnum: u64,
        /// Most bytes.
        pub qbytes: u64,
        /// Last sender.
        pub lspid: i32,
        /// Last receiver.
        pub lrpid: i32,
        /// Unused.
        pub unused: [u64; 2],
    }
}

pub(crate) fn describe(q: &Queue) -> MsqidDs {
    let perm = q.perm.lock().to_user();
    let s = q.state.lock();
    MsqidDs {
        perm,
        stime: s.stime,
        rtime: s.rtime,
        ctime: s.ctime,
        cbytes: s.bytes,
        qnum: s.messages.len() as u64,
        qbytes: s.max_bytes,
        lspid: shown_pid(s.lspid),
        lrpid: shown_pid(s.lrpid),
        unused: [0; 2],
    }
}
