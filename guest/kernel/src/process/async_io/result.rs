//! Results of requests.

use crate::Errno;

/// An error as the result of a request.
pub fn failed(error: Errno) -> i64 {
    -i64::from(error.0)
}
