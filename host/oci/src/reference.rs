//! Image references, by Docker's grammar and defaults: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.

use std::fmt;
use std::str::FromStr;

use crate::{Digest, Error};

/// Docker's own registry, and where its API is.
const DOCKER: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// A parsed reference. The tag is `latest` if neither tag nor digest was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// The registry, as in `docker.io` or `localhost:5000`.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Host and port of the registry's API.
    #[must_use]
    pub fn host(&self) -> &str {
        if self.registry == DOCKER.0 { DOCKER.1 } else { &self.registry }
    }

    /// The repository, as in `library/debian`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The digest, if it names one.
    #[must_use]
    pub const fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// What has this digest in the same repository.
    #[must_use]
    pub fn with_digest(self, digest: Digest) -> Self {
        Self { tag: None, digest: Some(digest), ..self }
    }

    /// The tag, if it names one.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// What names the manifest in a request: the digest goes before the tag.
    #[must_use]
    pub fn manifest(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.as_deref().unwrap_or("latest").to_owned(),
        }
    }

    /// Docker's short form: without its own registry and `library/`. Also the name an image gets when pulled.
    #[must_use]
    pub fn familiar(&self) -> String {
        let path = match self.registry == DOCKER.0 {
            true => self.repository.strip_prefix("library/").unwrap_or(&self.repository).to_owned(),
            false => format!("{}/{}", self.registry, self.repository),
        };
        let tag = self.tag.as_ref().map(|t| format!(":{t}")).unwrap_or_default();
        let digest = self.digest.as_ref().map(|d| format!("@{d}")).unwrap_or_default();
        format!("{path}{tag}{digest}")
    }

    /// Whether the registry is this host, which is spoken to in plain HTTP.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = match self.registry.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => self.registry.split(':').next().unwrap_or_default(),
        };
        let address = host.parse::<std::net::IpAddr>();
        host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|a| a.is_loopback())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.familiar())
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why| Error::Reference { text: text.chars().take(300).collect(), why };
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(Digest::parse(digest).map_err(bad)?)),
            None => (text, None),
        };
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(bad("a tag has up to 128 letters, digits, '_', '.' and '-'"));
        }
        let (registry, repository) = match path.split_once('/') {
            Some((host, path)) if host.contains(['.', ':', '[']) || host == "localhost" => (host, path),
            _ => (DOCKER.0, path),
        };
        let registry = if registry == "index.docker.io" { DOCKER.0 } else { registry };
        if !is_host(registry) {
            return Err(bad("its registry is no host name or address with an optional port"));
        }
        if repository.is_empty() || !repository.split('/').all(is_component) {
            return Err(bad(
                "a repository is made of lower-case letters and digits, with '.', '_', '__' or '-' between them",
            ));
        }
        let library = registry == DOCKER.0 && !repository.contains('/');
        let repository = if library { format!("library/{repository}") } else { repository.to_owned() };
        if registry.len() + repository.len() > 255 {
            return Err(bad("it is too long"));
        }
        let tag = match (tag, &digest) {
            (None, None) => Some("latest".to_owned()),
            (tag, _) => tag.map(str::to_owned),
        };
        Ok(Self { registry: registry.to_owned(), repository, tag, digest })
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn is_host(host: &str) -> bool {
    let port = |p: &str| !p.is_empty() && p.len() <= 5 && p.parse::<u16>().is_ok();
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, after)) = rest.split_once(']') else { return false };
        return address.parse::<std::net::Ipv6Addr>().is_ok()
            && (after.is_empty() || after.strip_prefix(':').is_some_and(port));
    }
    let (name, number) = host.split_once(':').map_or((host, None), |(n, p)| (n, Some(p)));
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label) && number.is_none_or(port)
}

/// Letters and digits, separated by one of `.`, `_`, `__` or any number of `-`.
fn is_component(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while at < bytes.len() && word(bytes[at]) {
            at += 1;
        }
        if at == start {
            return false;
        }
        if at == bytes.len() {
            return true;
        }
        let from = at;
        while at < bytes.len() && !word(bytes[at]) {
            at += 1;
        }
        let separator = &bytes[from..at];
        if !matches!(separator, b"." | b"_" | b"__") && !separator.iter().all(|b| *b == b'-') {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests;
