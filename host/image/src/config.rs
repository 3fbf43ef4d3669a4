//! What an OCI image says about running it, as Docker keeps it: kept in a name's record, beside the image file.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// The `config` object of an OCI image configuration. Unknown fields are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    /// `USER[:GROUP]`, names or numbers; empty is root.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// `NAME=value` each.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// What is run, before the command's own words.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Default words behind the entry point.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Working directory; empty is `/`.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// `80/tcp` each.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "BTreeMap::is_empty")]
    pub exposed_ports: BTreeMap<String, Empty>,
    /// Paths that want a volume.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, Empty>,
    /// Labels.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Signal that asks the program to end, `SIGTERM` if empty.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "String::is_empty")]
    pub stop_signal: String,
    /// How to find out whether it is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Healthcheck>,
}

/// A health check; times in nanoseconds, 0 means the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Healthcheck {
    /// `["NONE"]`, `["CMD", …]` or `["CMD-SHELL", line]`.
    #[serde(deserialize_with = "or_null")]
    pub test: Vec<String>,
    /// Time between checks.
    pub interval: u64,
    /// Time one may take.
    pub timeout: u64,
    /// Time at the start in which failures do not count.
    pub start_period: u64,
    /// Failures in a row that make it unhealthy.
    pub retries: u64,
}

/// The value of a set's member in JSON: `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// Docker writes `null` for what is empty.
fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Where an image's layers came from, and what they are in the store of blobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oci {
    /// Digest of the image manifest (`sha256:…`); empty: it is made when the image is pushed.
    pub manifest: String,
    /// Digests of the manifest, the configuration and the layers: what must stay in the store of blobs.
    pub blobs: Vec<String>,
    /// How to run it.
    pub config: ImageConfig,
}
