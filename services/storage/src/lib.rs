//! The storage service domain: files of the host's for domains (docs/services.md).
//!
//! Key types: [`Engine`] (all clients of one process, on one thread), [`Volume`] (a directory that a domain is given),
//! [`Manager`] (the supervisor's side: starts the process, attaches domains, replaces what has died).
//! - `client`: one domain's channel: requests in, answers out, each done once.
//! - `files`: what requests do to the host's files.
//! - `nodes`: which files a domain knows, in memory that outlives the process.
//! - `engine`, `serve`: the process: events, turns, orders.
//!
//! Boundary: a domain's channel is hostile. Requests are decoded from copies, names are single components, work in a turn is
//! bounded, and a broken channel costs its own domain its files and nobody else anything. Permissions are the guest kernel's
//! business: whoever asks has been checked there, and what a domain may reach is the volume alone.
#![forbid(unsafe_code)]

mod client;
mod engine;
mod files;
mod manager;
mod nodes;
mod serve;
#[cfg(test)]
mod tests;
mod volume;

pub use engine::{ClientId, Engine};
pub use manager::{Attachment, Manager, SERVICE};
pub use nodes::nodes_file;
pub use serve::serve;
pub use volume::Volume;
