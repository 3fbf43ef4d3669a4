//! Names and descriptions of keys in programs' memory.

use alloc::vec::Vec;

use doppel_machine::user::UserPtr;

use crate::objects::lookup::caller::read_string;
use crate::{Errno, Result};

/// Most bytes of a type's name with its NUL.
const KIND_MAX: usize = 32;
/// Most bytes of a description with its NUL.
const TEXT_MAX: usize = 4096;

/// A text that is too long is no text.
fn at_most(p: UserPtr, most: usize) -> Result<Vec<u8>> {
    read_string(p, most).map_err(|e| if e == Errno::E2BIG { Errno::EINVAL } else { e })
}

/// The name of a type. Those that begin with a dot are the kernel's own.
pub(super) fn kind(p: UserPtr) -> Result<Vec<u8>> {
    let name = at_most(p, KIND_MAX)?;
    match name.first() {
        None => Err(Errno::EINVAL),
        Some(b'.') => Err(Errno::EPERM),
        Some(_) => Ok(name),
    }
}

/// A description, or what else is said of a key.
pub(super) fn read(p: UserPtr) -> Result<Vec<u8>> {
    at_most(p, TEXT_MAX)
}

/// The same, if there is one.
pub(super) fn given(p: UserPtr) -> Result<Option<Vec<u8>>> {
    if p.is_null() { Ok(None) } else { read(p).map(Some) }
}

/// What a call returns for the number of a key.
pub(super) fn number(serial: i32) -> u64 {
    i64::from(serial).cast_unsigned()
}
