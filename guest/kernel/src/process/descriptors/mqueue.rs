//! POSIX message queues (`mq_overview(7)`).
//!
//! Key type: [`Queue`] (messages by priority). IPC namespaces have their names. A descriptor's file operations
//! are a [`Handle`] on the queue, which lives as long as a name or a descriptor refers to it.
//! Lock order: names → nothing; a queue's state → its wait queue.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::sync::SpinLock;

use crate::core::sched::{PollEvents, PollTable, WaitQueue};
use crate::objects::vfs::file::Splice;
use crate::objects::vfs::{File, FileOps, FileType, Input, Output, Stat};
use crate::process::signal::{SigInfo, code, send_process};
use crate::process::task::{Process, current, try_current};
use crate::{Errno, Result};

/// Who is told when a message comes to an empty queue.
pub(crate) struct Notify {
    pub(crate) process: Arc<Process>,
    /// Signal number (0: none is sent) and value.
    pub(crate) signal: (i32, u64),
}

#[derive(Default)]
pub(crate) struct State {
    /// By priority, first in first out within one.
    messages: BTreeMap<u32, VecDeque<Vec<u8>>>,
    pub(crate) count: usize,
    pub(crate) notify: Option<Notify>,
    /// Threads in mq_receive.
    pub(crate) receivers: u32,
}

/// A message queue.
pub struct Queue {
    pub(crate) max: usize,
    pub(crate) size: usize,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) state: SpinLock<State>,
    pub(crate) changed: Arc<WaitQueue>,
}

/// What a descriptor refers to.
pub struct Handle {
    pub(crate) queue: Arc<Queue>,
}

impl Queue {
    /// Bytes of the messages that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().messages.values().flatten().map(Vec::len).sum()
    }

    pub(crate) fn push(&self, priority: u32, data: &mut Option<Vec<u8>>) -> Option<()> {
        let told = {
            let mut s = self.state.lock();
            if s.count >= self.max {
                return None;
            }
            s.messages.entry(priority).or_default().extend(data.take());
            s.count += 1;
            // A waiting receiver takes the message, so that nobody is told.
            if s.count == 1 && s.receivers == 0 { s.notify.take() } else { None }
        };
        self.changed.wake_all(PollEvents::READABLE);
        if let Some(Notify { process, signal: (signo @ 1.., value) }) = told {
            let me = current().process.clone();
            let info = SigInfo::from_user(signo, code::SI_MESGQ, me.pid, me.acting_cred().ruid, value);
            // A process that is gone needs no message.
            let _ = send_process(&process, info);
        }
        Some(())
    }

    pub(crate) fn pop(&self) -> Option<(u32, Vec<u8>)> {
        let m = {
            let mut s = self.state.lock();
            let mut last = s.messages.last_entry()?;
            let priority = *last.key();
            let data = last.get_mut().pop_front();
            if last.get().is_empty() {
                last.remove();
            }
            s.count -= 1;
            (priority, data?)
        };
        self.changed.wake_all(PollEvents::WRITABLE);
        Some(m)
    }

    pub(crate) fn check(&self, want: u32) -> Result<()> {
        let c = current().cred();
        let bits = if c.fsuid == self.uid {
            self.mode >> 6
        } else if c.in_group(self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        if want & !bits & 7 == 0 || c.capable_over(self.uid, self.gid, CAP_DAC_OVERRIDE) {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }
}

pub(crate) const CAP_DAC_OVERRIDE: u32 = 1;

impl FileOps for Handle {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn read(&self, _file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        let bytes: usize = self.queue.state.lock().messages.values().flatten().map(Vec::len).sum();
        let text = alloc::format!("QSIZE:{bytes:<10} NOTIFY:0     SIGNO:0     NOTIFY_PID:0     \n");
        out.write(text.as_bytes())
    }

    fn write(&self, _file: &File, _input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&self.queue.changed);
        }
        let n = self.queue.state.lock().count;
        let mut ev = PollEvents::empty();
        if n > 0 {
            ev |= PollEvents::READABLE;
        }
        if n < self.queue.max {
            ev |= PollEvents::WRITABLE;
        }
        ev
    }

    fn flush(&self, _file: &File) {
        // Closing ends the closing process' request to be told.
        let Some(me) = try_current().map(|t| t.process.pid) else { return };
        let mut s = self.queue.state.lock();
        if s.notify.as_ref().is_some_and(|n| n.process.pid == me) {
            s.notify = None;
        }
    }

    fn stat(&self, _file: &File) -> Result<Stat> {
        let q = &self.queue;
        Ok(Stat {
            mode: FileType::Regular as u32 | q.mode,
            uid: q.uid,
            gid: q.gid,
            size: 80,
            ..Stat::anonymous()
        })
    }
}
