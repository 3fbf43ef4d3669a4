//! What can go wrong, and who is at fault.

use std::io;
use std::path::Path;

/// Why an operation on an OCI image failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image store or a layer.
    #[error(transparent)]
    Image(#[from] doppel_image::Error),
    /// A layer that cannot be applied.
    #[error("layer {layer}: {source}")]
    Layer {
        /// Its digest.
        layer: String,
        /// What is wrong with it.
        source: doppel_image::Error,
    },
    /// The host could not do something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The host's answer.
        source: io::Error,
    },
    /// Not a reference.
    #[error("{text:?} is no image reference: {why}")]
    Reference {
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The registry could not be reached, or the connection broke.
    #[error("registry {registry}: {why}")]
    Network {
        /// Its name.
        registry: String,
        /// What happened.
        why: String,
    },
    /// The registry refused.
    #[error("registry {registry}: {what}: {status}{message}")]
    Refused {
        /// Its name.
        registry: String,
        /// What was asked.
        what: String,
        /// HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// The registry or the archive sent something that is not what it must be.
    #[error("{what}: {why}")]
    Invalid {
        /// Which thing.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// No image for the platform.
    #[error("{what} has no image for {platform}; it has {found}")]
    Platform {
        /// The reference.
        what: String,
        /// What was wanted.
        platform: String,
        /// What there is.
        found: String,
    },
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
    /// Something else uses the store of blobs.
    #[error("an image is being pulled or pushed; try again when it is done")]
    Busy,
}

/// Result of an operation on an OCI image.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn invalid(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), why: why.into() }
    }

    /// Whether trying again may help.
    pub(crate) const fn passes(&self) -> bool {
        match self {
            Self::Network { .. } => true,
            Self::Refused { status, .. } => matches!(*status, 408 | 425 | 429 | 500..=599),
            _ => false,
        }
    }
}

/// Text of a peer, made fit for a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .take(500)
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

/// Adds what was being done to a host error.
pub(crate) trait IoContext<T> {
    /// The error says "cannot `verb` `path`".
    fn doing(self, verb: &str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn doing(self, verb: &str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { what: format!("{verb} {}", path.display()), source })
    }
}
