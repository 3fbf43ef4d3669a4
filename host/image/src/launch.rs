//! What to run in an image, as which user, where: its configuration and what the caller says, by Docker's rules.

use std::ffi::OsString;

use crate::config::ImageConfig;

/// What the caller says; `None` and empty leave it to the image.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
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
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// The user's home directory.
    pub home: String,
}

/// Resolves `wanted` over `config`. `file` reads a small file of the image; it is asked for `/etc/passwd` and
/// `/etc/group` only where they are needed.
///
/// # Errors
///
/// A sentence about a user or group that the image does not know.
pub fn launch(
    config: &ImageConfig,
    wanted: Wanted,
    mut file: impl FnMut(&str) -> Option<Vec<u8>>,
) -> Result<Launch, String> {
    let mut argv = match &wanted.entrypoint {
        Some(entrypoint) if entrypoint.is_empty() => Vec::new(),
        Some(entrypoint) => vec![entrypoint.clone()],
        None => config.entrypoint.iter().map(Into::into).collect(),
    };
    match wanted.command {
        command if !command.is_empty() => argv.extend(command),
        _ if wanted.entrypoint.is_none() => argv.extend(config.cmd.iter().map(OsString::from)),
        _ => {}
    }
    let dir = Some(config.working_dir.as_str()).filter(|d| !d.is_empty());
    let cwd = wanted.workdir.unwrap_or_else(|| dir.unwrap_or("/").into());
    let user = wanted.user.unwrap_or_else(|| config.user.clone());
    let user = identity(&user, &mut file)?;
    Ok(Launch { argv, cwd, uid: user.0, gid: user.1, home: user.2 })
}

/// User id, group id and home directory of `USER[:GROUP]`.
fn identity(
    text: &str,
    file: &mut impl FnMut(&str) -> Option<Vec<u8>>,
) -> Result<(u32, u32, String), String> {
    if matches!(text, "" | "0" | "root" | "0:0" | "root:root") {
        return Ok((0, 0, "/root".into()));
    }
    let (user, group) = text.split_once(':').map_or((text, None), |(u, g)| (u, Some(g)));
    let user = if user.is_empty() { "0" } else { user };
    let passwd = file("/etc/passwd").unwrap_or_default();
    // name:password:uid:gid:comment:home:shell
    let line = find(&passwd, |f| f[0] == user.as_bytes())
        .or_else(|| id(user.as_bytes()).and_then(|uid| find(&passwd, |f| id(field(f, 2)) == Some(uid))));
    let (uid, own, home) = match (line, id(user.as_bytes())) {
        (Some(f), number) => {
            let uid = id(field(&f, 2)).or(number);
            let home = String::from_utf8_lossy(field(&f, 5)).into_owned();
            (
                uid.ok_or_else(|| format!("user {user:?} has no number in the image's /etc/passwd"))?,
                id(field(&f, 3)),
                home,
            )
        }
        (None, Some(number)) => (number, None, String::new()),
        (None, None) => return Err(format!("the image's /etc/passwd has no user {user:?}")),
    };
    let gid = match group {
        None | Some("") => own.unwrap_or(0),
        Some(name) => {
            let groups = file("/etc/group").unwrap_or_default();
            find(&groups, |f| f[0] == name.as_bytes())
                .and_then(|f| id(field(&f, 2)))
                .or_else(|| id(name.as_bytes()))
                .ok_or_else(|| format!("the image's /etc/group has no group {name:?}"))?
        }
    };
    Ok((uid, gid, if home.is_empty() { "/".into() } else { home }))
}

/// The fields of the first line that `good` accepts.
fn find(text: &[u8], good: impl Fn(&[&[u8]]) -> bool) -> Option<Vec<&[u8]>> {
    text.split(|b| *b == b'\n').map(|line| line.split(|b| *b == b':').collect::<Vec<_>>()).find(|f| good(f))
}

fn field<'a>(fields: &[&'a [u8]], at: usize) -> &'a [u8] {
    fields.get(at).copied().unwrap_or_default()
}

/// A numeric id; the last number means "none" to the kernel.
fn id(text: &[u8]) -> Option<u32> {
    if !text.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok().filter(|id| *id != u32::MAX)
}

#[cfg(test)]
mod tests;
