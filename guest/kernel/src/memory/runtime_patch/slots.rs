//! The patches of one space, and the memory of their slots.
//!
//! Key type: [`RuntimePatches`]. Slots lie in one mapping: those of rule a at its beginning, one after the other, behind them those
//! of rule c, each of which must lie where the jump to it has the bytes it must have.

use alloc::collections::BTreeMap;

use super::site::{LONGEST, Rule, SLOT_A, SLOT_C, Site};

/// Bytes for slots of rule a.
const LOADS: u64 = 512 * SLOT_A;
/// Bytes of the mapping. Each 64 KiB of the rest have four places for each site of rule c.
pub(super) const REGION: u64 = LOADS + (256 << 10);
/// Which lower bits of a place for a site of rule c there are.
const PLACES: u64 = 256;
/// Changes of its text a space may cost, taking back included: each of them halts it.
const CHANGES: u32 = 2048;

/// The patches of a space.
#[derive(Clone, Default)]
pub(in crate::memory) struct RuntimePatches {
    /// Where the slots are, once there are any.
    pub(super) region: Option<u64>,
    /// What each slot stands for, by its address.
    slots: BTreeMap<u64, Site>,
    /// Slots whose sites jump to them, by site.
    live: BTreeMap<u64, u64>,
    changes: u32,
}

impl RuntimePatches {
    /// Whether `start..end` has a part of the slots.
    pub(super) fn region_hit(&self, start: u64, end: u64) -> bool {
        self.region.is_some_and(|r| start < r + REGION && end > r)
    }

    /// The patches with bytes in `start..end`: slot and site.
    pub(super) fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Site)> {
        // What was moved into a slot is a part of the patch, too.
        let from = start.saturating_sub(LONGEST - 1);
        let sites = self.live.range(from..end.max(from)).filter_map(|(_, n)| Some((*n, self.slots.get(n)?)));
        sites.filter(move |(_, s)| s.end() > start)
    }

    /// Whether a change of `start..end` concerns patches.
    pub(super) fn concerns(&self, start: u64, end: u64) -> bool {
        self.region_hit(start, end) || self.overlapping(start, end).next().is_some()
    }

    /// The slot around a program counter.
    fn slot_at(&self, pc: u64) -> Option<(u64, &Site)> {
        let (slot, site) = self.slots.range(..=pc).next_back()?;
        (pc < slot + site.slot_size()).then_some((*slot, site))
    }

    /// What a program counter inside a slot stands for.
    pub(in crate::memory) fn original_pc(&self, pc: u64) -> Option<u64> {
        let (slot, site) = self.slot_at(pc)?;
        Some(site.original_pc(pc - slot))
    }

    /// Whether a program counter is where the program goes on behind a call: it stands there for an instruction of the program's.
    pub(in crate::memory) fn is_back(&self, pc: u64) -> bool {
        self.slot_at(pc).is_some_and(|(slot, site)| site.back(slot) == Some(pc))
    }

    /// Where a program goes on that stands behind the call of a site that is a jump now.
    pub(super) fn behind_call(&self, pc: u64) -> Option<u64> {
        let slot = self.live.get(&pc.checked_sub(2)?)?;
        self.slots.get(slot)?.back(*slot)
    }

    /// Whether a site may be made a jump, which is counted then.
    pub(super) fn may_change(&mut self, site: &Site) -> bool {
        let may = self.changes < CHANGES && !self.live.contains_key(&site.at);
        self.changes += u32::from(may);
        may
    }

    /// The slot for a site: the one it has had before, or a new one; none if there is no room.
    pub(super) fn place(&self, region: u64, site: &Site) -> Option<u64> {
        if let Some((slot, _)) = self.slots.iter().find(|(_, s)| *s == site) {
            return Some(*slot);
        }
        let free = |slot: &u64| !self.slots.contains_key(slot) && site.fits(*slot);
        let (loads, end) = (region + LOADS, region + REGION);
        match site.rule {
            Rule::Load { .. } => (region..loads).step_by(SLOT_A as usize).find(free),
            Rule::Call { .. } => (site.window(loads)..end)
                .step_by(1 << 16)
                .flat_map(|w| (w.next_multiple_of(SLOT_C)..w + PLACES).step_by(SLOT_C as usize))
                .filter(|slot| slot + SLOT_C <= end)
                .find(free),
        }
    }

    /// Whether a slot's code has been written.
    pub(super) fn has(&self, slot: u64) -> bool {
        self.slots.contains_key(&slot)
    }

    /// A slot's code has been written.
    pub(super) fn add(&mut self, slot: u64, site: Site) {
        self.slots.insert(slot, site);
    }

    /// A site jumps to its slot from here on.
    pub(super) fn jumps(&mut self, site: &Site, slot: u64) {
        self.live.insert(site.at, slot);
    }

    /// A site is as it was.
    pub(super) fn taken_back(&mut self, site: &Site) {
        self.live.remove(&site.at);
    }

    /// There is no memory for slots any more, and there will be none.
    pub(super) fn end(&mut self) {
        self.region = None;
        self.slots.clear();
        self.changes = CHANGES;
    }
}
