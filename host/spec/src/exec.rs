//! A further program in a domain.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/domains/{domain}/exec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateExec {
    /// Command and arguments.
    #[schema(min_items = 1, max_items = 4096)]
    pub command: Vec<String>,
    /// Environment over the domain's.
    pub env: BTreeMap<String, String>,
    /// Working directory; the domain's if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^/")]
    pub working_dir: Option<String>,
    /// `user[:group]`; the domain's if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Give it a terminal of its own.
    pub tty: bool,
    /// Size of that terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<ResizeTerminal>,
    /// Keep standard input open; otherwise it is empty.
    pub stdin: bool,
    /// Seconds after which it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 31536000)]
    pub timeout_seconds: Option<f64>,
    /// Nobody will read its output: throw it away.
    pub detach: bool,
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
