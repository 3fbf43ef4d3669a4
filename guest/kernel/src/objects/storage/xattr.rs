//! Extended attributes of a [`Node`].

use alloc::vec::Vec;

use doppel_abi_service::storage::{Operation, Request, XATTR};

use super::call::Call;
use super::node::Node;
use crate::objects::vfs::flags::SetXattr;
use crate::{Errno, Result};

impl Node {
    pub(super) fn xattr_get(&self, name: &[u8]) -> Result<Vec<u8>> {
        let call = self.call();
        let request = Request { a: call.name(name), ..self.request(Operation::GetXattr) };
        let len = call.ask(request)?.value;
        take(&call, len)
    }

    pub(super) fn xattr_set(&self, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        if value.len() > XATTR {
            return Err(Errno::E2BIG);
        }
        let call = self.call();
        call.fill(value);
        let request = Request {
            a: call.name(name),
            b: value.len() as u64,
            flags: how as u32,
            ..self.request(Operation::SetXattr)
        };
        let done = call.ask(request).map(drop);
        self.changed();
        done
    }

    pub(super) fn xattr_list(&self) -> Result<Vec<u8>> {
        let call = self.call();
        let len = call.ask(self.request(Operation::ListXattr))?.value;
        take(&call, len)
    }

    pub(super) fn xattr_remove(&self, name: &[u8]) -> Result<()> {
        let call = self.call();
        let request = Request { a: call.name(name), ..self.request(Operation::RemoveXattr) };
        let done = call.ask(request).map(drop);
        self.changed();
        done
    }
}

/// What the buffer holds.
fn take(call: &Call, len: u64) -> Result<Vec<u8>> {
    let mut bytes = alloc::vec![0; Call::length(len, XATTR)?];
    call.take(0, &mut bytes);
    Ok(bytes)
}
