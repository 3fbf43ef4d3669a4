//! Changes of names that are asked for together.

use doppel_abi_service::storage::{NAME, Request, STEPS, Step, buffer, flags};
use doppel_sys::shared::offset;
use rustix::io::Errno;

use super::{Done, Result, Work};

impl Work<'_> {
    /// Does them in their order. Which of them is done is said in the slot: a successor goes on with the next one, of which this may
    /// have done all but saying so.
    pub(super) fn batch(&mut self) -> Result<Done> {
        let r = self.request;
        let count = usize::try_from(r.a).ok().filter(|n| *n <= STEPS).ok_or(Errno::INVAL)?;
        let len = usize::try_from(r.b).ok().filter(|n| *n <= count * Step::LONGEST).ok_or(Errno::INVAL)?;
        let mut bytes = vec![0; len];
        self.memory().read(offset(buffer(r.slot)), &mut bytes);
        let again = r.flags & flags::AGAIN != 0;
        let ((begun, mut failed), mut before) =
            if again { (self.slot.step(), self.before) } else { ((0, 0), None) };
        let mut rest = bytes.as_slice();
        for at in 0..count as u32 {
            let (step, names, behind) = Step::split(rest).ok_or(Errno::INVAL)?;
            rest = behind;
            if at < begun {
                continue;
            }
            // Only the one at which a predecessor ended can be done already.
            let done = self.step(step, names, again && at == begun, before.take());
            if let (Err(error), 0) = (done, failed) {
                failed = u16::try_from(error.raw_os_error()).unwrap_or(u16::MAX);
            }
            self.slot.set_step(at + 1, failed);
        }
        Ok(Done { value: failed.into(), node: 0 })
    }

    fn step(&self, step: Step, names: [&[u8]; 2], again: bool, before: Option<u64>) -> Result<()> {
        if names.iter().any(|name| name.len() > NAME) {
            return Err(Errno::NAMETOOLONG);
        }
        let nodes = self.nodes();
        if nodes.volume_of(step.node)? != nodes.volume_of(self.request.node)? {
            return Err(Errno::XDEV);
        }
        drop(nodes);
        let request = Request {
            operation: step.operation,
            flags: step.flags & !flags::AGAIN | if again { flags::AGAIN } else { 0 },
            node: step.node,
            other: step.other,
            ..*self.request
        };
        let mut work = Work {
            request: &request,
            before,
            made: false,
            own: None,
            names: Some(names.map(<[u8]>::to_vec)),
            ..*self
        };
        work.run().map(drop)
    }
}
