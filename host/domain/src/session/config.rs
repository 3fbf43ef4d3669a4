//! What to run in a domain that runs.

use std::ffi::OsString;
use std::path::PathBuf;

use doppel_abi_machine::boot_flags;
use doppel_abi_machine::session::SESSION_REQUEST_MAX;
use serde::{Deserialize, Serialize};

use crate::launch::control::encode_args;
use crate::{DomainConfig, Error};

/// What to run in a domain that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExecConfig {
    /// The program and its arguments; with `builtin`, a command of the guest kernel and its arguments.
    pub argv: Vec<OsString>,
    /// Its environment, `NAME=value` each.
    pub env: Vec<OsString>,
    /// Its working directory.
    pub cwd: OsString,
    /// Its user id inside the domain.
    pub uid: u32,
    /// Its group id inside the domain.
    pub gid: u32,
    /// Its supplementary groups inside the domain.
    pub groups: Vec<u32>,
    /// Give it a terminal of this size: rows and columns.
    pub tty: Option<(u16, u16)>,
    /// Connect standard input.
    pub stdin: bool,
    /// Run a command of the guest kernel itself, which needs nothing in the image (docs/sessions.md).
    pub builtin: bool,
}

impl ExecConfig {
    /// Runs `argv` as root in `/`, with no environment and no input.
    #[must_use]
    pub fn new(argv: Vec<OsString>) -> Self {
        Self {
            argv,
            env: Vec::new(),
            cwd: "/".into(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            tty: None,
            stdin: false,
            builtin: false,
        }
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        if self.argv.is_empty() {
            return Err(Error::Config("no command given".into()));
        }
        if !self.cwd.as_encoded_bytes().starts_with(b"/") {
            return Err(Error::Config(format!(
                "the working directory {:?} must be an absolute path",
                self.cwd
            )));
        }
        let config = DomainConfig {
            env: self.env.clone(),
            cwd: self.cwd.clone(),
            uid: self.uid,
            gid: self.gid,
            groups: self.groups.clone(),
            ..DomainConfig::new(PathBuf::new(), self.argv.clone())
        };
        let flags = [
            (self.tty.is_some(), boot_flags::TTY),
            (self.stdin, boot_flags::STDIN),
            (self.builtin, boot_flags::BUILTIN),
        ];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        encode_args(&config, flags, size(self.tty.unwrap_or_default()), SESSION_REQUEST_MAX)
    }
}

pub(crate) fn size((rows, columns): (u16, u16)) -> u32 {
    u32::from(rows) << 16 | u32::from(columns)
}
