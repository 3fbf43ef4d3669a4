//! A domain as it is asked for.

use std::collections::BTreeMap;

use doppel_abi_machine::events::Level;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Files, Network, Residency, Resources};

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
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct CreateDomain {
    /// Name of the root image, or the path of an EROFS file.
    #[schema(min_length = 1, max_length = 131072)]
    #[cfg_attr(feature = "cli", arg(help = "Image: a name, or the path of an EROFS file"))]
    pub image: String,
    /// Name; one is made up if it is missing. Letters, digits, `-`, `_`, `.`; at most 63.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the domain"))]
    pub name: Option<String>,
    /// Command and arguments; empty: the image's own.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub command: Vec<String>,
    /// Replaces the image's entrypoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub entrypoint: Option<Vec<String>>,
    /// Environment, over the image's.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub env: BTreeMap<String, String>,
    /// Working directory; the image's or `/` if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^/")]
    #[cfg_attr(
        feature = "cli",
        arg(short, long = "workdir", value_name = "DIR", help = "Working directory; by default the image's")
    )]
    pub working_dir: Option<String>,
    /// `user[:group]`, numbers or names of the image; its own or root if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "cli",
        arg(
            short,
            long,
            value_name = "USER[:GROUP]",
            help = "User and group, by number or by their names in the image"
        )
    )]
    pub user: Option<String>,
    /// Host name; the domain's name if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    #[cfg_attr(feature = "cli", arg(short = 'h', long, value_name = "NAME", help = "Host name"))]
    pub hostname: Option<String>,
    /// Give the program a terminal.
    #[cfg_attr(feature = "cli", arg(short, long, help = "Give the program a terminal"))]
    pub tty: bool,
    /// Keep standard input open for `POST .../input`.
    #[cfg_attr(feature = "cli", arg(short = 'i', long = "interactive", help = "Connect standard input"))]
    pub stdin: bool,
    /// Remove the domain when it ends.
    #[cfg_attr(
        feature = "cli",
        arg(long = "rm", help = "Remove the domain when it ends (without the supervisor it always is)")
    )]
    pub auto_remove: bool,
    /// When it is started again.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub restart: RestartPolicy,
    /// Key-value pairs for the caller's own use.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub labels: BTreeMap<String, String>,
    /// Limits, weights and reservations.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub resources: Resources,
    /// How its health is looked after; the image's own if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub health: Option<HealthCheck>,
    /// Signal that asks it to stop, by name or number; the image's or `SIGTERM`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9+-]{1,16}$")]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "SIGNAL", help = "Signal that asks the domain to stop")
    )]
    pub stop_signal: Option<String>,
    /// Seconds it gets for that before it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "stop-timeout",
            value_name = "SECONDS",
            help = "Seconds it gets for that before it is killed"
        )
    )]
    pub stop_timeout_seconds: Option<u32>,
    /// Seconds after which it is stopped whatever it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "timeout",
            value_name = "SECONDS",
            help = "Seconds after which it is stopped whatever it does"
        )
    )]
    pub timeout_seconds: Option<u32>,
    /// Log file limits.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub log: LogTarget,
    /// Name of the frozen image it may make of itself (`/sys/power/state`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    #[cfg_attr(
        feature = "cli",
        arg(
            long,
            value_name = "FROZEN",
            help = "Frozen image to make when the program writes \"freeze\" to /sys/power/state"
        )
    )]
    pub freeze_as: Option<String>,
    /// Leave the image's patched system calls unused.
    #[cfg_attr(
        feature = "cli",
        arg(long, help = "Do not use the image's patched system calls: every one traps")
    )]
    pub no_patch: bool,
    /// Up to which level its guest kernel keeps events from the start (`GET .../debug/events`).
    #[cfg_attr(
        feature = "cli",
        arg(
            long,
            value_name = "LEVEL",
            value_enum,
            default_value_t,
            hide_default_value = true,
            help = "Keep the guest kernel's events up to this level from the start, for `doppel debug events`"
        )
    )]
    pub events: DebugLevel,
    /// What is mounted.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub files: Files,
    /// Para or paene.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub kind: Kind,
    /// Its network.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub network: Network,
    /// Further lines of its `/etc/hosts`: `NAME:ADDRESS`; the address may be `host-gateway`, that of the host's loopback in a
    /// network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "add-host",
            value_name = "NAME:ADDRESS",
            help = "Write a name and its address to /etc/hosts; the address host-gateway is the host's loopback, as --allow has it"
        )
    )]
    pub extra_hosts: Vec<String>,
    /// When it hibernates by itself, and its place among others when memory is short.
    #[serde(skip_serializing_if = "Residency::is_empty")]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub residency: Residency,
}

impl CreateDomain {
    /// The first that only a supervisor can carry out, beside those of [`Resources::supervised`].
    #[must_use]
    pub fn supervised(&self) -> Option<&'static str> {
        let asked = [
            (self.restart != RestartPolicy::No, "restart"),
            (!self.labels.is_empty(), "labels"),
            (self.health.is_some(), "health"),
            (self.stop_signal.is_some(), "stop_signal"),
            (self.stop_timeout_seconds.is_some(), "stop_timeout_seconds"),
            (self.timeout_seconds.is_some(), "timeout_seconds"),
            (self.log != LogTarget::default(), "log"),
            (!self.residency.is_empty(), "residency"),
        ];
        asked.into_iter().find(|(asked, _)| *asked).map(|(_, field)| field)
    }
}

/// How much an event of a guest kernel matters; a level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum DebugLevel {
    /// No events.
    #[default]
    Off,
    /// A program was ended by what it did, or something failed for good.
    Error,
    /// Something was refused: a limit, a system call that does not exist, a network service that went away.
    Warning,
    /// What happens in a healthy domain: processes, freezes, the network.
    Info,
    /// What only those who look for a fault of the kernel want: threads, patches.
    Debug,
}

/// Each with the guest kernel's own.
const LEVELS: [(DebugLevel, Level); 5] = [
    (DebugLevel::Off, Level::Off),
    (DebugLevel::Error, Level::Error),
    (DebugLevel::Warning, Level::Warning),
    (DebugLevel::Info, Level::Info),
    (DebugLevel::Debug, Level::Debug),
];

impl From<DebugLevel> for Level {
    fn from(level: DebugLevel) -> Self {
        LEVELS[level as usize].1
    }
}

impl From<Level> for DebugLevel {
    fn from(level: Level) -> Self {
        LEVELS[level as usize].0
    }
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
