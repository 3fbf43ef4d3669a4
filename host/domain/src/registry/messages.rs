//! What is asked of a running domain from outside, and how it is answered: a line of JSON each way.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ExecConfig;
use crate::freeze::frozen::FreezeReport;
use crate::freeze::share::DomainStats;

/// How long a connected peer may take to send its line.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request in bytes.
const LONGEST: u64 = 1 << 20;

/// What can be asked of a running domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Write its memory to a frozen image.
    Freeze {
        /// The image's file.
        to: PathBuf,
        /// End the domain afterwards.
        stop: bool,
        /// Do not refer to the domain's last image.
        #[serde(default)]
        whole: bool,
    },
    /// Write its memory to a frozen image and end it. An image that it woke from is replaced.
    Hibernate {
        /// The image's file.
        to: PathBuf,
    },
    /// Tell what memory it has.
    Stats,
    /// Change the memory its programs may have and the balloon's target, in bytes.
    Memory {
        /// Most memory; none for no limit.
        limit: Option<u64>,
        /// What it should try to stay under.
        target: Option<u64>,
    },
    /// Start a program in it; frames follow the answer (`relay.rs`).
    Exec(Box<ExecConfig>),
}

/// What is written: the domain's name and what is asked of it, or nothing to learn which there are.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub domain: Option<String>,
    pub request: Option<Request>,
}

/// The answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It was frozen.
    Frozen(FreezeReport),
    /// Its memory.
    Stats(DomainStats),
    /// It was done.
    Done,
    /// The session is there.
    Session,
    /// It was not done; the text says why.
    Refused(String),
    /// The domains of this process.
    Domains(Vec<String>),
}

/// Where to answer a request.
#[derive(Debug)]
pub(crate) struct Answer(pub UnixStream);

impl Answer {
    /// The connection, for a conversation.
    pub fn into_stream(self) -> UnixStream {
        self.0
    }

    /// Reads what is wanted, within [`PATIENCE`].
    pub fn read(&self) -> Result<Envelope, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        self.0.set_read_timeout(Some(PATIENCE)).map_err(|e| text(&e))?;
        self.0.set_write_timeout(Some(PATIENCE)).map_err(|e| text(&e))?;
        let mut line = String::new();
        BufReader::new(std::io::Read::take(&self.0, LONGEST)).read_line(&mut line).map_err(|e| text(&e))?;
        serde_json::from_str(&line).map_err(|e| text(&e))
    }

    /// Answers; a peer that has gone away does not want to know.
    pub fn give(&self, reply: &Reply) {
        if let Ok(mut line) = serde_json::to_vec(reply) {
            line.push(b'\n');
            let _ = (&self.0).write_all(&line);
        }
    }
}
