//! Pages of this space that other clones have too, mapped from the share file (docs/freezer.md).
//!
//! The host has compared them while the domain stood still, as it does now: what is mapped has the same content. The
//! mappings are private, so the program notices nothing, and writes to its own copy.

use alloc::vec::Vec;

use doppel_abi_machine::control::SHARE_ZERO;
use doppel_abi_machine::frozen::Segment;
use doppel_machine::host;

use super::Mm;
use super::vma::VmFlags;
use crate::core::sched::Memory;

/// Mappings that are left alone: what is written there is not private, or has a meaning of its own.
const LEFT_ALONE: VmFlags = VmFlags::SHARED
    .union(VmFlags::WIPEONFORK)
    .union(VmFlags::VDSO)
    .union(VmFlags::PATCHED)
    .union(VmFlags::TRAMPOLINE)
    .union(VmFlags::LOCKED);

impl Memory for Mm {
    /// Maps pages from the share file, or fresh zero pages. Nothing else runs in the space.
    fn share(&self, list: &[Segment]) {
        let mut g = self.lock();
        let mut touched: Vec<(u64, u64)> = Vec::new();
        let mut shared: Vec<(u64, u64)> = Vec::new();
        for s in list {
            let Some(end) = s.addr.checked_add(s.len) else { continue };
            for (start, stop, v) in g.map.overlapping(s.addr, end) {
                let (from, to) = (start.max(s.addr), end.min(start + v.mapped_len(stop - start)));
                if v.flags.intersects(LEFT_ALONE) || from >= to {
                    continue;
                }
                let backing = match s.offset {
                    SHARE_ZERO => host::Backing::Anonymous,
                    offset => host::Backing::Share(offset + (from - s.addr)),
                };
                // The host may be out of mappings for this process; then the page stays its own.
                if host::map_user(from, to - from, v.prot.bits(), backing, false).is_ok() {
                    touched.push((start, stop));
                    shared.push((from, to));
                }
            }
        }
        for (from, to) in shared {
            g.swapped.remove(from, to);
        }
        touched.dedup();
        for (start, stop) in touched {
            g.map.update(start, stop, |_, _, v| v.flags |= VmFlags::THAWED);
        }
    }
}
