//! What can go wrong, and who is at fault.

use std::io;
use std::path::Path;

/// Why an image operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host could not do something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was being done, with the path.
        what: String,
        /// The host's answer.
        source: io::Error,
    },
    /// An image name that the store does not accept.
    #[error(
        "bad image name {0:?}: use letters, digits and . _ - : / @ (first a letter or digit, at most 200)"
    )]
    BadName(String),
    /// No image of this name.
    #[error(
        "no image named {0:?} (`doppel images` lists what there is, `doppel pull` gets one from a registry)"
    )]
    NotFound(String),
    /// The source (archive or directory) is broken, or asks for something that is refused.
    #[error("{entry}: {why}")]
    Source {
        /// Which entry.
        entry: String,
        /// What is wrong with it.
        why: String,
    },
    /// The source is larger than allowed.
    #[error("the source has more than {limit} {unit}; raise the limit with {option} if you trust it")]
    TooLarge {
        /// The limit that was reached.
        limit: u64,
        /// What is counted.
        unit: &'static str,
        /// The option that raises it.
        option: &'static str,
    },
    /// An image in the store is damaged.
    #[error("image {image} is damaged: {why}; remove it and import it again")]
    Damaged {
        /// Digest or path of the image.
        image: String,
        /// What was found.
        why: String,
    },
    /// A record of a name is damaged.
    #[error("the record of image name {name:?} is damaged: {why}; `doppel image rm {name}` removes it")]
    BadRecord {
        /// The name.
        name: String,
        /// What was found.
        why: String,
    },
    /// A program Doppel calls is not installed.
    #[error("{0} is not installed; `make setup` (or `apt-get install {0}`) installs it")]
    MissingTool(&'static str),
    /// A program Doppel calls failed.
    #[error("{tool} failed ({status}):\n{output}")]
    Tool {
        /// The program.
        tool: &'static str,
        /// How it ended.
        status: String,
        /// The last lines it printed.
        output: String,
    },
}

/// Result of an image operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A fault of the entry at `path`.
    pub(crate) fn source(path: &[u8], why: impl Into<String>) -> Self {
        let entry = if path.is_empty() { "archive".into() } else { path.escape_ascii().to_string() };
        Self::Source { entry, why: why.into() }
    }
}

/// Adds what was being done to a host error.
pub(crate) trait IoContext<T> {
    /// The error says "cannot `verb` `path`".
    fn doing(self, verb: &str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn doing(self, verb: &str, path: &Path) -> Result<T> {
        self.map_err(|e| Error::Io { what: format!("{verb} {}", path.display()), source: e.into() })
    }
}
