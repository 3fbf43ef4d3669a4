//! Descriptors for files without a name: `anon_inode:[eventfd]` and the like.

use alloc::format;
use alloc::sync::Arc;

use doppel_machine::arena;

use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps};
use crate::personality::Args;
use crate::{Errno, Result};

/// Puts a new open file for `ops` into the caller's table. `kind` is what /proc/PID/fd shows in brackets;
/// `open_flags` are O_RDWR, O_NONBLOCK and O_CLOEXEC as given.
pub fn new_fd(args: &Args, ops: Arc<dyn FileOps>, kind: &str, open_flags: OpenFlags) -> Result<u64> {
    let file = File::anon(ops, format!("anon_inode:[{kind}]"), open_flags);
    insert(args, file, open_flags.contains(OpenFlags::CLOEXEC))
}

/// Puts `file` into the caller's table; ENFILE when kernel memory is nearly used up.
pub fn insert(args: &Args, file: Arc<File>, cloexec: bool) -> Result<u64> {
    if arena::low() {
        return Err(Errno::ENFILE);
    }
    let fd = args.thread.files().insert(file, cloexec)?;
    Ok(u64::from(fd.unsigned_abs()))
}
