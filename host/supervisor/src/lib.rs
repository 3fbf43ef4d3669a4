//! Domain 0: policy over domains, and the HTTP interface to it (`docs/supervisor.md`).
//!
//! [`Supervisor`] has one method for each thing the interface can do; `http` carries them over HTTP, and nothing but
//! that. What it knows is in `domains` (rows, held in memory, written down by `state`), what is asked goes through
//! `domains::spec` (checked), `create`, `lifecycle` and `output` beside it, `frozen` and `images`; what happens by itself is in
//! `domains::reconcile`. Mechanism is the [`keeper`]'s: a process of its own that outlives this one, reached through
//! `keepers::keeper_client`.
//!
//! Boundary: requests are validated here, at the edge; whatever a domain wrote reaches this process as bytes only.
#![forbid(unsafe_code)]

mod asker;
mod config;
mod core;
mod domains;
mod frozen;
mod gatekeeper;
pub mod http;
mod images;
mod jobs;
pub mod keeper;
mod keepers;
mod limits;
mod listing;
mod networks;
mod operate;
mod operations;
mod residency;
mod state;
mod streams;
mod supervisor;
mod telemetry;
mod time;

pub use config::{Config, Replacement};
pub use gatekeeper::rules::Rules as GatekeeperRules;
pub use keepers::upgrade::version;
pub use streams::{ByteStream, LineStream};
pub use supervisor::Supervisor;

fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing that these protect is ever left half done: no code between lock and unlock panics but by a bug, which
    // ends the process.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
