//! Which domains are in memory: what the gatekeeper's rules ([`crate::gatekeeper`]) decide is done here (`docs/gatekeeper.md`).
//!
//! [`gate::Gate`] has the facts: what is due when, who is in memory and with how much, who waits for it. `admission` lets starts
//! and wakes in, `keeping` hibernates idle domains, makes room and wakes those whose timers are due, `activity` wakes domains of which
//! somebody wants something, and keeps those that are used.
//!
//! Nothing here looks at all domains regularly. A domain is looked at when its time has come; when memory is short those that are in
//! memory are gone through.

pub mod activity;
pub mod admission;
pub mod figures;
pub mod gate;
mod host_memory;
pub mod keeping;
pub mod residence;
