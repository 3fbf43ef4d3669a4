//! Domains: what is asked of them and what they are.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use doppel_spec::{CreateDomain, Residency, Resources, RestartPolicy};

/// What the last checks said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// In its start period, or not checked yet.
    Starting,
    /// The last check succeeded.
    Healthy,
    /// Too many failed.
    Unhealthy,
}

/// Where a domain is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DomainState {
    /// Made, never started.
    Created,
    /// Runs.
    Running,
    /// Stopped for a while; goes on with unpause.
    Paused,
    /// Its memory is on disk; goes on with wake.
    Hibernated,
    /// Has ended.
    Exited,
    /// Waits to be started again.
    Restarting,
    /// Could not be started, or was lost: `exit.reason` says why.
    Dead,
}

/// How a domain ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExitInfo {
    /// Exit code of its program, 128 + n if signal n ended it, 137 if memory ran out.
    pub exit_code: u8,
    /// Memory ran out.
    pub out_of_memory: bool,
    /// Why, if it was not its program that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    pub at: String,
}

/// A domain, as `GET /v1/domains/{domain}` and the list give it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Domain {
    /// 16 hexadecimal digits, unique for ever; a unique beginning is enough to name the domain.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: DomainState,
    /// What runs in it: its command, or that of the domain it was cloned from (empty if that is not known).
    #[serde(default)]
    pub command: Vec<String>,
    /// When it will be stopped whatever it does (`timeout_seconds`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// What it was made with, defaults filled in, and what updates changed.
    pub config: CreateDomain,
    /// Digest of the root image.
    pub image_digest: String,
    /// When it was made.
    pub created_at: String,
    /// When it was last started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Host process id of its first process while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// How it ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitInfo>,
    /// How often it was started again by its restart policy.
    pub restarts: u32,
    /// What its health checks say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthState>,
    /// What is mounted in it.
    #[serde(default)]
    pub mounts: Vec<crate::MountPoint>,
    /// Frozen image it was cloned from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloned_from: Option<String>,
    /// Its addresses and published ports while it runs, if it has a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<crate::Attached>,
    /// Its addresses out of subnets of its networks, by network, whether it runs or not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// The hibernation that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernated: Option<crate::Hibernation>,
    /// What its start or wake waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<crate::Waiting>,
    /// What it has used in all its runs so far; kept after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<DomainStats>,
}

/// Answer to `POST /v1/domains`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Created {
    /// The new domain.
    pub domain: Domain,
    /// What could not be enforced although nobody asked for it.
    pub warnings: Vec<String>,
}

/// Which domains `GET /v1/domains` lists.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListOptions {
    /// Those that neither run, hibernate nor wait to too.
    pub all: bool,
    /// Only with this label: `key` or `key=value`; commas separate several, all of which must be there.
    pub label: Option<String>,
    /// Only with this text in the name.
    pub name: Option<String>,
    /// Only in this state.
    pub state: Option<String>,
    /// At most so many, the newest first.
    pub limit: Option<usize>,
    /// Only those that come after the domain of this id: the next page.
    pub after: Option<String>,
}

/// `POST .../stop` and `.../restart`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StopOptions {
    /// Signal that asks, instead of the domain's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9+-]{1,16}$")]
    pub signal: Option<String>,
    /// Seconds before it is killed; the domain's own, or 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
}

/// `POST .../kill`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KillOptions {
    /// Signal for its first process, by name or number; `SIGKILL` ends all of it at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9+-]{1,16}$")]
    pub signal: Option<String>,
}

/// `DELETE /v1/domains/{domain}`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct RemoveOptions {
    /// Kill it first if it runs.
    pub force: bool,
    /// Remove its volumes without a name too.
    pub volumes: bool,
}

/// `POST .../rename`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The new name.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    pub name: String,
}

/// `PATCH /v1/domains/{domain}`: what is missing stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateDomain {
    /// Limits that change; a running domain has them at once.
    pub resources: Resources,
    /// New restart policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartPolicy>,
    /// New labels, instead of all there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// New rules of its network; it has them at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<crate::UpdateNetwork>,
    /// What changes of when it hibernates by itself, and of its place among others.
    #[serde(skip_serializing_if = "Residency::is_empty")]
    pub residency: Residency,
    /// Seconds from now after which it is stopped whatever it does, instead of what was said before; 0: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
}

/// `POST .../wait`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WaitOptions {
    /// What is waited for.
    #[param(inline)]
    pub condition: WaitCondition,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitCondition {
    /// The end of the run that the domain is in, or of the next one.
    #[default]
    Ended,
    /// The domain is gone with all that was its own, and its name is free.
    Removed,
}

/// Answer to `POST .../wait`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Waited {
    /// How it ended.
    pub exit: ExitInfo,
}

/// `GET .../logs`: a stream of [`crate::Output`].
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct LogOptions {
    /// Go on with what comes, until the domain ends.
    pub follow: bool,
    /// Only so many lines from the end.
    pub tail: Option<usize>,
    /// Only from this time on (RFC 3339).
    pub since: Option<String>,
    /// Only up to this time.
    pub until: Option<String>,
    /// With standard output.
    pub stdout: bool,
    /// With standard error.
    pub stderr: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { follow: false, tail: None, since: None, until: None, stdout: true, stderr: true }
    }
}

/// `GET .../attach`: a stream of [`crate::Output`] until the domain ends.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AttachOptions {
    /// First what is in the console's ring already.
    pub backlog: bool,
}

/// Memory of a domain, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryStats {
    /// In use by its control group.
    pub usage_bytes: u64,
    /// Most there was.
    pub peak_bytes: u64,
    /// What its swap region takes on the disk, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_bytes: Option<u64>,
    /// Its limit, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Its own pages.
    pub private_bytes: u64,
    /// Pages it has in common with others.
    pub shared_bytes: u64,
}

/// What a domain uses now and has used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DomainStats {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// When this was read.
    pub at: String,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Memory.
    pub memory: MemoryStats,
    /// Memory in use times time in use, in pages of 4096 bytes times seconds.
    pub page_seconds: f64,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes written to its console.
    pub console_bytes: u64,
    /// System calls its guest kernel served, where it counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Kills for want of memory.
    pub oom_kills: u64,
    /// Bytes read from and written to block devices, where the hierarchy tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_read_bytes: Option<u64>,
    /// As above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_write_bytes: Option<u64>,
    /// What it sent and received, if it ever had a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<crate::NetworkStats>,
    /// What its storage service has done, if it ever had volumes as a para domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<crate::StorageStats>,
}

/// A process of a domain (`GET .../top`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessInfo {
    /// Process id inside.
    pub pid: i32,
    /// Its parent's.
    pub ppid: i32,
    /// User id inside.
    pub uid: u32,
    /// State as in `/proc/PID/stat`.
    pub state: String,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Command line.
    pub command: String,
}

/// What `POST /v1/domains/prune` removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PruneReport {
    /// Ids of domains that had ended.
    pub removed: Vec<String>,
    /// Disk space that is free again.
    pub freed_bytes: u64,
}
