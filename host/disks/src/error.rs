//! What can go wrong.

use std::io;
use std::path::Path;

/// Why something about a disk failed.
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
    /// No name of a disk, or no size of one.
    #[error("{0}")]
    Wrong(String),
    /// There is none of this name.
    #[error("no disk {0:?}")]
    NotFound(String),
    /// There is one of this name.
    #[error("there is a disk {0:?}")]
    Exists(String),
    /// A domain that runs has it.
    #[error("disk {0:?} is in use by a domain that runs")]
    InUse(String),
    /// It is a snapshot, of which nothing changes.
    #[error("disk {0:?} is a snapshot, which can only be read (\"{0}:ro\"); a clone of it can be written")]
    Snapshot(String),
    /// It was written to since the memory was frozen that goes with it.
    #[error(
        "disk {0:?} was written to, or is another one, since the domain was hibernated, whose memory cannot go on with it; start the domain"
    )]
    Newer(String),
    /// Somebody else makes, changes or removes a disk, and takes long.
    #[error("somebody else is changing disks of the store (`doppel disk flatten` may take long); try again")]
    Busy,
    /// The record of one is damaged.
    #[error("disk {name:?} is damaged: {why}")]
    Damaged {
        /// Its name.
        name: String,
        /// What was found.
        why: String,
    },
}

/// What most of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Says what was being done.
pub(crate) trait IoContext<T> {
    fn doing(self, what: &str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn doing(self, what: &str, path: &Path) -> Result<T> {
        self.map_err(|e| Error::Io { what: format!("{what} {}", path.display()), source: e.into() })
    }
}
