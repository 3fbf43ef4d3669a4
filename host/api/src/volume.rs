//! Volumes: directories of the host that are kept under names, apart from domains.

use std::collections::BTreeMap;

use doppel_spec::{Mount, MountKind};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Where its files are on the supervisor's host.
    pub mountpoint: String,
    /// When it was made.
    pub created_at: String,
    /// Key-value pairs for the user's own use.
    pub labels: BTreeMap<String, String>,
    /// It was made for a domain that gave no name.
    pub anonymous: bool,
    /// Ids of domains that have it, running or not.
    pub used_by: Vec<String>,
    /// Most bytes of the host's disk that its files may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Most files and directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// It is a snapshot: domains only read it.
    #[serde(default)]
    pub snapshot: bool,
}

/// `POST /v1/volumes`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateVolume {
    /// Its name; one that is there already stays as it is. Without a name one is made up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{1,254}$")]
    pub name: Option<String>,
    /// Key-value pairs for the user's own use.
    pub labels: BTreeMap<String, String>,
    /// Most bytes of the host's disk that its files may take; only para domains can have it then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 65536, maximum = 4503599627370496_u64)]
    pub size_bytes: Option<u64>,
    /// Most files and directories, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4503599627370496_u64)]
    pub inodes: Option<u64>,
    /// The volume whose files it begins with, and whose limits it has: one that no running domain has, or a snapshot. Then `name` must
    /// be given, and no volume be called so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{1,254}$")]
    pub source: Option<String>,
    /// It is a snapshot of the source: domains only read it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub snapshot: bool,
}

/// `DELETE /v1/volumes/{name}`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct RemoveVolume {
    /// One that is not there is no error.
    pub force: bool,
}

/// `POST /v1/volumes/prune`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct VolumePruneOptions {
    /// Those with names too.
    pub all: bool,
    /// Only with this label: `key` or `key=value`; commas separate several, all of which must be there.
    pub label: Option<String>,
}

/// What `POST /v1/volumes/prune` removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumePruneReport {
    /// Names of volumes that no domain had.
    pub removed: Vec<String>,
}

/// What a storage service has done for a domain: a para domain's volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StorageStats {
    /// Requests that were answered.
    pub operations: u64,
    /// Those that failed because of the host: it has no room, or is broken.
    pub errors: u64,
    /// Bytes read from files.
    pub read_bytes: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
    /// Seconds from when requests were taken until they were answered, all together.
    pub seconds: f64,
}

impl StorageStats {
    /// Both together.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            operations: self.operations.saturating_add(more.operations),
            errors: self.errors.saturating_add(more.errors),
            read_bytes: self.read_bytes.saturating_add(more.read_bytes),
            written_bytes: self.written_bytes.saturating_add(more.written_bytes),
            seconds: self.seconds + more.seconds,
        }
    }
}

/// What is mounted in a domain, in the words of Docker's `inspect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MountPoint {
    /// What.
    #[serde(rename = "type")]
    pub kind: MountKind,
    /// Of a volume: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of a bind or volume: where its files are on the supervisor's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Where it is in the domain.
    pub destination: String,
    /// Its options.
    pub mode: String,
    /// It can be written to.
    pub rw: bool,
}

impl MountPoint {
    /// A mount of a domain; `path`: where a volume's files are.
    #[must_use]
    pub fn of(mount: &Mount, path: impl Fn(&str) -> String) -> Self {
        let source = mount.source.clone();
        let (name, source) = match mount.kind {
            MountKind::Volume => (source.clone(), source.as_deref().map(path)),
            _ => (None, source),
        };
        Self {
            kind: mount.kind,
            name,
            source,
            destination: mount.target.clone(),
            mode: mount.options.join(","),
            rw: !mount.is_read_only(),
        }
    }
}

/// Whether labels have all that a filter wants: `key` or `key=value`, separated by commas.
#[must_use]
pub fn has_labels(labels: &BTreeMap<String, String>, wanted: &str) -> bool {
    wanted.split(',').filter(|label| !label.is_empty()).all(|label| match label.split_once('=') {
        Some((key, value)) => labels.get(key).is_some_and(|is| is == value),
        None => labels.contains_key(label),
    })
}
