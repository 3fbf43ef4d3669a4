//! Who we are to a registry: challenges of registries, and credentials from Docker's configuration file.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;

use crate::Reference;

/// Most bytes of Docker's configuration file.
const CONFIG_MAX: u64 = 1 << 20;

/// What a registry asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// User and password.
    Basic,
    /// A token from elsewhere.
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    /// Parses a `WWW-Authenticate` header.
    pub(crate) fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let fields = parameters(rest);
        let realm = fields.get("realm")?.clone();
        Some(Self::Bearer { realm, service: fields.get("service").cloned() })
    }
}

/// `key="value",key=value`; values in quotes may hold commas and escaped quotes.
fn parameters(text: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    let mut chars = text.chars().peekable();
    loop {
        let key: String = std::iter::from_fn(|| chars.next_if(|c| *c != '=')).collect();
        if chars.next().is_none() {
            return found;
        }
        let mut value = String::new();
        if chars.next_if_eq(&'"').is_some() {
            while let Some(c) = chars.next() {
                match c {
                    '"' => break,
                    '\\' => value.extend(chars.next()),
                    c => value.push(c),
                }
            }
            while chars.next_if(|c| *c != ',').is_some() {}
        } else {
            value = std::iter::from_fn(|| chars.next_if(|c| *c != ',')).collect();
        }
        chars.next();
        found.insert(key.trim().trim_start_matches(',').trim().to_ascii_lowercase(), value.trim().to_owned());
    }
}

/// User and password. The password is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub user: String,
    /// Password, or a token that stands for one.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// The value of an `Authorization` header.
    pub(crate) fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }

    /// What Docker's configuration file has for the registry of `reference`. Credential helpers are not asked: they are
    /// programs to run.
    pub(crate) fn of_docker(reference: &Reference) -> Option<Self> {
        let dir = match std::env::var_os("DOCKER_CONFIG").filter(|d| !d.is_empty()) {
            Some(dir) => PathBuf::from(dir),
            None => PathBuf::from(std::env::var_os("HOME")?).join(".docker"),
        };
        let mut text = String::new();
        File::open(dir.join("config.json")).ok()?.take(CONFIG_MAX).read_to_string(&mut text).ok()?;
        Self::in_config(&text, reference.registry())
    }

    fn in_config(text: &str, registry: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Config {
            #[serde(default)]
            auths: HashMap<String, Entry>,
        }
        #[derive(Deserialize)]
        struct Entry {
            #[serde(default)]
            auth: String,
        }
        let config: Config = serde_json::from_str(text).ok()?;
        let mut keys = vec![registry.to_owned(), format!("https://{registry}"), format!("http://{registry}")];
        if registry == "docker.io" {
            keys.extend(["https://index.docker.io/v1/", "index.docker.io"].map(str::to_owned));
        }
        let entry = keys.iter().find_map(|key| config.auths.get(key)).filter(|e| !e.auth.is_empty())?;
        let plain = STANDARD_NO_PAD.decode(entry.auth.trim_end_matches('=')).ok()?;
        let plain = String::from_utf8(plain).ok()?;
        let (user, password) = plain.split_once(':')?;
        Some(Self { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() })
    }
}

/// The token in a token server's answer.
pub(crate) fn token(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        token: Option<String>,
        access_token: Option<String>,
    }
    let answer: Answer = serde_json::from_slice(body).ok()?;
    let token = answer.token.or(answer.access_token)?;
    // It becomes a header.
    let good = |b: u8| b.is_ascii_graphic();
    (!token.is_empty() && token.bytes().all(good)).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.into(), service: service.map(Into::into) })
        };
        let docker =
            r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="a:b,c""#;
        assert_eq!(
            Challenge::parse(docker),
            bearer("https://auth.docker.io/token", Some("registry.docker.io"))
        );
        assert_eq!(Challenge::parse(r#"bearer service=x, realm="r,\"q""#), bearer("r,\"q", Some("x")));
        assert_eq!(Challenge::parse("Basic realm=\"x\""), Some(Challenge::Basic));
        for bad in ["", "Bearer", "Bearer realm", "Digest realm=x", "Bearer service=\"x"] {
            assert_eq!(Challenge::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn docker_configuration() {
        let auth = STANDARD.encode("me:pass:word");
        let text =
            format!(r#"{{"auths":{{"localhost:5000":{{"auth":"{auth}"}},"x.org":{{}}}},"credsStore":"y"}}"#);
        let found = Credentials::in_config(&text, "localhost:5000").unwrap();
        assert_eq!((found.user.as_str(), found.password.as_str()), ("me", "pass:word"));
        assert!(!format!("{found:?}").contains("word"), "a password must not be printed");
        assert_eq!(Credentials::in_config(&text, "x.org"), None);
        assert_eq!(Credentials::in_config(&text, "y.org"), None);
        assert_eq!(Credentials::in_config("{", "x.org"), None);
    }

    #[test]
    fn tokens() {
        assert_eq!(token(br#"{"token":"abc"}"#).as_deref(), Some("abc"));
        assert_eq!(token(br#"{"access_token":"x.y"}"#).as_deref(), Some("x.y"));
        assert_eq!(token(br#"{"token":"a\r\nHost: x"}"#), None);
        assert_eq!(token(b"{}"), None);
    }
}
