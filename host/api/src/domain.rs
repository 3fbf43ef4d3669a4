//! Domains: what is asked of them and what they are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Para or paene.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// With a guest kernel of its own.
    #[default]
    Para,
    /// A container over the host's kernel.
    Paene,
}

/// `POST /v1/domains`: the image and what Docker's `create` takes, with its defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateDomain {
    /// Name of the root image, or the path of an EROFS file.
    #[schema(min_length = 1, max_length = 131072)]
    pub image: String,
    /// Name; one is made up if it is missing. Letters, digits, `-`, `_`, `.`; at most 63.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    pub name: Option<String>,
    /// Command and arguments; empty: the image's own.
    pub command: Vec<String>,
    /// Replaces the image's entrypoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Environment, over the image's.
    pub env: BTreeMap<String, String>,
    /// Working directory; the image's or `/` if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^/")]
    pub working_dir: Option<String>,
    /// `user[:group]`, numbers or names of the image; its own or root if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Host name; the domain's name if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    pub hostname: Option<String>,
    /// Give the program a terminal.
    pub tty: bool,
    /// Keep standard input open for [`crate::InputOptions`].
    pub stdin: bool,
    /// Remove the domain when it ends.
    pub auto_remove: bool,
    /// When it is started again.
    pub restart: RestartPolicy,
    /// Key-value pairs for the caller's own use.
    pub labels: BTreeMap<String, String>,
    /// Limits, weights and reservations.
    pub resources: Resources,
    /// How its health is looked after; the image's own if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheck>,
    /// Signal that asks it to stop, by name or number; the image's or `SIGTERM`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9+-]{1,16}$")]
    pub stop_signal: Option<String>,
    /// Seconds it gets for that before it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_timeout_seconds: Option<u32>,
    /// Seconds after which it is stopped whatever it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u32>,
    /// Log file limits.
    pub log: LogTarget,
    /// Name of the frozen image it may make of itself (`/sys/power/state`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    pub freeze_as: Option<String>,
    /// Leave the image's patched system calls unused.
    pub no_patch: bool,
    /// Para or paene.
    pub kind: Kind,
    /// Its network.
    pub network: crate::Network,
}

/// What a domain may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// Most CPUs, fractions allowed (a cap).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.01, maximum = 256)]
    pub cpus: Option<f64>,
    /// Share of the CPU when it is scarce, 1 to 10,000; 100 if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub cpu_weight: Option<u32>,
    /// CPUs set aside; refused if the sum over all domains is above what the host has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.01, maximum = 256)]
    pub cpu_reservation: Option<f64>,
    /// Most memory, in bytes, at least 8 MiB; 0: no bound, not even that of `[domains] memory` in `doppeld.toml`, which
    /// counts if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 4503599627370496_u64)]
    pub memory_bytes: Option<u64>,
    /// Memory set aside, in bytes; refused if the sum over all domains is above what the host has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 4503599627370496_u64)]
    pub memory_reservation_bytes: Option<u64>,
    /// What the guest kernel should try to stay under, in bytes (the balloon's target).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 8388608, maximum = 4503599627370496_u64)]
    pub memory_target_bytes: Option<u64>,
    /// Most processes and threads, at least 2; 0, or if missing: as many as any domain may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 4194304)]
    pub pids: Option<u32>,
    /// Share of block I/O, 1 to 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub io_weight: Option<u32>,
    /// Limits of block I/O, a device each; refused where the host's control groups have none.
    #[schema(max_items = 64)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_devices: Vec<IoDevice>,
    /// Most bytes a paene domain may write beside its image; half of the host's memory if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 65536, maximum = 4503599627370496_u64)]
    pub disk_bytes: Option<u64>,
    /// Most files and directories of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4503599627370496_u64)]
    pub disk_inodes: Option<u64>,
}

/// Most that may be moved to and from a block device in a second; 0 is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IoDevice {
    /// The device: its file, or its number as `8:0`.
    #[schema(max_length = 255, pattern = "^(/.*|[0-9]+:[0-9]+)$")]
    pub device: String,
    /// Bytes read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bps: Option<u64>,
    /// Bytes written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bps: Option<u64>,
    /// Read operations.
    #[schema(maximum = 4294967295_u64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<u64>,
    /// Write operations.
    #[schema(maximum = 4294967295_u64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<u64>,
}

/// Its name where only limits are meant.
pub type Limits = Resources;

/// When a domain is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RestartPolicy {
    /// Never.
    #[default]
    No,
    /// Whenever it ends, and when the supervisor starts.
    Always,
    /// The same, unless somebody stopped it.
    UnlessStopped,
    /// If it ends with an error, at most so often (0: without limit).
    OnFailure {
        /// Most starts.
        max_retries: u32,
    },
}

/// Log file limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogTarget {
    /// A log file that has grown to this is put aside.
    #[schema(minimum = 4096, maximum = 1099511627776_u64)]
    pub max_bytes: u64,
    /// So many files are kept, the current one included.
    #[schema(minimum = 1, maximum = 100)]
    pub max_files: u32,
}

impl Default for LogTarget {
    fn default() -> Self {
        Self { max_bytes: 10 << 20, max_files: 3 }
    }
}

/// A command that tells whether a domain is well: exit code 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    /// Command and arguments, run as an exec; empty turns the image's own off.
    pub command: Vec<String>,
    /// Seconds between checks.
    #[serde(default = "thirty")]
    #[schema(minimum = 0.1, maximum = 86400)]
    pub interval_seconds: f64,
    /// Seconds after which a check has failed.
    #[serde(default = "thirty")]
    #[schema(minimum = 0.1, maximum = 86400)]
    pub timeout_seconds: f64,
    /// Seconds from the start in which failures do not count.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 86400)]
    pub start_period_seconds: f64,
    /// Failures in a row that make it unhealthy.
    #[serde(default = "three")]
    #[schema(minimum = 1, maximum = 1000000)]
    pub retries: u32,
}

impl HealthCheck {
    /// A check by this command, with the defaults.
    #[must_use]
    pub fn new(command: Vec<String>) -> Self {
        Self {
            command,
            interval_seconds: thirty(),
            timeout_seconds: thirty(),
            start_period_seconds: 0.0,
            retries: three(),
        }
    }
}

fn thirty() -> f64 {
    30.0
}

fn three() -> u32 {
    3
}

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
    /// Frozen image it was cloned from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloned_from: Option<String>,
    /// Its addresses and published ports while it runs, if it has a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<crate::Attached>,
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
    /// Those that do not run too.
    pub all: bool,
    /// Only with this label: `key` or `key=value`; commas separate several, all of which must be there.
    pub label: Option<String>,
    /// Only with this text in the name.
    pub name: Option<String>,
    /// Only in this state.
    pub state: Option<String>,
    /// At most so many, the newest first.
    pub limit: Option<usize>,
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
    /// Seconds from now after which it is stopped whatever it does, instead of what was said before; 0: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
}

/// Answer to `POST .../wait`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Waited {
    /// How it ended.
    pub exit: ExitInfo,
}

/// `POST .../resize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeTerminal {
    /// Lines, 1 to 65,535.
    #[schema(minimum = 1)]
    pub rows: u16,
    /// Columns, 1 to 65,535.
    #[schema(minimum = 1)]
    pub columns: u16,
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

/// A thread of a domain, and where it waits (`GET .../stacks`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ThreadStack {
    /// Its process inside.
    pub pid: i32,
    /// Its own number.
    pub tid: i32,
    /// Its name (`/proc/PID/task/TID/comm`).
    pub name: String,
    /// State as in `/proc/PID/stat`.
    pub state: String,
    /// The kernel's function in which it waits, as in `/proc/PID/wchan`; empty if it runs, or is not told.
    pub wait_channel: String,
    /// Its calls in the kernel, innermost first, as in `/proc/PID/stack`; none if it runs, or are not told.
    pub kernel_stack: Vec<String>,
}

/// What `POST /v1/domains/prune` removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PruneReport {
    /// Ids of domains that had ended.
    pub removed: Vec<String>,
    /// Disk space that is free again.
    pub freed_bytes: u64,
}
