//! FIFOs (`fifo(7)`): pipes with a name, attached to their inode.

use alloc::sync::Arc;

use super::pipe::{Pipe, PipeEnd};
use crate::core::sched::wait_until;
use crate::objects::vfs::FileOps;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::inode::Attachments;
use crate::{Errno, Result};

/// Opens the FIFO whose inode has these attachments, waiting for the other side as `fifo(7)` says.
///
/// Errors: ENXIO when opening only for writing without O_NONBLOCK's waiting and no reader is there;
/// ERESTARTSYS when a signal ends the wait.
pub fn open(attachments: &Attachments, open_flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
    let pipe = attachments.get_or_insert(Pipe::default);
    let nonblock = open_flags.contains(OpenFlags::NONBLOCK);
    let (reads, writes) = match open_flags & OpenFlags::ACCMODE {
        OpenFlags::RDONLY => (true, false),
        OpenFlags::WRONLY => (false, true),
        OpenFlags::RDWR => (true, true),
        _ => return Err(Errno::EINVAL),
    };
    if !reads && nonblock && pipe.state.lock().readers == 0 {
        return Err(Errno::ENXIO);
    }
    pipe.open(reads, writes);
    let (has_writer, has_reader, writer_opens, reader_opens) = {
        let s = pipe.state.lock();
        (s.writers > 0, s.readers > 0, s.writer_opens, s.reader_opens)
    };
    // A reader that meets a writer sees the hang-up when that one goes; one that is early does not.
    let seen = if has_writer { u64::MAX } else { writer_opens };
    let end = PipeEnd::new(pipe.clone(), reads, writes, seen);
    // The other side may be waiting in its open.
    if reads {
        pipe.writable.notify_all();
    }
    if writes {
        pipe.readable.notify_all();
    }
    // On a signal `end` is dropped, which takes the open back.
    if !nonblock && !has_writer {
        wait_until(&pipe.readable, None, || (pipe.state.lock().writer_opens != writer_opens).then_some(()))?;
    }
    if !nonblock && !has_reader {
        wait_until(&pipe.writable, None, || (pipe.state.lock().reader_opens != reader_opens).then_some(()))?;
    }
    Ok(end)
}
