//! What can go wrong with a domain, and what to do about it.

use std::io;
use std::path::PathBuf;

use doppel_sys::child::SpawnError;

/// Why a domain could not be started or watched.
#[derive(Debug)]
pub enum Error {
    /// The request itself is wrong; the text says what and what would be right.
    Config(String),
    /// The domain has ended, or none of that name runs. Nothing is wrong with the request.
    Ended(String),
    /// The domain cannot do this in the state that it is in; later it may.
    State(String),
    /// A command or a protocol failed inside the domain: this is what the domain says, in a text that it chose.
    InDomain(String),
    /// The caller of this crate has broken one of its rules.
    Misuse(&'static str),
    /// A domain of this kind, or on this host, cannot do this.
    Unsupported(String),
    /// The image cannot be used.
    Image {
        /// Its file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The guest kernel is unusable.
    Kernel(String),
    /// The host refused something.
    Host {
        /// What was being done, completing "cannot …".
        doing: String,
        /// Why it failed.
        error: io::Error,
    },
    /// The domain's first process could not be created.
    Spawn(SpawnError),
    /// It could not be frozen, or the frozen image not be used.
    Freezer(doppel_freezer::Error),
}

impl From<doppel_freezer::Error> for Error {
    fn from(error: doppel_freezer::Error) -> Self {
        Self::Freezer(error)
    }
}

impl Error {
    /// An error of the host while `doing` something.
    pub(crate) fn host(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Host { doing, error }
    }

    /// The same for `rustix` calls.
    pub(crate) fn os(doing: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let doing = doing.into();
        move |error| Self::Host { doing, error: error.into() }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(text) | Self::Unsupported(text) | Self::Ended(text) | Self::State(text) => {
                f.write_str(text)
            }
            Self::InDomain(text) => write!(f, "in the domain: {text}"),
            Self::Misuse(text) => f.write_str(text),
            Self::Image { path, reason } => write!(f, "image {}: {reason}", path.display()),
            Self::Freezer(error) => error.fmt(f),
            Self::Kernel(text) => write!(f, "guest kernel: {text}"),
            Self::Host { doing, error } => write!(f, "cannot {doing}: {error}"),
            Self::Spawn(error) => {
                write!(f, "{error}")?;
                match error.error.raw_os_error() {
                    Some(libc_errno::EPERM) => f.write_str(
                        "; run as root, or allow unprivileged user namespaces \
                         (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)",
                    ),
                    Some(libc_errno::ENOSPC) => f.write_str("; the host's limit on namespaces is reached (sysctl user.max_*_namespaces)"),
                    Some(libc_errno::ENOSYS) => f.write_str("; Linux 5.11 or newer is needed, and a container around Doppel must allow clone3"),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// The error numbers that get advice.
mod libc_errno {
    pub const EPERM: i32 = 1;
    pub const ENOSPC: i32 = 28;
    pub const ENOSYS: i32 = 38;
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Host { error, .. } => Some(error),
            Self::Spawn(error) => Some(error),
            Self::Freezer(error) => Some(error),
            _ => None,
        }
    }
}
