//! What can go wrong.

use std::io;
use std::path::Path;

use doppel_spec::Kind;

/// Why something about a layer failed.
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
    /// It is a clone's, and goes with that.
    #[error(
        "layer {0:?} is a clone's, which alone runs on it: make an image of it with `doppel commit`, and run that"
    )]
    OfClone(String),
    /// It is a clone's, and nothing says how its files are one layer.
    #[error(
        "layer {0:?} is a clone's that an older version of Doppel made, without which its files cannot be read: clone the frozen image anew, or freeze its domain again"
    )]
    Unsaid(String),
    /// No name of a layer.
    #[error("{0}")]
    Wrong(String),
    /// There is none of this name.
    #[error("no layer {0:?}")]
    NotFound(String),
    /// A domain has it.
    #[error("layer {name:?} is in use by {}", .user.as_ref().map_or("a domain that runs without a supervisor".to_owned(), |id| format!("domain {id}")))]
    InUse {
        /// Its name.
        name: String,
        /// Id of the domain; none: one that runs without a supervisor.
        user: Option<String>,
    },
    /// It was made of another image's files.
    #[error(
        "layer {name:?} was made for the image {} (sha256:{}), not for {} (sha256:{}): remove the layer or choose another name",
        .has.0, .has.1, .wanted.0, .wanted.1
    )]
    OtherImage {
        /// Its name.
        name: String,
        /// The image it was made for: its name then, and digest.
        has: (String, String),
        /// The image that was asked for.
        wanted: (String, String),
    },
    /// It is of the other kind of domains.
    #[error("layer {name:?} was made for a {} domain, not for a {} one", said(*.has), said(*.wanted))]
    OtherKind {
        /// Its name.
        name: String,
        /// The kind it was made for.
        has: Kind,
        /// The kind that was asked for.
        wanted: Kind,
    },
    /// The record of one is damaged.
    #[error("the record of layer {name:?} is damaged: {why}")]
    Damaged {
        /// Its name.
        name: String,
        /// What was found.
        why: String,
    },
}

fn said(kind: Kind) -> &'static str {
    match kind {
        Kind::Para => "para",
        Kind::Paene => "paene",
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
