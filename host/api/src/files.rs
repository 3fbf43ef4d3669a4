//! Files of a running domain. Whole trees go as tar streams: `GET` and `PUT .../archive?path=`.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Names a file: `GET .../files` (its bytes), `.../files/info`, `.../files/list`, `.../files/watch`, `.../archive`.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PathQuery {
    /// Absolute path inside the domain.
    pub path: String,
}

/// `PUT .../files`: the body's bytes become the file.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WriteFile {
    /// Absolute path inside the domain; missing directories are made.
    pub path: String,
    /// Permissions of a new file, octal; 644 if missing.
    pub mode: Option<String>,
}

/// `DELETE .../files`.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveFile {
    /// Absolute path inside the domain.
    pub path: String,
    /// Directories with all that is in them.
    #[serde(default)]
    pub recursive: bool,
}

/// `POST .../files/rename`.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RenameFile {
    /// Absolute path inside the domain.
    pub path: String,
    /// Its new one; a file of this name is replaced.
    pub to: String,
}

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// Regular.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Device, socket or pipe.
    Other,
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileInfo {
    /// Its name in its directory.
    pub name: String,
    /// Absolute path.
    pub path: String,
    /// Kind.
    pub kind: FileKind,
    /// Bytes.
    pub size_bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change.
    pub modified_at: String,
    /// Where a symbolic link leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// Made, or moved here.
    Created,
    /// Its content changed.
    Modified,
    /// Removed, or moved away.
    Removed,
}

/// One line of `GET .../files/watch`: a change in the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileChange {
    /// What happened.
    pub kind: FileChangeKind,
    /// Name in the directory that is watched.
    pub name: String,
}
