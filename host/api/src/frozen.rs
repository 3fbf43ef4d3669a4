//! Frozen images and clones.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// `POST /v1/domains/{domain}/freeze`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FreezeDomain {
    /// Name of the frozen image to make.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    pub frozen: String,
    /// End the domain afterwards.
    #[serde(default)]
    pub stop: bool,
    /// Keep the image in memory instead of on disk.
    #[serde(default)]
    pub in_memory: bool,
    /// Write all of its memory; otherwise what the domain's last image has already is referred to there.
    #[serde(default)]
    pub whole: bool,
    /// Remove the image by itself when the last domain that was cloned from it is removed, or if none is made for a minute.
    #[serde(default)]
    pub temporary: bool,
}

/// `POST /v1/frozen/prune`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct FrozenPruneOptions {
    /// Only those made so many seconds ago or longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_seconds: Option<u64>,
    /// Only those kept in memory, or only those that are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_memory: Option<bool>,
}

/// Answer to `POST /v1/frozen/prune`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrozenPruneReport {
    /// Names of the images that were removed.
    pub removed: Vec<String>,
    /// Bytes they took.
    pub freed_bytes: u64,
}

/// What a freeze cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FreezeReport {
    /// Name of the frozen image.
    pub frozen: String,
    /// Bytes of memory in it.
    pub bytes: u64,
    /// Bytes of that which were written; older images have the others.
    #[serde(default)]
    pub written_bytes: u64,
    /// Microseconds until all threads stood still.
    pub stop_us: u64,
    /// Microseconds for which they did.
    pub pause_us: u64,
}

/// Answer to `POST .../hibernate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hibernated {
    /// What it cost.
    pub report: FreezeReport,
}

/// Body of `POST .../rollback`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// Name of the frozen image: one of this domain, the one it was cloned from, or one of another domain on the same root image
    /// if neither has volumes.
    pub frozen: String,
}

/// A frozen image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrozenImage {
    /// Its name.
    pub name: String,
    /// Bytes it takes.
    pub size_bytes: u64,
    /// Older images in whose files some of its memory is; these stay as long as it needs them, whether they have names or not.
    #[serde(default)]
    pub ancestors: u64,
    /// Bytes of its memory in those.
    #[serde(default)]
    pub ancestors_bytes: u64,
    /// Kept in memory instead of on disk.
    pub in_memory: bool,
    /// Root image it needs.
    pub image: String,
    /// Command of the domain that was frozen; empty if it is not known.
    #[serde(default)]
    pub command: Vec<String>,
    /// Host name of the domain that was frozen.
    pub hostname: String,
    /// Generation of that domain.
    pub generation: u64,
    /// Processes and threads in it.
    pub threads: u64,
    /// When it was made.
    pub created_at: String,
}

/// Answer to a clone: one result a clone, in order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Cloned {
    /// The clones.
    pub results: Vec<CloneResult>,
}

/// A clone, or why there is none.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CloneResult {
    /// It runs.
    Domain(Box<crate::Domain>),
    /// It could not be made.
    Problem(crate::Problem),
}
