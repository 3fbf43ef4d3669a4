//! Disks: block devices of domains, kept under names.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// What its own part takes on the host; what it has in common with others is not counted.
    pub used_bytes: u64,
    /// When it was made.
    pub created_at: String,
    /// It is a snapshot: domains only read it.
    pub snapshot: bool,
    /// Layers it is made of: each snapshot or clone puts one more below.
    pub layers: u32,
    /// A domain runs with it.
    pub in_use: bool,
}

/// `POST /v1/disks`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateDisk {
    /// Its name.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{1,254}$")]
    pub name: String,
    /// Its size, a multiple of 4,096 and at most 8 TiB, for an empty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 4096, maximum = 8796093022208u64)]
    pub size_bytes: Option<u64>,
    /// The disk whose bytes it begins with, instead. A domain of this supervisor may be writing to it: it has what was written by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{1,254}$")]
    pub source: Option<String>,
    /// It is a snapshot of the source: nothing of it changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshot: bool,
}

/// `PATCH /v1/disks/{name}`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeDisk {
    /// Its new size, a multiple of 4,096 and at most 8 TiB. What is behind it is lost, what comes behind the old one is zero.
    #[schema(minimum = 4096, maximum = 8796093022208u64)]
    pub size_bytes: u64,
}

/// `DELETE /v1/disks/{name}`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct RemoveDisk {
    /// One that is not there is no error.
    pub force: bool,
}
