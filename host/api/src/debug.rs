//! What those want to know who debug a domain (docs/debugging.md).

use doppel_spec::DebugLevel;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

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
    /// Its calls in its program, innermost first, as `libc.so.6 read+0x4d`; none if it runs, or are not told.
    #[serde(default)]
    pub user_stack: Vec<String>,
}

/// `PUT .../debug/events`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetDebugEvents {
    /// Events up to this level are kept from now on; those that are kept already stay.
    pub level: DebugLevel,
}

/// `GET .../debug/events`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct DebugEventOptions {
    /// Go on with those to come, until the domain ends.
    pub follow: bool,
}

/// An event of a domain's guest kernel: a line of `GET .../debug/events`. The newest 1024 are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DebugEvent {
    /// Its number; the first one of a domain has 0. A gap: there were more than are kept.
    pub number: u64,
    /// When, RFC 3339; of a repeated one, the first time.
    pub at: String,
    /// How often it had happened in a row when it was read.
    pub count: u64,
    /// How much it matters.
    pub level: DebugLevel,
    /// Its process inside; 0 is the kernel itself.
    pub pid: i32,
    /// Its thread.
    pub tid: i32,
    /// The host's CPU.
    pub cpu: u32,
    /// Its kind, as `process.exit`.
    pub kind: String,
    /// What happened, in words.
    pub message: String,
}
