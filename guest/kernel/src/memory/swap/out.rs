//! Pages leave memory: copied to the swap region, then mapped from there.
//!
//! The host lists ranges that are in memory. While the other vCPUs of the space stand still, their content goes to the region
//! (pages of zeros go nowhere) and the region is mapped in their place. The list is a wish: what it says is checked against
//! the tree, and a page keeps its content whatever the host believes of it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_machine::frozen::Segment;
use doppel_abi_machine::layout::{USER_END, USER_START};
use doppel_abi_machine::swap::OWN;
use doppel_algo::zeros::{Run, runs};
use doppel_machine::arena;
use doppel_machine::host;
use doppel_machine::swap::{self, Use, Window};
use doppel_machine::user::UserPtr;

use super::{Extent, Piece, REGION};
use crate::core::sched::STANDSTILL;
use crate::memory::advise::Advice;
use crate::memory::map::Inner;
use crate::memory::vma::{Backing, Prot, VmFlags, Vma};
use crate::memory::{Mm, OTHERS, PAGE, is_saved_still};

/// Most bytes moved while a space stands still.
const BATCH: u64 = 512 << 10;
/// Most ranges of them.
const RANGES: usize = 64;
/// Most ranges of a space that are mapped from the region: the host's own limit is 65,530 mappings.
const MOST: usize = 8192;
/// Fewer pages of zeros between others go to the region with them.
const ZEROS: usize = 16;

/// Mappings that stay in memory: what is written there is not private, or has a meaning of its own.
const STAYS: VmFlags = VmFlags::SHARED
    .union(VmFlags::WIPEONFORK)
    .union(VmFlags::VDSO)
    .union(VmFlags::PATCHED)
    .union(VmFlags::TRAMPOLINE)
    .union(VmFlags::LOCKED);

/// A range that is to leave memory.
#[derive(Clone, Copy)]
struct Wish {
    start: u64,
    end: u64,
    /// The host says that the pages are the process' own, not the region's.
    own: bool,
}

impl Wish {
    fn of(s: &Segment) -> Option<Self> {
        let end = s.addr.checked_add(s.len).filter(|end| *end <= USER_END && s.addr >= USER_START)?;
        (s.addr.is_multiple_of(PAGE) && end.is_multiple_of(PAGE) && s.len > 0).then_some(Self {
            start: s.addr,
            end,
            own: s.offset == OWN,
        })
    }
}

/// A part of a wish inside one mapping.
struct Part {
    start: u64,
    end: u64,
    v: Vma,
    /// The whole mapping.
    bounds: (u64, u64),
}

impl Mm {
    /// Moves these pages of the current space out of memory, as far as that goes and as long as it is wanted. The caller holds
    /// no lock.
    pub fn page_out(&self, list: &[Segment], wanted: impl Fn() -> bool) {
        if arena::low() {
            return;
        }
        let mut buf = alloc::vec![0; BATCH as usize];
        let mut batch: Vec<Wish> = Vec::new();
        let mut bytes = 0;
        for wish in list.iter().filter_map(Wish::of) {
            let mut at = wish.start;
            while at < wish.end {
                let to = wish.end.min(at + (BATCH - bytes));
                batch.push(Wish { start: at, end: to, ..wish });
                bytes += to - at;
                at = to;
                if bytes == BATCH || batch.len() == RANGES {
                    if !wanted() || !self.batch_out(&batch, &mut buf) {
                        return;
                    }
                    batch.clear();
                    bytes = 0;
                }
            }
        }
        self.batch_out(&batch, &mut buf);
    }

    /// False: nothing more is to be moved now.
    fn batch_out(&self, batch: &[Wish], buf: &mut [u8]) -> bool {
        // The host saves the memory as it was, or is about to.
        if STANDSTILL.is_asked() || is_saved_still() {
            return false;
        }
        let mut each = || {
            let mut g = self.lock();
            batch.iter().for_each(|wish| self.out(&mut g, *wish, buf));
        };
        batch.is_empty() || (OTHERS.get().halted)(self, &mut each).is_ok()
    }

    fn out(&self, g: &mut Inner, wish: Wish, buf: &mut [u8]) {
        let parts: Vec<Part> = g
            .map
            .overlapping(wish.start, wish.end)
            .filter(|(.., v)| may_leave(v))
            .map(|(s, e, v)| Part {
                start: s.max(wish.start),
                end: e.min(wish.end),
                v: v.clone(),
                bounds: (s, e),
            })
            .collect();
        for part in parts {
            let mut at = part.start;
            while at < part.end {
                let here = g.swapped.get(at).map(|(s, e, piece)| (s, e, piece.clone()));
                let next = g.swapped.overlapping(at, part.end).next().map_or(part.end, |(s, ..)| s);
                let to = here.as_ref().map_or(next, |(_, e, _)| (*e).min(part.end));
                let bytes = &mut buf[..(to - at) as usize];
                if UserPtr(at).peek_bytes(bytes).is_ok() {
                    match here {
                        Some((s, _, piece)) => {
                            let page = piece.page + (at - s) / PAGE;
                            // Ours is one more.
                            let alone = Arc::strong_count(&piece.extent) == 2;
                            self.again(g, &part, at, bytes, Slot { page, alone, own: wish.own });
                        }
                        None => self.first(g, &part, at, bytes),
                    }
                }
                at = to;
            }
        }
    }

    /// Pages that are not in the region.
    fn first(&self, g: &mut Inner, part: &Part, at: u64, bytes: &[u8]) {
        for Run { from, to, zeros } in runs(bytes, PAGE as usize, ZEROS) {
            let (start, bytes) = (at + from as u64, &bytes[from..to]);
            let done = if zeros {
                let prot = part.v.prot.bits();
                host::map_user(start, bytes.len() as u64, prot, host::Backing::Anonymous, false).is_ok()
            } else {
                self.to_region(g, part, start, bytes)
            };
            if !done {
                return;
            }
        }
    }

    /// Maps these bytes from the region; false if there is no room, or the host cannot: they stay as they are.
    fn to_region(&self, g: &mut Inner, part: &Part, at: u64, bytes: &[u8]) -> bool {
        let (len, count) = (bytes.len() as u64, bytes.len() as u64 / PAGE);
        if g.swapped.len() >= MOST {
            return false;
        }
        let Some(extent) = REGION.take(count) else { return false };
        if !copy_to(&extent, bytes) {
            return false;
        }
        let from = host::Backing::Swap(extent.page * PAGE);
        if host::map_user(at, len, part.v.prot.bits(), from, false).is_err() {
            return false;
        }
        let page = extent.page;
        // What was there of another extent is dropped, which only notes it.
        drop(g.swapped.insert(at, at + len, Piece { extent, page }));
        g.map.update(part.bounds.0, part.bounds.1, |_, _, v| v.flags |= VmFlags::THAWED);
        true
    }

    /// Pages that are in the region, and may have changed since.
    fn again(&self, g: &mut Inner, part: &Part, at: u64, bytes: &[u8], slot: Slot) {
        let (len, count) = (bytes.len() as u64, bytes.len() as u64 / PAGE);
        let same = !(slot.own && slot.alone) && is_in(slot.page, bytes);
        if !same && !slot.alone {
            // Another space is mapped from these.
            self.to_region(g, part, at, bytes);
            return;
        }
        // What the region has of own pages need not be read from the disk first.
        let emptied = !same && slot.own && swap::punch(slot.page, count).is_ok();
        if !same && !write(slot.page, bytes) {
            if emptied {
                // They may have been the region's after all.
                put_back(g, part, at, bytes);
            }
            return;
        }
        // The host refuses it for nothing that is mapped; the pages stay then.
        let _ = host::advise_user(at, len, Advice::DontNeed as i32);
    }
}

/// What of the region a range is mapped from.
#[derive(Clone, Copy)]
struct Slot {
    page: u64,
    /// By this range alone.
    alone: bool,
    /// The host says that it has pages of its own there.
    own: bool,
}

fn may_leave(v: &Vma) -> bool {
    matches!(v.backing, Backing::Anonymous) && !v.flags.intersects(STAYS) && v.prot.contains(Prot::READ)
}

fn copy_to(extent: &Extent, bytes: &[u8]) -> bool {
    write(extent.page, bytes)
}

fn write(page: u64, bytes: &[u8]) -> bool {
    Window::open(page, bytes.len() as u64 / PAGE, Use::Write).is_ok_and(|window| window.write(0, bytes))
}

/// Whether the region has just these bytes there.
fn is_in(page: u64, bytes: &[u8]) -> bool {
    let Ok(window) = Window::open(page, bytes.len() as u64 / PAGE, Use::Read) else { return false };
    let mut there = [0; 512];
    bytes.chunks(there.len()).enumerate().all(|(i, chunk)| {
        let there = &mut there[..chunk.len()];
        window.read(i * 512, there) && there == chunk
    })
}

/// Makes pages the process' own again whose place in the region is lost.
fn put_back(g: &mut Inner, part: &Part, at: u64, bytes: &[u8]) {
    let len = bytes.len() as u64;
    let mapped = host::map_user(at, len, Prot::RW.bits(), host::Backing::Anonymous, false);
    let whole = mapped.is_ok()
        && UserPtr(at).poke_bytes(bytes).is_ok()
        && host::protect_user(at, len, part.v.prot.bits()).is_ok();
    assert!(whole, "memory at {at:#x} cannot be brought back");
    drop(g.swapped.remove(at, at + len));
}
