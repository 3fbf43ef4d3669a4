//! The frozen image a clone was made from: its header and tables, mapped at boot.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use doppel_abi_machine::control::{SHADOWS, SHADOWS_MAX, SHARE_ENTRIES, SHARE_LIST, SHARE_MAX};
use doppel_abi_machine::fd;
use doppel_abi_machine::frozen::{HEADER_SIZE, Header, PAGEFILE, Segment, kept};
use doppel_abi_machine::layout::{CONTROL_BASE, FROZEN_BASE, FROZEN_PAGES_BASE};

use crate::host::{self, nr};
use crate::rings::control::start_info;

/// Whether this domain was made from a frozen image.
pub fn is_clone() -> bool {
    start_info().frozen_tables >= HEADER_SIZE
}

/// Whether this process has unmapped the tables.
static GONE: AtomicBool = AtomicBool::new(false);

/// The segments of the image, while this process has them mapped.
fn segments() -> &'static [Segment] {
    // SAFETY: boot.rs mapped the tables, read-only; any bytes are a valid header.
    let header = unsafe { &*(FROZEN_BASE as *const Header) };
    let room = (start_info().frozen_tables - HEADER_SIZE) / size_of::<Segment>() as u64;
    let n = header.segments.min(room) as usize;
    // SAFETY: the table follows the header and was checked to lie in the mapping; any bytes are valid.
    unsafe { core::slice::from_raw_parts((FROZEN_BASE + HEADER_SIZE) as *const Segment, n) }
}

/// A run of pages of the page file that the frozen image has: offset, length, and offset in
/// [the window](crate::pagefile::Place::Frozen).
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Offset in the page file.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the window.
    pub place: u64,
}

/// What the frozen image has of the page file. For the first process of a clone, before it restores anything.
pub fn kept_pages() -> Vec<Kept> {
    if !is_clone() || GONE.load(Ordering::SeqCst) {
        return Vec::new();
    }
    let kept = kept(segments());
    let of_pages = segments().iter().take_while(|s| s.space == PAGEFILE);
    of_pages.filter_map(|s| Some(Kept { addr: s.addr, len: s.len, place: kept.place(s)? })).collect()
}

/// Maps what the frozen image and its ancestors have of the page file, for reading only: once, at boot, before the first fork.
pub(crate) fn map_pages() {
    const PROT_READ: u64 = 1;
    const MAP_PRIVATE_FIXED_NOREPLACE: u64 = 2 | 0x10_0000;
    for (file, window) in kept(segments()).windows() {
        let fd = if file == 0 { fd::FROZEN as u64 } else { fd::ANCESTORS as u64 + u64::from(file) - 1 };
        let at = FROZEN_PAGES_BASE + window.at;
        // SAFETY: the window is free, and nobody refers to what lies there: it is only copied from.
        let r = unsafe {
            host::call(nr::MMAP, [at, window.len, PROT_READ, MAP_PRIVATE_FIXED_NOREPLACE, fd, window.offset])
        };
        assert!(r.is_ok(), "boot: mapping the frozen image's pages failed: {r:?}");
        WINDOWS_END.store(window.at + window.len, Ordering::Relaxed);
    }
}

/// Where the windows end.
static WINDOWS_END: AtomicU64 = AtomicU64::new(0);

/// The address of `len` bytes at this offset behind the windows' base.
pub(crate) fn window(place: u64, len: usize) -> u64 {
    let end = place.checked_add(len as u64);
    assert!(
        end.is_some_and(|e| e <= WINDOWS_END.load(Ordering::Relaxed)),
        "offset out of the frozen image's pages"
    );
    FROZEN_PAGES_BASE + place
}

/// Runs `f` on the saved pages of the address space that had host pid `space`, in order of address, and then unmaps
/// header and tables from this one: it needs them once, and they cost two page tables. After that there are none.
pub fn restore<R>(space: i32, f: impl FnOnce(&[Segment]) -> R) -> R {
    if !is_clone() || GONE.swap(true, Ordering::SeqCst) {
        return f(&[]);
    }
    let all = segments();
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
