//! The frozen image a clone was made from: its header and tables, mapped at boot.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use doppel_abi_machine::control::{SHADOWS, SHADOWS_MAX, SHARE_ENTRIES, SHARE_LIST, SHARE_MAX};
use doppel_abi_machine::frozen::{HEADER_SIZE, Header, Segment};
use doppel_abi_machine::layout::{CONTROL_BASE, FROZEN_BASE};

use crate::host::{self, nr};
use crate::rings::control::start_info;

/// Whether this domain was made from a frozen image.
pub fn is_clone() -> bool {
    start_info().frozen_tables >= HEADER_SIZE
}

/// Whether this process has unmapped the tables.
static GONE: AtomicBool = AtomicBool::new(false);

/// Runs `f` on the saved pages of the address space that had host pid `space`, in order of address, and then unmaps
/// header and tables from this one: it needs them once, and they cost two page tables. After that there are none.
pub fn restore<R>(space: i32, f: impl FnOnce(&[Segment]) -> R) -> R {
    if !is_clone() || GONE.swap(true, Ordering::SeqCst) {
        return f(&[]);
    }
    // SAFETY: boot.rs mapped the tables, read-only; any bytes are a valid header.
    let header = unsafe { &*(FROZEN_BASE as *const Header) };
    let room = (start_info().frozen_tables - HEADER_SIZE) / size_of::<Segment>() as u64;
    let n = header.segments.min(room) as usize;
    // SAFETY: the table follows the header and was checked to lie in the mapping; any bytes are valid.
    let all = unsafe { core::slice::from_raw_parts((FROZEN_BASE + HEADER_SIZE) as *const Segment, n) };
    let from = all.partition_point(|s| s.space < space);
    let to = all.partition_point(|s| s.space <= space);
    let r = f(&all[from..to]);
    let len = start_info().frozen_tables;
    // SAFETY: the references above end here, and no others are made: the mark is set. A failure leaves them mapped.
    let _ = unsafe { host::call(nr::MUNMAP, [FROZEN_BASE, len, 0, 0, 0, 0]) };
    r
}

/// The pages that the host wants mapped from the share file, as it wrote them before [`event::SHARE`].
///
/// [`event::SHARE`]: doppel_abi_machine::event::SHARE
pub fn share_list() -> Vec<Segment> {
    // SAFETY: inside the control area, which is mapped for ever.
    let count = unsafe { &*((CONTROL_BASE + SHARE_LIST) as *const AtomicU64) }.load(Ordering::Acquire);
    let at = (CONTROL_BASE + SHARE_LIST + SHARE_ENTRIES) as *const Segment;
    // SAFETY: so many lie in the control area (pinned in common/abi/machine), any bytes are a valid segment, and the host
    // does not write while the domain stands still for it.
    (0..count.min(SHARE_MAX) as usize).map(|i| unsafe { at.add(i).read_volatile() }).collect()
}

/// Lists shadows for the host: host pids of processes and of their shadows; false if there is no room for so many.
pub fn list_shadows(pairs: &[(i32, i32)]) -> bool {
    if pairs.len() as u64 > SHADOWS_MAX {
        return false;
    }
    let mut at = (CONTROL_BASE + SHADOWS) as *const AtomicI32;
    for pid in pairs.iter().flat_map(|&(process, shadow)| [process, shadow]) {
        // SAFETY: two words for each pair, of which as many fit the control area (just checked), mapped for ever.
        unsafe {
            (*at).store(pid, Ordering::Relaxed);
            at = at.add(1);
        }
    }
    true
}
