//! Memory: a process' address space as the guest kernel keeps it (docs/design.md §6).
//!
//! Key types: [`Mm`] (the VMA tree of one space), [`Vma`] (one mapping), [`MapSource`] (what a file gives to mmap),
//! [`PageObject`] (pages of the page file). Private anonymous memory is the host's; everything shared lies in the
//! page file. Every host mapping is made at an address chosen here, so the tree and the host always agree, except
//! that pages behind the end of a file have no host mapping (see fault.rs).
//! Boundary: only the current process' host memory can be changed, so all operations but [`Mm::fork`] and the
//! reading ones are for the current space.
//! Lock order: mm → page object. Objects removed from the tree are dropped after the lock is released.

pub(crate) mod advise;
pub(crate) mod commit;
mod dump;
mod fault;
mod frozen;
pub(crate) mod image_patch;
mod layout;
mod map;
pub(crate) mod mapped;
pub mod remap;
mod report;
pub(crate) mod runtime_patch;
mod share;
pub(crate) mod swap;
pub(crate) mod vma;

use alloc::sync::Arc;

use doppel_machine::task::Task;

use crate::Result;
use crate::core::hook::Hook;

pub use commit::Commit;
pub use dump::DumpVma;
pub use fault::{
    FaultOutcome, FutexPlace, MISSING, before_copies, copy_mended, handle_fault, mend_missed, object_shrunk,
    unmap_behind,
};
pub use frozen::LOG;
pub use layout::{Layout, random_u64};
pub use map::{Areas, MapAt, Mm};
pub use mapped::Mapped;
pub use report::{VmStats, maps_text, smaps_rollup_text, smaps_text, vm_stats};
pub use runtime_patch::trapped;
pub use vma::{Backing, Prot, VmFlags, Vma};

/// Runs a function on something of every thread.
pub type EachThread = fn(&mut dyn FnMut(&Task));

/// Runs a function on a memory map.
pub type WithMap = fn(&mut dyn FnMut(&Mm));

/// What memory asks of the threads and spaces of the domain.
#[derive(Clone, Copy)]
pub struct Others {
    /// Runs a function while all other vCPUs of the current space, whose memory this is, stand still outside of their
    /// program; ENOMEM if they do not stop.
    pub halted: fn(&Mm, &mut dyn FnMut()) -> Result<()>,
    /// Runs a function on the registers of every thread of the current space.
    pub each_thread: EachThread,
    /// [`unmap_behind`] in every space that maps an object which is shorter now.
    pub object_shrunk: fn(id: u64, len: u64),
    /// Runs a function on the memory map of the current space.
    pub here: WithMap,
    /// Whether the host still saves memory as it was at a freeze, from copies of the domain's processes.
    pub saved_still: fn() -> bool,
}

/// Set by the layer of processes.
pub static OTHERS: Hook<Others> = Hook::new();

/// See [`Others::saved_still`].
fn is_saved_still() -> bool {
    (OTHERS.get().saved_still)()
}

/// Bytes of a page.
pub const PAGE: u64 = doppel_abi_machine::layout::PAGE;

/// Rounds up to a page boundary; saturates.
pub fn page_up(n: u64) -> u64 {
    n.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Rounds down to a page boundary.
pub fn page_down(n: u64) -> u64 {
    n & !(PAGE - 1)
}

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

    /// As [`Self::map_range`], but what is still in the frozen image need not be copied yet, and comes as `None`.
    fn map_lazily(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<()>,
    ) -> Result<()>;

    /// As [`Self::map_lazily`], but allocates nothing: what has no space comes as `None`, too.
    fn map_present(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<()>,
    ) -> Result<()>;

    /// Where in the page file these bytes are, from page to page; what is not there comes as `None`.
    fn places(&self, offset: u64, len: u64, each: &mut dyn FnMut(Option<u64>, u64));

    /// Notes, if that is noted, that these bytes may be written through a mapping.
    fn note_mapped(&self, offset: u64, len: u64);

    /// Whether giving the bytes `offset..offset+len` space would take much of what is left.
    fn is_sparse(&self, offset: u64, len: u64) -> bool;

    /// Bytes that may be given space besides, as far as anybody can tell.
    fn room(&self) -> u64;

    /// Current size in bytes (for SIGBUS beyond the end).
    fn size(&self) -> u64;

    /// Makes a range read as zeros and frees its pages (MADV_REMOVE).
    fn punch(&self, _offset: u64, _len: u64) -> Result<()> {
        Err(crate::Errno::EOPNOTSUPP)
    }

    /// Counts a mapping through which the object may be written (`delta` 1, or -1 when it goes): EPERM if seals
    /// forbid it.
    fn writable_map(&self, _delta: i64) -> Result<()> {
        Ok(())
    }

    /// A number that identifies the object (futex keys, /proc/PID/maps inode).
    fn id(&self) -> u64;
}
