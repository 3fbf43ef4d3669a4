//! Root images.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A root image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Image {
    /// Its name.
    pub name: String,
    /// Digest of the EROFS file.
    pub digest: String,
    /// Bytes of the EROFS file.
    pub size_bytes: u64,
    /// Files in it.
    pub files: u64,
    /// When it was made here.
    pub created_at: String,
    /// Where it came from.
    pub source: String,
    /// How its programs are run.
    pub config: ImageConfig,
}

/// How an image's programs are run (OCI image configuration).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ImageConfig {
    /// Entrypoint.
    pub entrypoint: Vec<String>,
    /// Command, or arguments of the entrypoint.
    pub command: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub working_dir: String,
    /// `user[:group]`.
    pub user: String,
    /// Ports it serves, as `80/tcp`.
    pub exposed_ports: Vec<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Signal that asks it to stop.
    pub stop_signal: String,
    /// How its health is looked after.
    pub health: Option<crate::HealthCheck>,
}

/// `POST /v1/images/pull`: an [`crate::Operation`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PullImage {
    /// Reference as Docker writes it: `registry/repository:tag` or `...@sha256:...`.
    #[schema(min_length = 1)]
    pub reference: String,
    /// Name to keep it under; the reference if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Platform, as `linux/amd64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// The registry speaks HTTP without TLS; loopback ones may.
    pub plain_http: bool,
    /// User name for the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Password for the registry; kept in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// `POST /v1/images/push`: an [`crate::Operation`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PushImage {
    /// Name of the image.
    #[schema(min_length = 1)]
    pub name: String,
    /// Where it goes.
    pub reference: String,
    /// The registry speaks HTTP without TLS; loopback ones may.
    pub plain_http: bool,
    /// User name for the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Password for the registry; kept in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// `POST /v1/images/import`: the body is a tar of files, an OCI layout, or what `docker save` writes.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ImportImage {
    /// Name to keep it under.
    #[schema(min_length = 1)]
    #[param(min_length = 1)]
    pub name: String,
}

/// What `POST /v1/images/prune` removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ImagePruneReport {
    /// Digests of layers and images nobody used.
    pub removed: Vec<String>,
    /// Disk space that is free again.
    pub freed_bytes: u64,
}
