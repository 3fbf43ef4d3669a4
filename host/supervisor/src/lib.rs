//! Domain 0: policy over domains, and the HTTP interface to it (`docs/supervisor.md`).
//!
//! [`Supervisor`] has one method for each thing the interface can do; `http` carries them over HTTP, and nothing but
//! that. What it knows is in `domains` (rows, held in memory, written down by `state`), what is asked goes through
//! `wanted` (checked), `create`, `lifecycle`, `frozen`, `images`, `output`; what happens by itself is in `fate`.
//! Mechanism is the [`keeper`]'s: a process of its own that outlives this one, reached through `link`.
//!
//! Boundary: requests are validated here, at the edge; whatever a domain wrote reaches this process as bytes only.
#![forbid(unsafe_code)]

mod accounting;
mod answers;
mod audit;
mod collect;
mod core;
mod create;
mod domains;
mod events;
mod execs;
mod fate;
mod files;
mod frozen;
mod health;
mod held;
mod histogram;
pub mod http;
mod images;
mod input;
pub mod keeper;
mod keepers;
mod lifecycle;
mod link;
mod names;
mod network;
mod operations;
mod origins;
mod output;
mod pulse;
mod roots;
mod services;
mod stages;
mod state;
mod streams;
mod supervisor;
mod time;
mod upgrade;
mod wanted;

pub use streams::{ByteStream, LineStream};
pub use supervisor::{Config, Supervisor};
pub use upgrade::{Replacement, version};

fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing that these protect is ever left half done: no code between lock and unlock panics but by a bug, which
    // ends the process.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
