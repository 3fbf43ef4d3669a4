//! A domain as it is asked for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Files, Network, Resources};

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
    /// Keep standard input open for `POST .../input`.
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
    /// What is mounted.
    pub files: Files,
    /// Para or paene.
    pub kind: Kind,
    /// Its network.
    pub network: Network,
}

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
    #[schema(minimum = 0.1, maximum = 86400, default = 30.0)]
    pub interval_seconds: f64,
    /// Seconds after which a check has failed.
    #[serde(default = "thirty")]
    #[schema(minimum = 0.1, maximum = 86400, default = 30.0)]
    pub timeout_seconds: f64,
    /// Seconds from the start in which failures do not count.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 86400, default = 0.0)]
    pub start_period_seconds: f64,
    /// Failures in a row that make it unhealthy.
    #[serde(default = "three")]
    #[schema(minimum = 1, maximum = 1000000, default = 3)]
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
