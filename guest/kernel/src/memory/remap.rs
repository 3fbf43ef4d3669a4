//! mremap: growing, shrinking and moving mappings.

use doppel_abi_machine::layout::USER_END;
use doppel_machine::host::{self, HostError};

use super::map::{Inner, Removed};
use super::vma::{Backing, VmFlags, Vma};
use super::{MapAt, Mm, PAGE, page_up};
use crate::{Errno, Result};

bitflags::bitflags! {
    /// `MREMAP_` flags.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct RemapFlags: u32 {
        /// It may be moved.
        const MAYMOVE = 1;
        /// It is moved to the address given.
        const FIXED = 2;
        /// What it showed stays mapped, empty.
        const DONTUNMAP = 4;
    }
}

/// Arguments of one call, checked.
struct Move {
    old: u64,
    old_len: u64,
    new_len: u64,
    fl: RemapFlags,
}

impl Mm {
    /// `mremap(2)`; returns the new address.
    pub fn remap(&self, old: u64, old_len: u64, new_len: u64, fl: RemapFlags, fixed: u64) -> Result<u64> {
        let (old_len, new_len) = (page_up(old_len), page_up(new_len));
        if !old.is_multiple_of(PAGE)
            || new_len == 0
            || new_len > USER_END
            || (fl.intersects(RemapFlags::FIXED | RemapFlags::DONTUNMAP) && !fl.contains(RemapFlags::MAYMOVE))
            || (fl.contains(RemapFlags::DONTUNMAP) && old_len != new_len)
        {
            return Err(Errno::EINVAL);
        }
        let old_end = old.checked_add(old_len).ok_or(Errno::EINVAL)?;
        if fl.contains(RemapFlags::FIXED) {
            let end = fixed.checked_add(new_len).filter(|e| *e <= USER_END).ok_or(Errno::EINVAL)?;
            if !fixed.is_multiple_of(PAGE) || (fixed < old_end && old < end) {
                return Err(Errno::EINVAL);
            }
        }
        let mut garbage = Removed::new();
        let r = {
            let target = if fl.contains(RemapFlags::FIXED) { (fixed, fixed + new_len) } else { (0, 0) };
            let mut g = self.lock_changing_both((old, old_end), target)?;
            g.check_unsealed(old, old_end)?;
            g.check_unsealed(target.0, target.1)?;
            self.remap_locked(&mut g, &Move { old, old_len, new_len, fl }, fixed, &mut garbage)
        };
        drop(garbage);
        r
    }

    fn remap_locked(&self, g: &mut Inner, m: &Move, fixed: u64, garbage: &mut Removed) -> Result<u64> {
        let (start, end, v) = g.map.get(m.old).ok_or(Errno::EFAULT)?;
        let v = doppel_algo::rangemap::Piece::tail(v, m.old - start);
        if !m.fl.intersects(RemapFlags::FIXED | RemapFlags::DONTUNMAP) && (1..=m.old_len).contains(&m.new_len)
        {
            // Shrinking is unmapping, over whatever lies there.
            if m.new_len < m.old_len {
                *garbage = self.unmap_locked(g, m.old + m.new_len, m.old + m.old_len)?;
            }
            return Ok(m.old);
        }
        if m.old_len > end - m.old {
            return Err(Errno::EFAULT);
        }
        if m.old_len == 0 {
            return self.duplicate(g, m, &v, fixed, garbage);
        }
        if !m.fl.intersects(RemapFlags::FIXED | RemapFlags::DONTUNMAP) {
            let (old_end, new_end) = (m.old + m.old_len, m.old.saturating_add(m.new_len));
            if old_end == end && new_end <= USER_END && g.map.is_free(old_end, new_end) {
                self.grow(g, old_end, &v, m, garbage)?;
                return Ok(m.old);
            }
            if !m.fl.contains(RemapFlags::MAYMOVE) {
                return Err(Errno::ENOMEM);
            }
        }
        self.relocate(g, m, &v, fixed, garbage)
    }

    /// Maps what is added behind `old_len` at `at`.
    fn grow(&self, g: &mut Inner, at: u64, v: &Vma, m: &Move, garbage: &mut Removed) -> Result<()> {
        let mut tail = doppel_algo::rangemap::Piece::tail(v, m.old_len);
        tail.flags -= VmFlags::CHARGED;
        let (r, old) = self.map_locked(g, MapAt::NoReplace(at), m.new_len - m.old_len, tail, false);
        garbage.extend(old);
        r.map(drop)
    }

    /// An old length of 0: a second mapping of shared memory.
    fn duplicate(&self, g: &mut Inner, m: &Move, v: &Vma, fixed: u64, garbage: &mut Removed) -> Result<u64> {
        if !v.shared() || !m.fl.contains(RemapFlags::MAYMOVE) {
            return Err(Errno::EINVAL);
        }
        let place = if m.fl.contains(RemapFlags::FIXED) { MapAt::Fixed(fixed) } else { MapAt::Hint(0) };
        let (r, old) = self.map_locked(g, place, m.new_len, v.clone(), false);
        *garbage = old;
        r
    }

    fn relocate(&self, g: &mut Inner, m: &Move, v: &Vma, fixed: u64, garbage: &mut Removed) -> Result<u64> {
        let keep_old = m.fl.contains(RemapFlags::DONTUNMAP);
        if keep_old && (v.shared() || !matches!(v.backing, Backing::Anonymous)) {
            return Err(Errno::EINVAL);
        }
        let moved = m.old_len.min(m.new_len);
        let added = if keep_old { m.new_len } else { m.new_len.saturating_sub(m.old_len) };
        g.check_limits(v, added)?;
        let at = if m.fl.contains(RemapFlags::FIXED) {
            *garbage = self.unmap_locked(g, fixed, fixed + m.new_len)?;
            fixed
        } else {
            g.place(MapAt::Hint(0), m.new_len)?
        };
        if keep_old && v.flags.contains(VmFlags::CHARGED) {
            self.commit.charge(moved)?;
        }
        let present = v.mapped_len(moved);
        if let Err(e) = move_host(m.old, at, present, keep_old) {
            if keep_old && v.flags.contains(VmFlags::CHARGED) {
                self.commit.uncharge(moved);
            }
            return Err(e);
        }
        g.move_swapped(m.old, at, moved);
        if keep_old {
            g.put(at, at + moved, v.clone());
            if v.flags.contains(VmFlags::THAWED) {
                // The host would show the frozen image's pages again at the old place.
                v.map_host(m.old, 0, present, false)?;
            }
            return Ok(at);
        }
        // What moves stays accounted; only its place in the tree changes.
        let parts = g.map.remove(m.old, m.old + moved);
        garbage.extend(parts);
        g.map.insert(at, at + moved, v.clone());
        if m.new_len < m.old_len {
            garbage.extend(self.unmap_locked(g, m.old + moved, m.old + m.old_len)?);
        } else if m.new_len > m.old_len {
            self.grow(g, at + moved, v, m, garbage)?;
        }
        Ok(at)
    }
}

/// Moves host pages. One guest mapping may be several host ones, which the host refuses to move at once
/// (EFAULT): then the halves are moved.
fn move_host(from: u64, to: u64, len: u64, keep: bool) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    match host::remap_user(from, len, to, len, keep) {
        Ok(()) => Ok(()),
        Err(HostError(14)) if len > PAGE => {
            let half = super::page_down(len / 2).max(PAGE);
            move_host(from, to, half, keep)?;
            move_host(from + half, to + half, len - half, keep).inspect_err(|_| {
                // Put back what was moved; if that fails too, the program loses those pages and faults there.
                let _ = host::remap_user(to, half, from, half, false);
            })
        }
        Err(_) => Err(Errno::ENOMEM),
    }
}
