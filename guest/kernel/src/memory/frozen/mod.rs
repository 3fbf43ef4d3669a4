//! The memory of an address space, made anew from its map and the frozen image.
//!
//! Every mapping is made as at first, except that runs of pages the image or an ancestor of it holds are mapped from there, private:
//! unwritten pages stay shared with all other clones (what is mapped of the page file: objects/pages). Runs on the space's first vCPU,
//! before its threads.

mod guard;
mod log;

pub use guard::Guards;
pub use log::LOG;

use doppel_abi_machine::frozen::Segment;
use doppel_algo::rangemap::RangeMap;
use doppel_machine::{frozen, host};

use super::Mm;
use super::advise::Advice;
use super::vma::{VmFlags, Vma};
use crate::Result;

impl Mm {
    /// Maps all of this space, whose memory the frozen image keeps under `pid`.
    pub(super) fn restore(&self, pid: i32) {
        frozen::restore(pid, |saved| self.restore_from(saved));
    }

    fn restore_from(&self, mut rest: &[Segment]) {
        let mut g = self.lock();
        self.guards.forget();
        // The frozen image has what was in the swap region that stayed behind.
        g.swapped = RangeMap::default();
        let mut thawed = alloc::vec::Vec::new();
        for (start, end, v) in g.map.iter() {
            let end = start + v.mapped_len(end - start);
            while rest.first().is_some_and(|s| s.addr + s.len <= start) {
                rest = &rest[1..];
            }
            let own = !v.flags.intersects(VmFlags::SHARED | VmFlags::WIPEONFORK);
            let n = rest.iter().take_while(|s| own && s.addr < end).count();
            if let Err(e) = map_parts(start, end, v, &rest[..n]) {
                panic!("the frozen image's memory at {start:#x} cannot be mapped: {e:?}");
            }
            if n > 0 {
                thawed.push((start, end));
            }
        }
        for (start, end) in thawed {
            g.map.update(start, end, |_, _, v| v.flags |= VmFlags::THAWED);
        }
    }
}

/// Maps `start..end`: what `saved` has from the frozen image, the rest as `v` says.
fn map_parts(start: u64, end: u64, v: &Vma, saved: &[Segment]) -> Result<()> {
    let mut at = start;
    for s in saved {
        let (from, to) = (s.addr.max(start), (s.addr + s.len).min(end));
        v.map_host(start, at - start, from - start, false)?;
        let offset = s.offset + (from - s.addr);
        host::map_user(from, to - from, v.prot.bits(), host::Backing::Frozen(s.file, offset), false)
            .map_err(|_| crate::Errno::ENOMEM)?;
        at = to;
    }
    v.map_host(start, at - start, end.max(at) - start, false)?;
    if v.flags.contains(VmFlags::WIPEONFORK) {
        // Fresh zero pages already; only later forks need it.
        host::advise_user(start, end - start, Advice::WipeOnFork as i32).map_err(|_| crate::Errno::ENOMEM)?;
    }
    Ok(())
}
