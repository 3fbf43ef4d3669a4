//! How requests are refused (RFC 9457, problem+json).

mod words;

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use words::in_words;

/// Stable codes of errors; programs may depend on them, on the texts they must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request cannot be read or a value is out of its range (400).
    InvalidRequest,
    /// The bearer token is missing or wrong (401).
    Unauthorized,
    /// The caller may not do this (403).
    Forbidden,
    /// No domain of this name or id (404).
    DomainNotFound,
    /// No image of this name (404).
    ImageNotFound,
    /// No frozen image of this name (404).
    FrozenNotFound,
    /// No volume of this name (404).
    VolumeNotFound,
    /// No disk of this name (404).
    DiskNotFound,
    /// No network of this name (404).
    NetworkNotFound,
    /// No exec of this id (404).
    ExecNotFound,
    /// No operation of this id (404).
    OperationNotFound,
    /// No such file in the domain (404).
    FileNotFound,
    /// Nothing lives at this path of the interface (404).
    PathNotFound,
    /// The path is there, but not for this method (405).
    MethodNotAllowed,
    /// The name is taken (409).
    NameInUse,
    /// The image, frozen image, volume or network is used by a domain (409).
    InUse,
    /// A port to publish cannot be had, mostly because it is taken (409).
    PortInUse,
    /// The domain's state does not allow this, for example to start one that runs (409).
    WrongState,
    /// The idempotency key was used for another request (422).
    IdempotencyMismatch,
    /// More is asked for than the host has left: the text gives the numbers (409).
    Capacity,
    /// The command is not in the image (400); as exit code 127.
    CommandNotFound,
    /// The command cannot be executed (400); as exit code 126.
    CommandNotExecutable,
    /// The registry refused or broke its word: digests, lengths (502).
    Registry,
    /// The disk is full (507).
    StorageFull,
    /// The body is larger than allowed (413).
    TooLarge,
    /// It was cancelled (409).
    Cancelled,
    /// It took longer than allowed (504).
    Timeout,
    /// This host or this version cannot do it (501).
    Unsupported,
    /// A fault of the supervisor (500).
    Internal,
}

impl Code {
    /// The HTTP status that goes with it.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::CommandNotFound | Self::CommandNotExecutable => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::DomainNotFound
            | Self::ImageNotFound
            | Self::FrozenNotFound
            | Self::VolumeNotFound
            | Self::DiskNotFound
            | Self::NetworkNotFound
            | Self::ExecNotFound
            | Self::OperationNotFound
            | Self::FileNotFound
            | Self::PathNotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NameInUse
            | Self::InUse
            | Self::PortInUse
            | Self::WrongState
            | Self::Capacity
            | Self::Cancelled => 409,
            Self::TooLarge => 413,
            Self::IdempotencyMismatch => 422,
            Self::Internal => 500,
            Self::Unsupported => 501,
            Self::Registry => 502,
            Self::Timeout => 504,
            Self::StorageFull => 507,
        }
    }

    /// A few words for people, the same for every problem of this code.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "Invalid request",
            Self::Unauthorized => "Not authorized",
            Self::Forbidden => "Forbidden",
            Self::DomainNotFound => "No such domain",
            Self::ImageNotFound => "No such image",
            Self::FrozenNotFound => "No such frozen image",
            Self::VolumeNotFound => "No such volume",
            Self::DiskNotFound => "No such disk",
            Self::NetworkNotFound => "No such network",
            Self::ExecNotFound => "No such exec",
            Self::OperationNotFound => "No such operation",
            Self::FileNotFound => "No such file",
            Self::PathNotFound => "No such path",
            Self::MethodNotAllowed => "Method not allowed",
            Self::NameInUse => "Name in use",
            Self::InUse => "In use",
            Self::PortInUse => "Port in use",
            Self::WrongState => "Wrong state",
            Self::IdempotencyMismatch => "Idempotency key used for another request",
            Self::Capacity => "Not enough capacity",
            Self::CommandNotFound => "Command not found",
            Self::CommandNotExecutable => "Command not executable",
            Self::Registry => "Registry error",
            Self::StorageFull => "Storage full",
            Self::TooLarge => "Too large",
            Self::Cancelled => "Cancelled",
            Self::Timeout => "Timeout",
            Self::Unsupported => "Unsupported",
            Self::Internal => "Internal error",
        }
    }
}

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:doppel:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// A few words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Stable code.
    pub code: Code,
    /// What was wrong and what to do about it.
    pub detail: String,
}

impl Problem {
    /// A problem with its text: what was wrong and what to do.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let name = serde_json::to_value(code).ok().and_then(|v| v.as_str().map(str::to_owned));
        Self {
            kind: format!("urn:doppel:problem:{}", name.unwrap_or_default()),
            title: code.title().into(),
            status: code.status(),
            code,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_json() {
        let p = Problem::new(Code::DomainNotFound, "no domain \"x\"");
        let json = serde_json::to_value(&p).expect("serializes");
        assert_eq!(json["type"], "urn:doppel:problem:domain_not_found");
        assert_eq!(json["status"], 404);
        assert_eq!(json["code"], "domain_not_found");
        assert_eq!(serde_json::from_value::<Problem>(json).expect("reads back"), p);
    }
}
