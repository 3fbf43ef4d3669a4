//! How a command ended: well, or what was wrong with which name.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

/// What went wrong, with which file.
#[derive(Debug)]
pub(super) struct Failure {
    pub what: Vec<u8>,
    pub errno: Errno,
}

pub(super) type Outcome<T = ()> = Result<T, Failure>;

/// Says which file an error is about.
pub(super) trait About<T> {
    fn about(self, what: &[u8]) -> Outcome<T>;
}

impl<T> About<T> for Result<T, Errno> {
    fn about(self, what: &[u8]) -> Outcome<T> {
        self.map_err(|errno| Failure { what: what.to_vec(), errno })
    }
}

impl<T> About<T> for io::Result<T> {
    fn about(self, what: &[u8]) -> Outcome<T> {
        self.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO)).about(what)
    }
}

/// A name as the standard library takes it.
pub(super) fn os(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
