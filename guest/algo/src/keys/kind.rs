//! The types of keys.

use doppel_abi_linux::errno::{Errno, Result};

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Holds links to keys. The first in order: a keyring's keyrings are found together.
    Keyring,
    /// A few bytes that programs may read back.
    User,
    /// As `User`, not to be read back.
    Logon,
    /// More bytes.
    BigKey,
}

/// Most bytes of a `user` key.
const USER_MAX: usize = 32767;
/// Most bytes of a `big_key`.
const BIG_MAX: usize = 1 << 20;
/// What a `big_key` counts for, whatever its length.
const BIG_QUOTA: usize = 16;

impl Kind {
    /// By its name.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        [Self::Keyring, Self::User, Self::Logon, Self::BigKey]
            .into_iter()
            .find(|k| k.name().as_bytes() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keyring => "keyring",
            Self::User => "user",
            Self::Logon => "logon",
            Self::BigKey => "big_key",
        }
    }

    /// Whether programs may read what is in such a key.
    pub const fn readable(self) -> bool {
        !matches!(self, Self::Logon)
    }

    /// Whether such a key can be given other content.
    pub const fn updatable(self) -> bool {
        !matches!(self, Self::Keyring)
    }

    /// EINVAL unless a key may be described so: `logon` keys name a service first.
    pub(super) fn check_description(self, text: &[u8]) -> Result<()> {
        let service = self != Self::Logon || text.iter().position(|b| *b == b':').is_some_and(|at| at > 0);
        if text.is_empty() || !service { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// EINVAL unless a key may hold so many bytes.
    pub(super) fn check_content(self, len: usize) -> Result<()> {
        let fits = match self {
            Self::Keyring => len == 0,
            Self::User | Self::Logon => (1..=USER_MAX).contains(&len),
            Self::BigKey => (1..=BIG_MAX).contains(&len),
        };
        if fits { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// What so many bytes of content count for.
    pub(super) const fn charge(self, len: usize) -> usize {
        match self {
            Self::Keyring => 0,
            Self::User | Self::Logon => len,
            Self::BigKey => BIG_QUOTA,
        }
    }
}
