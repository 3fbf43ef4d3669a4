//! Bearer tokens for TCP: kept as salted hashes in a file that only root reads.
//!
//! A token is 256 random bits, so a single round of SHA-256 over salt and token is enough: there is nothing to guess.
//! The file is read again whenever it has changed, so a token that was removed is refused from then on.

use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a token begins with, so that it is recognised where it should not be.
const PREFIX: &str = "dpl_";

/// One token of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Token {
    /// Whose it is.
    pub name: String,
    /// Seconds since 1970 when it was made.
    pub created: u64,
    salt: String,
    hash: String,
}

impl Token {
    fn fits(&self, token: &str) -> bool {
        let ours = self.hash.as_bytes();
        let theirs = hash(&self.salt, token);
        let theirs = theirs.as_bytes();
        // In the same time wherever they differ.
        ours.len() == theirs.len() && ours.iter().zip(theirs).fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }
}

fn hash(salt: &str, token: &str) -> String {
    let mut digest = Sha256::new();
    digest.update(salt);
    digest.update([0]);
    digest.update(token);
    URL_SAFE_NO_PAD.encode(digest.finalize())
}

fn random() -> io::Result<String> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The tokens of a file, one line of JSON each.
pub fn read(path: &Path) -> io::Result<Vec<Token>> {
    let text = match std::fs::read_to_string(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    text.lines()
        .filter(|l| !l.trim().is_empty())
        .map(|l| serde_json::from_str(l).map_err(Into::into))
        .collect()
}

fn write(path: &Path, tokens: &[Token]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let new = path.with_extension("new");
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    for token in tokens {
        serde_json::to_writer(&mut file, token)?;
        file.write_all(b"\n")?;
    }
    file.sync_all()?;
    std::fs::rename(&new, path)
}

/// Makes a token and adds it to the file. Gives the token, which is nowhere else.
pub fn add(path: &Path, name: &str) -> io::Result<String> {
    doppel_api::validate::name("name", name).map_err(|p| io::Error::other(p.detail))?;
    let mut tokens = read(path)?;
    if tokens.iter().any(|t| t.name == name) {
        return Err(io::Error::other(format!("there is a token {name} already; remove it first")));
    }
    let token = format!("{PREFIX}{}", random()?);
    let salt = random()?;
    let created = std::time::UNIX_EPOCH.elapsed().map_err(io::Error::other)?.as_secs();
    tokens.push(Token { name: name.into(), created, hash: hash(&salt, &token), salt });
    write(path, &tokens)?;
    Ok(token)
}

/// Removes a token from the file.
pub fn remove(path: &Path, name: &str) -> io::Result<()> {
    let mut tokens = read(path)?;
    let before = tokens.len();
    tokens.retain(|t| t.name != name);
    if tokens.len() == before {
        return Err(io::Error::other(format!("there is no token {name}")));
    }
    write(path, &tokens)
}

/// When a file was changed, well enough to see a change.
type Stamp = (u64, i64, i64, u64);

/// The tokens of a file as they are now.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    seen: Mutex<(Option<Stamp>, Vec<Token>)>,
}

impl Tokens {
    /// Of this file.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, seen: Mutex::default() }
    }

    /// Whose token this is.
    #[must_use]
    pub fn owner(&self, token: &str) -> Option<String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = std::fs::metadata(&self.path).ok().map(|m| (m.ino(), m.mtime(), m.mtime_nsec(), m.len()));
        if stamp.is_none() || stamp != seen.0 {
            let tokens = read(&self.path).unwrap_or_else(|e| {
                tracing::error!("{}: {e}; no token is valid", self.path.display());
                Vec::new()
            });
            *seen = (stamp, tokens);
        }
        seen.1.iter().find(|t| t.fits(token)).map(|t| t.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_and_go() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("sub/tokens");
        let (alice, bob) = (add(&path, "alice").expect("added"), add(&path, "bob").expect("added"));
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(!text.contains(&alice) && !text.contains(&alice[PREFIX.len()..]), "kept in clear: {text}");
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        let tokens = Tokens::new(path.clone());
        assert_eq!(tokens.owner(&alice).as_deref(), Some("alice"));
        assert_eq!(tokens.owner(&bob).as_deref(), Some("bob"));
        for wrong in ["", PREFIX, &alice[1..], &format!("{bob}x"), &text] {
            assert_eq!(tokens.owner(wrong), None, "{wrong}");
        }
        assert!(add(&path, "bob").is_err());
        remove(&path, "alice").expect("removed");
        assert_eq!(tokens.owner(&alice), None, "valid after its removal");
        assert_eq!(tokens.owner(&bob).as_deref(), Some("bob"));
        assert!(remove(&path, "alice").is_err());
    }
}
