//! What a domain is allowed to do to the host: policy as data, and nothing but data.
//!
//! * [`ALLOWED`]: the host system calls a guest kernel may make, with their arguments and the reason.
//! * [`compile`]: turns that table into a seccomp program that decides by instruction pointer.
//! * [`container`]: what a paene domain's programs may ask of the host's kernel.
//! * [`service`]: what a service domain's process may ask of it; [`service::NETWORK`], [`STORAGE`].
//! * [`supervisor`]: what our own privileged processes keep of root's rights.
//! * [`limits`]: resource limits and namespaces every domain process is born with.
//!
//! Boundary: this crate makes no system call. `common/sys` applies what it describes and the guest
//! kernel's start code installs the seccomp program before any guest code runs.
#![forbid(unsafe_code)]

mod bpf;
pub mod container;
pub mod disks;
pub mod limits;
pub mod packets;
mod rules;
pub mod service;
pub mod storage;
pub mod supervisor;
mod table;

pub use bpf::{Instruction, Sites, compile};
pub use rules::{ALLOWED, Check, Rule, Site, Test};
pub use storage::STORAGE;
pub use table::{host_call_table, service_call_table};

#[cfg(test)]
mod tests;
