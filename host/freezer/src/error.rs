//! What can go wrong with a frozen image, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why a domain could not be frozen, or a frozen image not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host refused something.
    #[error("cannot {doing}: {error}")]
    Host {
        /// What was being done.
        doing: String,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
    /// The file is no sound frozen image.
    #[error("frozen image {}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The image is sound but does not fit this host.
    #[error("frozen image {name} does not fit: {reason}")]
    Unfit {
        /// Its name.
        name: String,
        /// What differs, and what would help.
        reason: String,
    },
    /// The request itself is wrong.
    #[error("{0}")]
    Request(String),
}

impl Error {
    pub(crate) fn host(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Host { doing, error }
    }

    pub(crate) fn os(doing: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let doing = doing.into();
        move |error| Self::Host { doing, error: error.into() }
    }
}

/// A result of this crate.
pub(crate) type Result<T> = std::result::Result<T, Error>;
