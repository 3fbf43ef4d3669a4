//! How the supervisor is set up.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use doppel_api as api;
use serde::{Deserialize, Serialize};

use crate::gatekeeper::rules::Rules;

/// A process that goes on as another program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replacement {
    /// The program.
    pub program: PathBuf,
    /// The operation that is told how it went.
    pub operation: String,
    /// What it was before.
    pub before: api::Version,
    /// Why it is the program before again.
    pub failed: Option<String>,
}

/// How the supervisor is set up (`/etc/doppel/doppeld.toml`).
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of images, frozen images and state.
    pub store: PathBuf,
    /// Directory of sockets and other things of this boot.
    pub runtime: PathBuf,
    /// How long after a start another domain of the same image is kept ready for the next; 0: never.
    pub spare_seconds: u32,
    /// Network services of a keeper among which networks are spread, when it is started.
    pub network_shards: usize,
    /// Most domains of a keeper.
    pub keeper_domains: usize,
    /// How long a keeper without domains stays.
    pub keeper_idle: Duration,
    /// What all domains of a keeper that is started have in common.
    pub defaults: doppel_domain::Defaults,
    /// What a domain that is started may have of the network service.
    pub network: doppel_net::Quotas,
    /// Which domains hibernate, and who goes on first when memory is short.
    pub gatekeeper: Rules,
    /// Directories of the host below which sources of binds may lie.
    pub binds: Vec<PathBuf>,
    /// The program whose `keep` command is the keeper; this one if missing.
    pub program: Option<PathBuf>,
    /// What this process' program was called with, if it may go on as another one ([`crate::Supervisor::replaced`]).
    pub arguments: Option<Vec<OsString>>,
    /// How this process came to be this program, if it was another one before.
    pub replacement: Option<Replacement>,
}
