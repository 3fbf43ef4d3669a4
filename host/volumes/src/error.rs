//! What can go wrong.

use std::io;
use std::path::Path;

/// Why something about a volume failed.
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
    /// No name, or no place.
    #[error("{0}")]
    Wrong(String),
    /// It may not be mounted.
    #[error("{0}")]
    Refused(String),
    /// There is one of this name.
    #[error("there is a volume {0:?} already")]
    Exists(String),
    /// There is none of this name.
    #[error("no volume {0:?}")]
    NotFound(String),
    /// Somebody has it.
    #[error("volume {name:?} is in use by {}", named(.users))]
    InUse {
        /// Its name.
        name: String,
        /// Ids of domains; none: a domain that runs without a supervisor.
        users: Vec<String>,
    },
    /// The record of one is damaged.
    #[error("the record of volume {name:?} is damaged: {why}")]
    Damaged {
        /// Its name.
        name: String,
        /// What was found.
        why: String,
    },
    /// The image of a domain could not be read.
    #[error("cannot fill volume {name:?} from the image: {source}")]
    Image {
        /// The volume's name.
        name: String,
        /// Why not.
        source: doppel_image::Error,
    },
}

fn named(ids: &[String]) -> String {
    match ids {
        [] => "a domain that runs without a supervisor".to_owned(),
        [one] => format!("domain {one}"),
        some => format!("domains {}", some.join(", ")),
    }
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
