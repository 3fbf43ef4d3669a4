//! The gatekeeper's rules: which domains hibernate, who goes on first when memory is short (`docs/gatekeeper.md`).
//!
//! Pure: facts about domains and memory go in, decisions come out. `residency` has the facts, and does what is decided.
//!
//! Boundary: what domains say of themselves (their counters, when their timers are due) is taken for what it is: who lies
//! hibernates more rarely, or is woken for nothing, and pays with its own time and its owner's share.

pub mod agenda;
pub mod damping;
pub mod idle;
pub mod pressure;
pub mod queue;
pub mod rules;
