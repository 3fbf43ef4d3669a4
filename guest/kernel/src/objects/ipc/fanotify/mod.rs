//! File change notification of whole file systems, with names and file handles (`fanotify(7)`).
//!
//! Key types: [`Group`] (an instance, with its queue), [`Mark`] (what one instance wants to know of a file, a mount or a file
//! system), [`Change`] (what has happened). Boundary: `inotify` passes on what the file system tells it; without any mark
//! in the domain that costs one load. What is done for the reader (opening files, descriptors of processes) is asked of the
//! layers above ([`WAYS`]). Lock order: lists of marks → a group's state → its wait queue.

mod flags;
mod group;
mod marks;
mod records;
mod tell;

pub use flags::{FanMask, InitFlags, MarkFlags};
pub use group::{Group, WAYS, Ways};
pub use marks::{MARKS, Mark, Place};
pub use tell::{Change, Entry, ask, marked, path_change, tell};
