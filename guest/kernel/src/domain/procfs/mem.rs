//! /proc/PID/mem: a process' memory as a file, reached in its own address space (`task::remote`).

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use crate::objects::vfs::file::Splice;
use crate::objects::vfs::{File, FileOps, Input, Output, Whence};
use crate::process::task::{Process, current, remote};
use crate::{Errno, Result};

/// Bytes copied at a time.
const PIECE: usize = 4096;

/// An open mem file.
pub struct MemFile {
    process: Weak<Process>,
}

impl MemFile {
    /// For a process.
    pub fn new(process: Weak<Process>) -> Self {
        Self { process }
    }

    /// The process, if the current one may look into it.
    fn target(&self) -> Result<Arc<Process>> {
        let p = self.process.upgrade().ok_or(Errno::ESRCH)?;
        remote::may_access(&current().process, &p).map_err(|_| Errno::EIO)?;
        Ok(p)
    }
}

/// Moves pieces until one comes up short; EIO if not even the first byte could be moved.
fn pieces(total: usize, mut one: impl FnMut(usize, usize) -> Result<usize>) -> Result<usize> {
    let mut done = 0;
    while done < total {
        let n = (total - done).min(PIECE);
        match one(done, n) {
            Ok(k) => {
                done += k;
                if k < n {
                    break;
                }
            }
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

impl FileOps for MemFile {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn read(&self, _file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let target = self.target()?;
        pieces(out.remaining(), |at, n| {
            let bytes =
                remote::read_forced(&target, offset.wrapping_add(at as u64), n).map_err(|_| Errno::EIO)?;
            out.write(&bytes)
        })
    }

    fn write(&self, _file: &File, input: &mut Input<'_>, offset: u64) -> Result<usize> {
        let target = self.target()?;
        let mut buf = Vec::with_capacity(PIECE);
        pieces(input.remaining(), |at, n| {
            buf.clear();
            input.append(&mut buf, n)?;
            remote::write_forced(&target, offset.wrapping_add(at as u64), core::mem::take(&mut buf))
                .map_err(|_| Errno::EIO)
        })
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        match whence {
            Whence::Set => Ok(offset.cast_unsigned()),
            Whence::Cur => Ok(file.pos.get().wrapping_add_signed(offset)),
            _ => Err(Errno::EINVAL),
        }
    }

    fn pollable(&self) -> bool {
        false
    }
}
