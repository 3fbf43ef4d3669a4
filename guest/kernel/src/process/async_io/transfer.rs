//! Reads, writes and syncs that a program does not wait for.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::context::{Context, Ticket};
use super::held::HeldFile;
use super::result::failed;
use super::workers::{self, Job};
use crate::memory::mend_missed;
use crate::objects::rootfs;
use crate::objects::vfs::File;
use crate::objects::vfs::file::Flight;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::io::{Input, IoVec, Output};
use crate::objects::vfs::rw::{begin_read_at, end_read, read_at, write_at};
use crate::process::task::{Process, current_space};
use crate::{Errno, Result};

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Bytes of the file go to the program.
    Read,
    /// Bytes of the program go to the file.
    Write,
    /// What was written reaches the device.
    Sync,
}

/// One of them.
pub struct Transfer {
    /// What.
    pub operation: Operation,
    /// With which file.
    pub file: HeldFile,
    /// The program's buffers.
    pub vectors: Vec<IoVec>,
    /// The place in the file, if it has places.
    pub offset: u64,
}

/// A transfer that a worker does.
struct Passed {
    transfer: Transfer,
    context: Arc<Context>,
    ticket: Ticket,
}

impl Job for Passed {
    fn flies(&self) -> bool {
        self.transfer.flies()
    }

    fn begin(&self) -> Option<Box<dyn Flight>> {
        self.transfer.begin_flight()
    }

    fn run(self: Arc<Self>, begun: Option<Box<dyn Flight>>) {
        self.context.complete(&self.ticket, self.transfer.result(begun));
    }
}

/// Whether somebody who does `operation` on the file waits for a device.
pub fn waits(file: &File, operation: Operation) -> bool {
    let kept = file.downcast::<rootfs::Node>().is_none();
    kept && file.seekable() && (operation == Operation::Sync || file.flags().contains(OpenFlags::DIRECT))
}

impl Transfer {
    /// Begins it for a request of `process`, whose event comes when it is done; EINVAL if the file has nothing to sync.
    pub fn begin(self, process: &Arc<Process>, context: &Arc<Context>, ticket: Ticket) -> Result<()> {
        if waits(&self.file, self.operation) {
            let passed = Passed { transfer: self, context: context.clone(), ticket };
            workers::slowly(process, Arc::new(passed));
            return Ok(());
        }
        let result = self.result(None);
        if self.operation == Operation::Sync && result == failed(Errno::EINVAL) {
            return Err(Errno::EINVAL);
        }
        context.complete(&ticket, result);
        Ok(())
    }

    fn run(&self) -> Result<u64> {
        let file: &File = &self.file;
        let n = match self.operation {
            Operation::Sync => file.ops().fsync(file).map(|()| 0),
            Operation::Read => read_at(file, &mut Output::iovecs(self.vectors.clone()), self.offset),
            Operation::Write => write_at(file, &mut Input::iovecs(self.vectors.clone()), self.offset),
        };
        n.map(|n| n as u64)
    }

    /// Whether it is likely that it can be begun and left to itself.
    pub fn flies(&self) -> bool {
        self.operation == Operation::Read
            && self.vectors.len() == 1
            && self.file.flags().contains(OpenFlags::DIRECT)
    }

    /// Begins it, if it can be left to itself then.
    pub fn begin_flight(&self) -> Option<Box<dyn Flight>> {
        match &self.vectors[..] {
            [one] if self.flies() => begin_read_at(&self.file, *one, self.offset),
            _ => None,
        }
    }

    /// Does it, or what is left of it once it has begun; the count, or the negated error. What a signal interrupts is not begun again.
    pub fn result(&self, begun: Option<Box<dyn Flight>>) -> i64 {
        let mut done = match begun {
            Some(flight) => end_read(&self.file, flight).map(|n| n as u64),
            None => self.run(),
        };
        // Memory that can be brought back is no error.
        while done == Err(Errno::EFAULT) && mend_missed(&current_space().mm) {
            done = self.run();
        }
        match done {
            Ok(n) => n.cast_signed(),
            Err(Errno::ERESTARTSYS) => failed(Errno::EINTR),
            Err(e) => failed(e),
        }
    }
}
