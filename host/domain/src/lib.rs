//! One domain's life: build, run, stop, account.
//!
//! [`DomainConfig`] says what is wanted; [`Domain::start`] makes the memory, the identity and the control
//! group and forks the domain's first process, confined, executing the guest kernel; [`Domain::wait`]
//! moves console bytes and signals until the program ends; dropping a [`Domain`] leaves nothing behind.
//!
//! Boundary: policy comes from `host/confine`, mechanism from `host/sys`, layouts from `abi/machine`.
//! Everything a domain can write is read once and checked (`ring.rs`, `domain.rs`).
#![forbid(unsafe_code)]

mod cgroup;
mod config;
mod console;
mod control;
mod domain;
mod elf;
mod error;
mod identity;
mod kernel;
mod ring;
mod shelf;
mod terminal;

pub use cgroup::Usage;
pub use config::{DomainConfig, LEAST_MEMORY, MOST_CPUS};
pub use domain::{Domain, Outcome};
pub use elf::Gates;
pub use error::Error;
pub use kernel::Kernel;
