//! The storage service domain: files of the host's for domains (docs/services.md).
//!
//! Key types: [`Engine`] (all clients of one process, and its threads), [`Volume`] (a directory or file that a domain is given),
//! [`Manager`] (the supervisor's side: starts the process, attaches domains, replaces what has died).
//! - `client`: one domain's channel: requests in, answers out.
//! - `files`: what requests do to the host's files, each once.
//! - `nodes`: which files a domain knows, in memory that outlives the process; `pins`: those that the manager keeps open.
//! - `changes`: what others change in files that a domain watches; `budget`: what that may take of the host.
//! - `engine`: turns, and threads of which one leads; `host`: what all clients share, its `descriptors` among that.
//! - `quota`: what the files of a volume may take; `throttle`: what a domain may read and write in a second.
//! - `lessor`: what a domain may keep of its volumes.
//! - `serve`: the process, and the manager's orders; `said`: what it answers.
//!
//! Boundary: a domain's channel is hostile. Requests are decoded from copies, names are single components, work in a turn is
//! bounded, and a broken channel costs its own domain its files and nobody else anything. Permissions are the guest kernel's
//! business: whoever asks has been checked there, and what a domain may reach is the volume alone.
#![forbid(unsafe_code)]

mod budget;
mod changes;
mod client;
mod descriptors;
mod engine;
mod files;
mod host;
mod lessor;
mod manager;
mod nodes;
mod pins;
mod quota;
mod said;
mod serve;
mod stays;
#[cfg(test)]
mod tests;
mod throttle;
mod volume;

pub use doppel_abi_service::storage::{Amount, Traffic};
pub use engine::{ClientId, Engine};
pub use lessor::{Keeps, Lessor};
pub use manager::{Attachment, Health, Manager, SERVICE, channel};
pub use nodes::{Remap, copy_nodes, memory as node_memory, nodes_file};
pub use quota::{Bound, count};
pub use serve::serve;
pub use throttle::{Limits, Rate};
pub use volume::{DiskFiles, Volume};
