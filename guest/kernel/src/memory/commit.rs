//! Commit accounting: how much private writable memory a domain has promised to its programs.
//!
//! Memory is charged when it is mapped writable, so a program that asks for too much gets ENOMEM before the host
//! kills the domain. Memory inherited by fork is charged to the parent only: it is shared until written.

use core::sync::atomic::{AtomicU64, Ordering};

use doppel_machine::{arena, boot};

use crate::core::events::{Kind, record};
use crate::core::hook::Hook;
use crate::core::part::Part;
use crate::{Errno, Result};

/// Bytes charged in the whole domain.
#[derive(Default)]
pub struct Commit {
    used: AtomicU64,
}

/// How often memory is asked back for one charge: others may take what was given up.
const RECLAIMS: u32 = 4;

/// Gives up so many bytes of what can be had again; false if there is nothing. Waits for nobody.
pub static RECLAIM: Hook<fn(u64) -> bool> = Hook::new();

/// The domain's.
pub static COMMIT: Part<Commit> = Part::new();

impl Commit {
    /// Charges `n` bytes; ENOMEM beyond the domain's limit.
    pub fn charge(&self, n: u64) -> Result<()> {
        self.charge_leaving(n, 0)
    }

    /// As [`Self::charge`], but refuses unless one in `part` of the limit stays free (0: no such rule): what files
    /// may fill must leave room to run the program that removes them.
    pub fn charge_leaving(&self, n: u64, part: u64) -> Result<()> {
        self.try_charge(n, part, RECLAIMS)
    }

    fn try_charge(&self, n: u64, part: u64, tries: u32) -> Result<()> {
        let limit = boot::memory_limit();
        let old = self.used.fetch_add(n, Ordering::Relaxed);
        // Without a limit only what could never fit is refused, as Linux' heuristic does.
        let fits = if limit != 0 {
            // Kernel memory (open files, names, threads) counts too: programs make it grow.
            let keep = limit.checked_div(part).unwrap_or(0);
            old.saturating_add(n).saturating_add(arena::usage().0) <= limit - keep
        } else {
            let host = boot::start_info().host_memory;
            host == 0 || n <= host
        };
        if !fits && tries > 0 && RECLAIM.get()(n) {
            self.uncharge(n);
            return self.try_charge(n, part, tries - 1);
        }
        if !fits {
            record(Kind::MemoryRefused, [n, old, limit]);
            self.uncharge(n);
            return Err(Errno::ENOMEM);
        }
        say(old + n);
        Ok(())
    }

    /// ENOMEM unless `n` bytes could be charged once `back` are given back.
    pub fn check_room(&self, n: u64, back: u64) -> Result<()> {
        let limit = boot::memory_limit();
        let used = || self.used().saturating_sub(back) + arena::usage().0;
        let fits = || limit == 0 || used().saturating_add(n) <= limit;
        if fits() || RECLAIM.get()(n) && fits() {
            return Ok(());
        }
        let used = used();
        record(Kind::MemoryRefused, [n, used, limit]);
        Err(Errno::ENOMEM)
    }

    /// Tells the host anew what is charged (in a clone).
    pub fn adopt(&self) {
        say(self.used());
    }

    /// Gives back what was charged.
    pub fn uncharge(&self, n: u64) {
        say(self.used.fetch_sub(n, Ordering::Relaxed) - n);
    }

    /// Bytes charged (`Committed_AS`).
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Tells the host what counts against the limit. When two say it at once the older may stay until the next does.
fn say(charged: u64) {
    boot::vregs().memory_used.store(charged.saturating_add(arena::usage().0), Ordering::Relaxed);
}
