//! Where a domain's memory is: hibernated, by whom and why; or waited for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a domain hibernates.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HibernationReason {
    /// Somebody asked for it.
    #[default]
    Request,
    /// It was idle for as long as its rule says.
    Idle,
    /// Memory was short, and others had been active since.
    Memory,
}

/// Why a domain woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WakeReason {
    /// Somebody asked for it: `wake`, `start`.
    Request,
    /// Somebody wanted something of it for which it has to run: a program started in it, files, a terminal.
    Call,
    /// Something came over its network.
    Network,
    /// A timer of it was due.
    Timer,
}

/// A hibernation (`GET /v1/domains/{domain}`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Hibernation {
    /// Who had it hibernate: whoever asked, as `uid 1000`, or `gatekeeper`.
    pub by: String,
    /// Why.
    pub reason: HibernationReason,
    /// When.
    pub at: String,
    /// When it wakes by itself, because a timer of it is due then. One that hibernates because somebody asked for it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakes_at: Option<String>,
    /// Bytes of memory that are on disk.
    pub memory_bytes: u64,
}

/// What a domain waits for that is to start or to wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitingFor {
    /// Memory of the host.
    #[default]
    Memory,
}

/// A start or wake that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// What it waits for.
    pub what: WaitingFor,
    /// Since when.
    pub since: String,
    /// Until when at most; missing: as long as it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// How much is wanted.
    pub memory_bytes: u64,
}

/// What the gatekeeper knows of memory (`GET /v1/info`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryInfo {
    /// What the host can give away without paging (`MemAvailable`), in bytes.
    pub available_bytes: u64,
    /// What of it stays free: below this, domains hibernate and starts wait.
    pub reserve_bytes: u64,
    /// What all domains use, as far as it was counted.
    pub domains_bytes: u64,
    /// Most that all of them may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// Starts and wakes that wait for memory.
    pub waiting: u64,
}
