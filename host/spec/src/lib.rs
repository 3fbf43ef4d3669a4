//! What can be asked of a domain: each option once, with its name, type, default, bounds and documentation.
//!
//! The interface (`host/api`), the keeper's messages and records (`host/supervisor`), and what enforces options
//! (`host/domain`) use these types as they are, so that an option that is added here goes all the way.
//! `docs/adr/011-options-declared-once.md` has the reasons.
//!
//! The feature `cli` makes the types options of a command line as well.
//!
//! Boundary: pure data; no I/O here.
#![forbid(unsafe_code)]

#[cfg(feature = "cli")]
mod cli;
mod clone;
mod domain;
mod exec;
mod files;
mod hosts;
mod network;
mod program;
mod request;
mod residency;
mod resources;
pub mod values;

#[cfg(feature = "cli")]
pub use cli::ResourceArgs;
pub use clone::CloneFrozen;
pub use domain::{CreateDomain, DebugLevel, HealthCheck, Kind, LogTarget, RestartPolicy};
pub use exec::{CreateExec, ExecConfig, ResizeTerminal};
pub use files::{
    BlockDevice, Files, Mount, MountKind, OnClone, check_disk_name, check_layer_name, check_volume_name,
};
pub use hosts::host_line;
pub use network::{
    DEFAULT_NETWORK, MOST_NETWORKS, Network, NetworkKind, NetworkMembership, NetworkRate, NetworkRule,
    PortMapping, Protocol, RuleAction, RuleDirection,
};
pub use program::Program;
pub use request::{Request, Unfit, flags};
pub use residency::Residency;
pub use resources::{IoDevice, LEAST_MEMORY, MOST_CPUS, MOST_SWAP, NO_PIDS_LIMIT, Resources, UNBOUNDED};
