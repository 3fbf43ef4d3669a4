//! Event counters (`eventfd(2)`).

use alloc::sync::Arc;

use doppel_machine::sync::SpinLock;

use crate::core::sched::{PollEvents, PollTable, WaitQueue, wait_until};
use crate::objects::vfs::file::Splice;
use crate::objects::vfs::{File, FileOps, Input, Output};
use crate::{Errno, Result};
/// Largest value the counter can hold.
const MAX: u64 = u64::MAX - 1;

/// An event counter.
pub struct EventFd {
    count: SpinLock<u64>,
    semaphore: bool,
    queue: Arc<WaitQueue>,
}

impl EventFd {
    /// A counter.
    pub fn new(count: u64, semaphore: bool) -> Self {
        Self { count: SpinLock::new(count), semaphore, queue: Arc::default() }
    }

    fn take(&self) -> Option<u64> {
        let v = {
            let mut c = self.count.lock();
            if *c == 0 {
                return None;
            }
            let v = if self.semaphore { 1 } else { *c };
            *c -= v;
            v
        };
        self.queue.wake_all(PollEvents::WRITABLE);
        Some(v)
    }

    fn add(&self, v: u64) -> Option<()> {
        {
            let mut c = self.count.lock();
            if MAX - *c < v {
                return None;
            }
            *c += v;
        }
        self.queue.wake_all(PollEvents::READABLE);
        Some(())
    }

    /// Adds to the counter from within the kernel (stops at the maximum).
    pub fn signal(&self, v: u64) {
        // At the maximum readers are awake already.
        let _ = self.add(v);
    }
}

impl FileOps for EventFd {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        if out.remaining() < 8 {
            return Err(Errno::EINVAL);
        }
        let v = match self.take() {
            Some(v) => v,
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => wait_until(&self.queue, None, || self.take())?,
        };
        out.write(&v.to_ne_bytes())
    }

    fn write(&self, file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        if input.remaining() < 8 {
            return Err(Errno::EINVAL);
        }
        let mut b = [0; 8];
        if input.read(&mut b)? < 8 {
            return Err(Errno::EFAULT);
        }
        let v = u64::from_ne_bytes(b);
        if v == u64::MAX {
            return Err(Errno::EINVAL);
        }
        match self.add(v) {
            Some(()) => {}
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => wait_until(&self.queue, None, || self.add(v))?,
        }
        Ok(8)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&self.queue);
        }
        let c = *self.count.lock();
        let mut ev = PollEvents::empty();
        if c > 0 {
            ev |= PollEvents::READABLE;
        }
        if c < MAX {
            ev |= PollEvents::WRITABLE;
        }
        ev
    }

    fn fdinfo(&self, _file: &File, out: &mut alloc::string::String) {
        out.push_str(&alloc::format!("eventfd-count: {:16x}\n", *self.count.lock()));
    }
}
