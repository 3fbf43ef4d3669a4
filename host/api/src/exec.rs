//! Further programs in a running domain, and the streams of all programs.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

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
    pub config: doppel_spec::CreateExec,
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
    /// The domain that `/v1/domains/run` has made and started; the first line.
    Started {
        /// Its id.
        id: String,
        /// Its name.
        name: String,
        /// What could not be enforced although nobody asked for it.
        warnings: Vec<String>,
    },
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
