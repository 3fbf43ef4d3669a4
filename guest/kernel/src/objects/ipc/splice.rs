//! Moving data between files: splice, tee, vmsplice, sendfile, copy_file_range.
//!
//! Everything goes through a kernel buffer. What was read from a pipe but could not be delivered goes back; of a
//! file only the delivered bytes count. Which files take part at all is theirs to say ([`FileOps::splice`]): a
//! descriptor that never has bytes is refused, not waited for.
//!
//! [`FileOps::splice`]: crate::objects::vfs::FileOps::splice

use alloc::sync::Arc;
use alloc::vec;

use doppel_machine::user::UserPtr;

use super::inotify::{InotifyMask, file_event};
use super::pipe::{Pipe, PipeEnd};
use crate::objects::vfs::fdtable::FileRef;
use crate::objects::vfs::file::Splice;
use crate::objects::vfs::rw::{read_file, write_file};
use crate::objects::vfs::{File, Input, Output};
use crate::{Errno, Result};

/// Bytes moved at a time.
pub(crate) const CHUNK: usize = 64 << 10;

/// Where bytes come from or go to in a file: at an explicit offset, which moves, or at the file's position.
pub(crate) struct SpliceEnd<'a> {
    pub(crate) file: FileRef<'a>,
    pub(crate) offset: Option<u64>,
}

impl<'a> SpliceEnd<'a> {
    /// `p` points to the offset; null means the file's position. `unseekable` is for files that have none.
    pub(crate) fn new(file: FileRef<'a>, p: UserPtr, unseekable: Errno) -> Result<Self> {
        let offset = if p.is_null() {
            None
        } else {
            if !file.ops().seekable() {
                return Err(unseekable);
            }
            Some(u64::try_from(p.read::<i64>()?).map_err(|_| Errno::EINVAL)?)
        };
        Ok(Self { file, offset })
    }

    /// EINVAL if nothing can be moved out of the file into a pipe.
    pub(crate) fn has_bytes(&self) -> Result<()> {
        let can = matches!(self.file.ops().splice(), Splice::Both | Splice::From);
        if can && pipe_of(&self.file).is_none() { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// EINVAL if nothing can be moved into the file.
    pub(crate) fn takes_bytes(&self) -> Result<()> {
        let can = matches!(self.file.ops().splice(), Splice::Both | Splice::Into);
        if can { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Reads without moving on a seekable file; [`Self::advance`] does that.
    fn read(&self, buf: &mut [u8]) -> Result<usize> {
        let f = &self.file;
        if !f.seekable() {
            return read_file(f, &mut Output::kernel(buf));
        }
        let at = self.offset.unwrap_or_else(|| f.pos.get());
        let n = f.ops().read(f, &mut Output::kernel(buf), at)?;
        file_event(f, InotifyMask::ACCESS);
        Ok(n)
    }

    /// Moves over `n` bytes that were read.
    fn advance(&mut self, n: usize) {
        match &mut self.offset {
            Some(o) => *o += n as u64,
            None if self.file.seekable() => self.file.pos.lock(false).at += n as u64,
            None => {}
        }
    }

    /// Writes and moves.
    pub(crate) fn write(&mut self, buf: &[u8]) -> Result<usize> {
        let Some(at) = self.offset else { return write_file(&self.file, &mut Input::kernel(buf)) };
        let n = self.file.ops().write(&self.file, &mut Input::kernel(buf), at)?;
        self.offset = Some(at + n as u64);
        file_event(&self.file, InotifyMask::MODIFY);
        Ok(n)
    }

    /// Gives the moved offset back to the program.
    pub(crate) fn store(&self, p: UserPtr) -> Result<()> {
        match self.offset {
            Some(o) => Ok(p.write(&o)?),
            None => Ok(()),
        }
    }
}

pub(crate) fn pipe_of(f: &File) -> Option<Arc<Pipe>> {
    f.downcast::<PipeEnd>().map(|e| e.pipe().clone())
}

/// An error counts only if nothing was moved before.
fn outcome(done: usize, r: Result<()>) -> Result<usize> {
    match r {
        Err(e) if done == 0 => Err(e),
        _ => Ok(done),
    }
}

/// Moves bytes out of a pipe.
pub(crate) fn from_pipe(
    pipe: &Pipe,
    len: usize,
    block: bool,
    mut sink: impl FnMut(&[u8]) -> Result<usize>,
) -> Result<usize> {
    let mut buf = vec![0; len.min(CHUNK)];
    let mut done = 0;
    let r = loop {
        let want = (len - done).min(CHUNK);
        if want == 0 {
            break Ok(());
        }
        let n = match pipe.read(&mut Output::kernel(&mut buf[..want]), block && done == 0) {
            Ok(0) => break Ok(()),
            Ok(n) => n,
            Err(e) => break Err(e),
        };
        let (moved, r) = match sink(&buf[..n]) {
            Ok(w) => (w, Ok(())),
            Err(e) => (0, Err(e)),
        };
        done += moved;
        if moved < n {
            pipe.unread(&buf[moved..n])?;
            break r;
        }
    };
    outcome(done, r)
}

/// Moves bytes into a pipe: what fits, after waiting for room once.
pub(crate) fn to_pipe(from: &mut SpliceEnd, pipe: &Pipe, len: usize, block: bool) -> Result<usize> {
    let mut room = pipe.wait_room(block)?;
    from.has_bytes()?;
    let mut buf = vec![0; len.min(CHUNK)];
    let mut done = 0;
    let r = loop {
        let want = (len - done).min(room).min(CHUNK);
        let n = match from.read(&mut buf[..want]) {
            Ok(0) => break Ok(()),
            Ok(n) => n,
            Err(e) => break Err(e),
        };
        // Other writers may have taken the room: of a file the rest is read again later, the rest of a stream
        // must not be lost.
        let again = from.file.ops().seekable();
        let w = match pipe.write(&mut Input::kernel(&buf[..n]), !again, false) {
            Ok(w) => w,
            Err(e) => break Err(e),
        };
        from.advance(w);
        done += w;
        if done == len || w < n || !again {
            break Ok(());
        }
        room = match pipe.wait_room(false) {
            Ok(n) => n,
            Err(e) => break Err(e),
        };
    };
    outcome(done, r)
}

/// Copies from a seekable file until `len`, the end, or a short write.
pub(crate) fn copy(from: &mut SpliceEnd, to: &mut SpliceEnd, len: usize) -> Result<usize> {
    let mut buf = vec![0; len.min(CHUNK)];
    let mut done = 0;
    let r = loop {
        let want = (len - done).min(CHUNK);
        if want == 0 {
            break Ok(());
        }
        let n = match from.read(&mut buf[..want]) {
            Ok(0) => break Ok(()),
            Ok(n) => n,
            Err(e) => break Err(e),
        };
        if let Err(e) = to.takes_bytes() {
            break Err(e);
        }
        let w = match to.write(&buf[..n]) {
            Ok(w) => w,
            Err(e) => break Err(e),
        };
        from.advance(w);
        done += w;
        if w < n {
            break Ok(());
        }
    };
    outcome(done, r)
}
