//! Further programs in a running domain, and the streams of all programs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

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
    pub terminal: Option<crate::ResizeTerminal>,
    /// Keep standard input open; otherwise it is empty.
    pub stdin: bool,
    /// Seconds after which it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 31536000)]
    pub timeout_seconds: Option<f64>,
    /// Nobody will read its output: throw it away.
    pub detach: bool,
}

/// A program that was started in a running domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exec {
    /// Its id.
    pub id: String,
    /// Id of its domain.
    pub domain: String,
    /// Process id inside the domain.
    pub pid: i32,
    /// What it was started with.
    pub config: CreateExec,
    /// Whether it still runs.
    pub running: bool,
    /// How it ended: its exit code, or 128 + n for signal n.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
}

/// `POST .../input`: the body's bytes are the program's input.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct InputOptions {
    /// This is the end of the input.
    pub close: bool,
}

/// One line of an output stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
pub enum Output {
    /// Bytes of standard output or of the terminal.
    Stdout {
        /// The bytes, in base64.
        data: String,
        /// When they were read, in logs.
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<String>,
    },
    /// Bytes of standard error.
    Stderr {
        /// The bytes, in base64.
        data: String,
        /// When they were read, in logs.
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<String>,
    },
    /// The reader was too slow: so many bytes were left out.
    Lost {
        /// How many.
        bytes: u64,
    },
    /// The program has ended; the last line.
    Exit {
        /// Its exit code, or 128 + n for signal n.
        exit_code: u8,
        /// Why, if it was not the program that ended.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}
