//! What to run in an image, as which user, where: its configuration and what the caller says, by Docker's rules.

use std::ffi::OsString;

use crate::config::ImageConfig;
use crate::identity::{Identity, identity};

/// What the caller says; `None` and empty leave it to the image.
#[derive(Clone, Debug, Default)]
pub struct LaunchOptions {
    /// The command, behind the entry point.
    pub command: Vec<OsString>,
    /// Another entry point; the image's default command does not apply then. Empty: none.
    pub entrypoint: Option<OsString>,
    /// `USER[:GROUP]`, names or numbers.
    pub user: Option<String>,
    /// Working directory.
    pub workdir: Option<OsString>,
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Program and arguments; empty if neither the image nor the caller names one.
    pub argv: Vec<OsString>,
    /// Working directory.
    pub cwd: OsString,
    /// As whom.
    pub user: Identity,
}

/// Resolves `options` over `config`. `file` reads a small file of the image; it is asked for `/etc/passwd` and
/// `/etc/group` only where they are needed.
///
/// # Errors
///
/// A sentence about a user or group that the image does not know.
pub fn launch(
    config: &ImageConfig,
    options: LaunchOptions,
    file: impl FnMut(&str) -> Option<Vec<u8>>,
) -> Result<Launch, String> {
    let mut argv = match &options.entrypoint {
        Some(entrypoint) if entrypoint.is_empty() => Vec::new(),
        Some(entrypoint) => vec![entrypoint.clone()],
        None => config.entrypoint.iter().map(Into::into).collect(),
    };
    match options.command {
        command if !command.is_empty() => argv.extend(command),
        _ if options.entrypoint.is_none() => argv.extend(config.cmd.iter().map(OsString::from)),
        _ => {}
    }
    let dir = Some(config.working_dir.as_str()).filter(|d| !d.is_empty());
    let cwd = options.workdir.unwrap_or_else(|| dir.unwrap_or("/").into());
    let user = options.user.unwrap_or_else(|| config.user.clone());
    Ok(Launch { argv, cwd, user: identity(&user, file).map_err(|e| format!("the image's {e}"))? })
}

#[cfg(test)]
mod tests;
