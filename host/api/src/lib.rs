//! The supervisor's HTTP interface as types: what it is asked, what it answers, how it refuses.
//!
//! The supervisor (`host/supervisor`), the command (`host/cli`) and through the OpenAPI document every SDK share
//! these. What can be asked of a domain is in `host/spec`. JSON over HTTP/1.1; all paths but `/metrics` begin with [`VERSION_PREFIX`]. Names are snake case and carry
//! their unit (`_bytes`, `_seconds`, `_ms`); times are RFC 3339 strings in UTC. Absent fields are left out, unknown
//! ones refused. Streams are lines of JSON (`application/x-ndjson`), so that any HTTP client reads them.
//! `docs/api.md` has the table of paths.
//!
//! Boundary: pure data; no I/O here.
#![forbid(unsafe_code)]

mod debug;
mod disk;
mod domain;
mod exec;
mod files;
mod frozen;
mod image;
mod network;
mod problem;
mod residency;
pub mod schema;
mod system;
pub mod validate;
mod volume;

pub use debug::{DebugEvent, DebugEventOptions, SetDebugEvents, ThreadStack};
pub use disk::{CreateDisk, Disk, RemoveDisk, ResizeDisk};
pub use domain::{
    AttachOptions, Created, Domain, DomainState, DomainStats, ExitInfo, HealthState, KillOptions,
    ListOptions, LogOptions, MemoryStats, ProcessInfo, PruneReport, RemoveOptions, Rename, StopOptions,
    UpdateDomain, WaitCondition, WaitOptions, Waited,
};
pub use doppel_spec::{
    BlockDevice, CloneFrozen, CreateDomain, CreateExec, Files, HealthCheck, IoDevice, Kind, LogTarget, Mount,
    MountKind, Network, NetworkKind, NetworkMembership, NetworkRate, NetworkRule, OnClone, PortMapping,
    Protocol, Residency, ResizeTerminal, Resources, RestartPolicy, RuleAction, RuleDirection,
};
pub use exec::{Exec, InputOptions, Output};
pub use files::{
    FileChange, FileChangeKind, FileInfo, FileKind, PathQuery, RemoveFile, RenameFile, WriteFile,
};

pub use frozen::{
    CloneResult, Cloned, FreezeDomain, FreezeReport, FrozenImage, FrozenPruneOptions, FrozenPruneReport,
    Hibernated, RollBack,
};
pub use image::{Image, ImageConfig, ImagePruneReport, ImportImage, PullImage, PushImage};
pub use network::{
    Attached, ConnectNetwork, CreateNetwork, DisconnectNetwork, Flow, FlowList, FlowOptions, FlowProtocol,
    FlowState, NetworkPruneOptions, NetworkPruneReport, NetworkStats, NetworkSubnet, RemoveNetwork,
    TrafficStats, UpdateNetwork, VirtualNetwork,
};
pub use problem::{Code, Problem, in_words};
pub use residency::{Hibernation, HibernationReason, MemoryInfo, Waiting, WaitingFor, WakeReason};
pub use system::{
    Event, EventKind, EventOptions, Info, Operation, OperationState, Progress, Service, UpgradeCheck,
    UpgradeReport, UpgradedKeeper, Version,
};
pub use volume::{
    CreateVolume, MountPoint, RemoveVolume, StorageStats, Volume, VolumePruneOptions, VolumePruneReport,
    has_labels,
};

pub use validate::Validate;

/// Prefix of all paths of this version of the interface.
pub const VERSION_PREFIX: &str = "/v1";
/// Header of a request that may be sent twice: the second one gets the first one's answer.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Where the supervisor listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/doppel/doppeld.sock";
/// Environment variable that names another socket (`unix:///path`) or server (`https://host:port`).
pub const HOST_VARIABLE: &str = "DOPPEL_HOST";
/// Environment variable with the bearer token for a server on TCP.
pub const TOKEN_VARIABLE: &str = "DOPPEL_TOKEN";
/// Media type of streams.
pub const NDJSON: &str = "application/x-ndjson";
/// Media type of errors (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";
