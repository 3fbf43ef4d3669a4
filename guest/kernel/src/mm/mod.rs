//! Memory: a process' address space as the guest kernel keeps it (DESIGN §6).
//!
//! Key types: [`Mm`] (the VMA tree of one space), [`MapSource`] (what a file gives to mmap).

use alloc::sync::Arc;

use crate::Result;

/// Pages of a file that can be mapped.
#[derive(Clone)]
pub enum MapSource {
    /// Fresh zero pages (mapping /dev/zero).
    Zero,
    /// A contiguous, page-aligned range of the root image holding the file's data.
    Image {
        /// Byte offset in the image.
        offset: u64,
        /// File size in bytes; the rest of the last page is zeros.
        len: u64,
    },
    /// Pages of the page file, looked up (and allocated) on demand.
    Pages(Arc<dyn PageObject>),
}

/// A file's or shared memory's pages in the page file.
pub trait PageObject: Send + Sync {
    /// Allocates (zero-filled where new) page file space for bytes `offset..offset+len` of the object (both page
    /// aligned) and calls `each(page_file_offset, len)` for every contiguous piece in order.
    /// ENOSPC or ENOMEM when the domain's limit is reached.
    fn map_range(&self, offset: u64, len: u64, each: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<()>;

    /// Current size in bytes (for SIGBUS beyond the end).
    fn size(&self) -> u64;

    /// A number that identifies the object (futex keys, /proc/PID/maps inode).
    fn id(&self) -> u64;
}

/// The memory map of one address space. Owned by the mm part.
#[derive(Default)]
pub struct Mm {}

impl Mm {
    /// A copy of the map for a forked space.
    pub fn fork(&self) -> Result<Self> {
        Ok(Self {})
    }

    /// Unmaps everything of the current space (exec).
    pub fn exec_reset(&self) -> Result<()> {
        Ok(())
    }
}

/// What to do about an exception of a program.
#[derive(Clone, Copy, Debug)]
pub enum FaultOutcome {
    /// The cause is gone: run the instruction again.
    Retry,
    /// Deliver this signal.
    Signal {
        /// Signal number.
        signo: i32,
        /// `si_code`.
        code: i32,
        /// `si_addr`.
        addr: u64,
    },
}

/// Judges a fault of the current thread.
pub fn handle_fault(_t: &Arc<crate::task::Thread>, info: &doppel_machine::trap::FaultInfo) -> FaultOutcome {
    FaultOutcome::Signal { signo: info.signo, code: info.code, addr: info.addr }
}
