//! Shadows of a domain's processes: their memory as it was at a freeze, for the host to save while the domain goes on.
//!
//! They are the domain's own processes, made by its guest kernel on event `SHADOW` and ended by it when the host needs
//! them no longer (docs/machine-interface.md). Which they are is the domain's word: what it makes up can only make its
//! own frozen image wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use doppel_abi_machine::{NO_SHADOWS, control, event, group_limit};
use doppel_freezer::Load;
use doppel_freezer::scan::processes;
use doppel_sys::shared;
use rustix::thread::futex;

use crate::io::ring::{post, registers};
use crate::run::state::Core;

/// How long a domain may take to make them, and to end them.
const PATIENCE: Duration = Duration::from_secs(10);

/// The shadows of a domain, which ends them when this is dropped.
#[derive(Debug)]
pub(crate) struct Shadows<'a> {
    core: &'a Core,
    /// Pids in its namespace, of processes and of their shadows.
    pairs: BTreeMap<i32, i32>,
    /// Their host pids, as far as they are known.
    host: Vec<i32>,
}

/// Whether there is room for a second copy of what a domain may write while it has shadows, and a third in the image.
pub(crate) fn room(core: &Core, load: &Load) -> bool {
    let guest = core.born.memory_limit.load(Ordering::Relaxed);
    let inside = guest == 0 || load.total.saturating_add(load.bytes) <= group_limit(guest);
    let available = doppel_sys::memory::available();
    inside && available.is_some_and(|bytes| load.bytes.saturating_mul(2) <= bytes)
}

impl<'a> Shadows<'a> {
    /// Has the domain, which stands still, leave them; none if it cannot.
    pub fn cast(core: &'a Core) -> Option<Self> {
        let registers = registers(&core.map);
        registers.shadows.store(0, Ordering::SeqCst);
        post(&core.map, event::SHADOW);
        let mut rounds = 0u32;
        let answered = || {
            rounds += 1;
            registers.shadows.load(Ordering::SeqCst) != 0 || (rounds.is_multiple_of(16) && core.is_dead())
        };
        core.look_until(PATIENCE, answered);
        // From here on those that were made end with this.
        let mut shadows = Self { core, pairs: BTreeMap::new(), host: Vec::new() };
        let count = match registers.shadows.load(Ordering::SeqCst) {
            0 | NO_SHADOWS => return None,
            n => u64::from(n - 1).min(control::SHADOWS_MAX),
        };
        for i in 0..count {
            let mut pair = [0; 8];
            let at = shared::offset(control::SHADOWS + i * 8);
            core.map.read(at, &mut pair);
            let [a, b, c, d, e, f, g, h] = pair;
            shadows.pairs.insert(i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h]));
        }
        Some(shadows)
    }

    /// The shadows of these processes (pids in their namespace, host pids); none if one has none. The domain stands still,
    /// so no process ends while the host tells which there are.
    pub fn of(&mut self, processes: &[(i32, i32)]) -> Option<doppel_freezer::Shadows> {
        let known: BTreeSet<i32> = processes.iter().map(|p| p.1).collect();
        let others = processes::other_processes(self.core.child.pid, &known).ok()?;
        let host: BTreeMap<i32, i32> = others.into_iter().collect();
        self.host = self.pairs.values().filter_map(|inner| host.get(inner).copied()).collect();
        let shadow = |inner: &i32| host.get(self.pairs.get(inner)?).copied();
        processes.iter().map(|(inner, pid)| Some((*pid, shadow(inner)?))).collect()
    }

    /// Whether one has ended before its time, as all do with their domain.
    pub fn any_gone(&self) -> bool {
        !self.host.iter().all(|&pid| processes::has_memory(pid))
    }
}

impl Drop for Shadows<'_> {
    fn drop(&mut self) {
        let registers = registers(&self.core.map);
        registers.shadows_end.fetch_add(1, Ordering::SeqCst);
        // The only possible failure is an unmapped word, and ours is mapped.
        let _ = futex::wake(&registers.shadows_end, futex::Flags::empty(), i32::MAX as u32);
        // The next freeze must not take one for a process.
        self.core.look_until(PATIENCE, || !self.host.iter().any(|&pid| processes::is_process(pid)));
    }
}
