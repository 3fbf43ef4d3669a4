//! SHA-256 digests as OCI writes them.

use std::fmt;
use std::io::{self, Write};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// `sha256:` and 64 lower-case hexadecimal digits: safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

impl Digest {
    /// Parses `sha256:…`. Other algorithms are refused.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(hex) = text.strip_prefix("sha256:") else {
            return Err("a digest must be sha256:<64 hexadecimal digits>");
        };
        Self::from_hex(hex)
    }

    /// The digest of 64 hexadecimal digits.
    pub fn from_hex(hex: &str) -> Result<Self, &'static str> {
        let good = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if hex.len() == 64 && hex.bytes().all(good) {
            Ok(Self(hex.to_owned()))
        } else {
            Err("a SHA-256 digest has 64 lower-case hexadecimal digits")
        }
    }

    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    /// The digest of what was hashed.
    pub(crate) fn finish(hash: Sha256) -> Self {
        Self(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }

    /// The digits alone.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0
    }

    /// The first digits, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A writer that hashes and counts what goes through it.
pub(crate) struct Hashed<W> {
    pub(crate) out: W,
    pub(crate) hash: Sha256,
    pub(crate) len: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.hash.update(&bytes[..n]);
        self.len += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
