//! What a core file needs to know of a map.

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::host;

use super::Mapped;
use super::Mm;
use super::vma::{Prot, VmFlags};
use crate::{Errno, Result};

/// A mapping as core files show it.
#[allow(missing_docs)]
pub struct DumpVma {
    pub start: u64,
    pub end: u64,
    pub prot: Prot,
    pub shared: bool,
    /// The vDSO, which is always shown.
    pub vdso: bool,
    /// madvise(MADV_DONTDUMP).
    pub left_out: bool,
    /// It may hold private pages that were written.
    pub own_pages: bool,
    pub file: Option<Arc<dyn Mapped>>,
    /// Offset in the file.
    pub offset: u64,
}

impl Mm {
    /// All mappings of the program; trampolines are not its own.
    pub fn to_dump(&self) -> Vec<DumpVma> {
        let g = self.lock();
        let own = g.map.iter().filter(|(.., v)| !v.flags.contains(VmFlags::TRAMPOLINE));
        own.map(|(start, end, v)| DumpVma {
            start,
            end,
            prot: v.prot,
            shared: v.shared(),
            vdso: v.flags.contains(VmFlags::VDSO),
            left_out: v.flags.contains(VmFlags::DONTDUMP),
            own_pages: v.flags.contains(VmFlags::WRITTEN),
            file: v.file.clone(),
            offset: v.offset,
        })
        .collect()
    }

    /// Makes a mapping that nobody may read readable for the kernel, or undoes that.
    pub fn uncover(&self, start: u64, end: u64, on: bool) -> Result<()> {
        let g = self.lock();
        let Some((s, e, v)) = g.map.get(start) else { return Ok(()) };
        let shown = (s + v.mapped_len(e - s)).min(end);
        if s != start || shown <= start {
            return Ok(());
        }
        self.guards.release(start, shown);
        host::protect_user(start, shown - start, (v.prot | Prot::READ.when(on)).bits())
            .map_err(|_| Errno::ENOMEM)
    }
}
