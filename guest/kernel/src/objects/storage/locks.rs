//! Locks of a [`Node`] against other domains and the host. The service has them as the domain's, also if it is replaced.

use doppel_abi_service::storage::{Operation, Request, lock};

use super::node::Node;
use crate::objects::vfs::attach::locks::{Outside, Scope};
use crate::{Errno, Result};

impl Node {
    fn lock_request(&self, scope: Scope, how: u32) -> Request {
        let (a, b, how) = match scope {
            Scope::Whole => (0, 0, how | lock::WHOLE),
            Scope::Bytes(start, end) => (start, end, how),
        };
        Request { a, b, flags: how, ..self.request(Operation::Lock) }
    }
}

impl Outside for Node {
    fn lock(&self, scope: Scope, exclusive: bool) -> Result<()> {
        let how = if exclusive { lock::EXCLUSIVE } else { 0 };
        self.call().ask(self.lock_request(scope, how)).map(drop)
    }

    fn unlock(&self, scope: Scope, last: bool) {
        let how = lock::UNLOCK | if last { lock::LAST } else { 0 };
        // Nobody can be told; it goes with the file at the latest.
        let _ = self.call().ask(self.lock_request(scope, how));
    }

    fn conflict(&self, start: u64, end: u64, exclusive: bool) -> Result<Option<(u64, u64, bool)>> {
        let how = lock::TEST | if exclusive { lock::EXCLUSIVE } else { 0 };
        let call = self.call();
        let found = call.ask(self.lock_request(Scope::Bytes(start, end), how))?.value;
        if found == 0 {
            return Ok(None);
        }
        let bytes = call.text(16);
        let [first, last] = bytes.as_chunks().0 else { return Err(Errno::EIO) };
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        if first > last || last > i64::MAX as u64 {
            return Err(Errno::EIO);
        }
        Ok(Some((first, last, found > 1)))
    }
}
