//! The supervisor itself: versions, capacity, events, long operations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// `GET /v1/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// Version of the supervisor.
    pub version: String,
    /// Version of this interface.
    pub api: String,
    /// Digest of the guest kernel.
    pub kernel: String,
}

/// `GET /v1/info`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Info {
    /// CPUs of the host.
    pub cpus: u32,
    /// Memory of the host in bytes.
    pub memory_bytes: u64,
    /// CPUs set aside by reservations.
    pub reserved_cpus: f64,
    /// Memory set aside by reservations, in bytes.
    pub reserved_memory_bytes: u64,
    /// Control group hierarchy: `v2`, `v1` or `none`.
    pub cgroups: String,
    /// Domains by state.
    pub domains: BTreeMap<String, u64>,
    /// Directory of images and state.
    pub store: String,
    /// What the gatekeeper knows of memory.
    pub memory: crate::MemoryInfo,
}

/// A service domain: a process that serves domains, of which another takes the place when it dies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Service {
    /// What it serves: `network` or `storage`.
    pub kind: String,
    /// Which of that kind, from 0 on.
    pub shard: u32,
    /// Host process id; none while none can be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// How many have been started in its place, itself included.
    pub starts: u64,
    /// How many of them after a death or a hang.
    pub restarts: u64,
    /// Domains it serves.
    pub domains: u64,
    /// Networks it serves; a storage service none.
    pub networks: u64,
    /// CPU time of its process.
    pub cpu_seconds: f64,
    /// Resident memory of its process in bytes, its part of the domains' channels included.
    pub memory_bytes: u64,
    /// The longest step of work of its process, waits for a CPU included.
    pub longest_step_seconds: f64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A domain was made.
    Create,
    /// A domain was started.
    Start,
    /// A domain ended; attributes `exit_code` and `reason`.
    Die,
    /// Memory ran out in a domain.
    Oom,
    /// A domain was asked to stop.
    Stop,
    /// A signal was sent; attribute `signal`.
    Kill,
    /// A domain was paused.
    Pause,
    /// A domain goes on.
    Unpause,
    /// A domain is started again.
    Restart,
    /// A domain has a new name.
    Rename,
    /// Limits changed.
    Update,
    /// A domain was removed.
    Remove,
    /// A program was started in a domain; attribute `exec`.
    ExecStart,
    /// That program ended.
    ExecDie,
    /// A health check changed the state; attribute `health`.
    Health,
    /// A domain was frozen; attribute `frozen`.
    Freeze,
    /// A clone was made; attribute `frozen`.
    Clone,
    /// A domain went back to a frozen image; attribute `frozen`.
    #[serde(rename = "rollback")]
    RollBack,
    /// A domain's memory went to disk; attributes `by` and `reason`.
    Hibernate,
    /// And came back; attribute `reason`.
    Wake,
    /// A start or wake waits for memory; attributes `what` and `memory_bytes`.
    Waiting,
    /// An image came from a registry.
    ImagePull,
    /// An image went to a registry.
    ImagePush,
    /// An image was imported.
    ImageImport,
    /// An image was removed.
    ImageRemove,
    /// A rule that logs let something through or not; attributes `action`, `direction`, `protocol`, `peer`, `port`, and
    /// `missed`: so many before it were left out.
    Firewall,
    /// The supervisor found a domain again after its own restart.
    Adopt,
}

/// One line of `GET /v1/events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Counts up by one; gaps mean that the reader was too slow.
    pub sequence: u64,
    /// When.
    pub at: String,
    /// What happened.
    pub kind: EventKind,
    /// Id of the domain, or name of the image.
    pub subject: String,
    /// Name of the domain, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What there is to know besides.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// Which events `GET /v1/events` gives.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EventOptions {
    /// From this time on (RFC 3339), as far as they are kept; without it only what happens from now on.
    pub since: Option<String>,
    /// End at this time.
    pub until: Option<String>,
    /// Only of this domain or image.
    pub subject: Option<String>,
}

/// How far an operation is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// What it does now.
    pub step: String,
    /// Done, in bytes.
    pub done_bytes: u64,
    /// Of so many, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
}

/// Where an operation is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// Goes on.
    Running,
    /// Done: `result` has what it gave.
    Succeeded,
    /// Failed: `problem` says why.
    Failed,
    /// Was cancelled (`DELETE /v1/operations/{id}`).
    Cancelled,
}

/// `GET /v1/upgrade`: what `POST /v1/upgrade` would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeCheck {
    /// What runs.
    pub running: Version,
    /// What is installed; it begins on this host, and takes the configuration.
    pub installed: Version,
    /// Whether they are one file: the supervisor stays, and keepers and services are looked after.
    pub same: bool,
    /// Programs in domains (exec) that would be hung up.
    pub execs: u64,
    /// Operations that would be ended.
    pub operations: u64,
}

/// What an operation of kind `upgrade` gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeReport {
    /// What the supervisor was.
    pub before: Version,
    /// What it is.
    pub after: Version,
    /// The keepers.
    pub keepers: Vec<UpgradedKeeper>,
    /// The service domains.
    pub services: Vec<Service>,
    /// Why service domains stay as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services_stay: Option<String>,
}

/// What became of a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradedKeeper {
    /// Its number.
    pub number: u64,
    /// Why it stays what it was; none: it is of the supervisor's program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stays: Option<String>,
}

/// Something that takes long. `GET /v1/operations/{id}?wait=true` answers when it has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its id.
    pub id: String,
    /// What it is, as `image_pull`.
    pub kind: String,
    /// Where it is in its life.
    pub state: OperationState,
    /// How far it is.
    pub progress: Progress,
    /// What it gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<crate::Problem>,
}
