//! What a keeper writes down of a domain for its successor.

use std::path::PathBuf;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use doppel_domain::DomainConfig;
use doppel_domain::Keep;
use doppel_domain::Start;
use doppel_net::Attachment;
use doppel_net::Part;
use doppel_net::Traffic;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::keeper::config::KeeperConfig;
use crate::keeper::config::records;
use crate::keeper::protocol::Limits;
use crate::keeper::protocol::Log;
use crate::time;
/// What a successor has to know of a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub id: String,
    pub run: u64,
    pub started_at: String,
    pub log: Log,
    #[serde(with = "crate::limits")]
    pub limits: Limits,
    pub woke: bool,
    pub killed: bool,
    pub page_seconds: f64,
    /// When that was counted, in seconds since 1970.
    pub counted: f64,
    /// Bytes it had printed then.
    pub printed: u64,
    pub calls: u64,
    /// Its part in the network, and what of that was counted.
    #[serde(default)]
    pub network: Option<Part>,
    #[serde(default)]
    pub traffic: Option<Traffic>,
    /// It is being hibernated, and keeps its connections.
    #[serde(default)]
    pub keeps_network: bool,
    /// Those that it has.
    #[serde(default)]
    pub volumes: Vec<KeptVolume>,
    /// Directory of its layer.
    #[serde(default)]
    pub layer: Option<PathBuf>,
}

/// A volume, as a successor has to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptVolume {
    /// Where it is on the host.
    pub path: PathBuf,
    pub read_only: bool,
    /// It is the directory of a disk.
    #[serde(default)]
    pub disk: bool,
    /// Of one that is a file: most bytes of the host's disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// It is what a clone's layer lies on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub below: bool,
    /// A paene domain has it itself: it is held for that alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// The domain keeps for a moment what it has read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
}

impl Note {
    pub fn new(
        id: &str,
        run: u64,
        log: Log,
        limits: &Limits,
        woke: bool,
        network: Option<&Attachment>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            run,
            started_at: time::now(),
            log,
            limits: limits.clone(),
            woke,
            killed: false,
            page_seconds: 0.0,
            counted: now(),
            printed: 0,
            calls: 0,
            network: network.and_then(Attachment::part),
            traffic: None,
            keeps_network: false,
            volumes: Vec::new(),
            layer: None,
        }
    }

    pub fn to_value(&self) -> Option<Value> {
        // It is plain data: it always serializes.
        serde_json::to_value(self).ok()
    }
}

pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// How a domain is written down with this note.
pub(super) fn keep(config: &KeeperConfig, note: Option<Value>) -> Keep {
    Keep { dir: records(&config.runtime), note }
}

/// The configuration of a start, whatever it starts from.
pub(super) fn config_of(start: &mut Start) -> &mut DomainConfig {
    let (Start::Boot(config)
    | Start::Resume(_, config)
    | Start::Clone { config, .. }
    | Start::Wake(_, config)) = start;
    config
}
