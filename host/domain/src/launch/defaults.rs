//! What all domains of a host have in common unless something else is asked for: the table `domains` of `doppeld.toml`.

use std::sync::OnceLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{LEAST_MEMORY, Resources, Speculation, UNBOUNDED};

/// Its entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Defaults {
    /// What the CPU may guess while it runs them.
    pub speculation: Speculation,
    /// Most memory of the host that one may have for which no limit is asked. Its programs may ask for more than that, as on
    /// a host; if they use more, it ends.
    pub memory: Bound,
    /// What one may use that asks for nothing else: limits and weights as in a request. Whoever starts it fills them in.
    #[serde(flatten)]
    pub resources: Resources,
}

/// A bound on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// None.
    Unlimited,
    /// Hundredths of the host's memory.
    Percent(u8),
    /// Bytes.
    Bytes(u64),
}

/// Half of the host: a domain that runs wild leaves the other half to everybody else.
impl Default for Bound {
    fn default() -> Self {
        Self::Percent(50)
    }
}

impl Bound {
    /// In bytes, on a host with so many.
    #[must_use]
    pub fn of(self, host: u64) -> Option<u64> {
        let bytes = match self {
            Self::Unlimited => return None,
            Self::Percent(n) => host / 100 * u64::from(n),
            Self::Bytes(n) => n,
        };
        Some(bytes.clamp(LEAST_MEMORY, host.max(LEAST_MEMORY)))
    }

    /// What a text of the configuration means.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "unlimited" {
            return Some(Self::Unlimited);
        }
        if let Some(percent) = text.strip_suffix('%') {
            return percent.parse().ok().filter(|n| (1..=100).contains(n)).map(Self::Percent);
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match &text[digits.len()..] {
            "" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            "t" => 40,
            _ => return None,
        };
        let bytes = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
        (bytes >= LEAST_MEMORY).then_some(Self::Bytes(bytes))
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Percent(n) => write!(f, "{n}%"),
            Self::Bytes(n) => write!(f, "{n}"),
        }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let what = "a share of the host's memory as \"50%\", at least 8 MiB as \"4g\", or \"unlimited\"";
            serde::de::Error::custom(format!("{text:?} is none of {what}"))
        })
    }
}

static CHOSEN: OnceLock<Defaults> = OnceLock::new();

impl Defaults {
    /// Refuses what cannot be the same for all domains.
    ///
    /// # Errors
    /// Which entry, and why.
    pub fn check(&self) -> Result<(), String> {
        let target = self.resources.memory_target_bytes.map(|_| "memory_target_bytes");
        match self.resources.supervised().or(target) {
            Some(field) => Err(format!("{field}: is of a single domain, and no default")),
            None => Ok(()),
        }
    }

    /// Makes these count for all domains that this process starts. The first choice does.
    pub fn choose(&self) {
        CHOSEN.get_or_init(|| {
            self.speculation.prepare();
            self.clone()
        });
    }

    /// Those that count.
    fn chosen() -> &'static Self {
        Self::default().choose();
        CHOSEN.get().expect("just chosen")
    }
}

/// Guesses of the CPU that a domain that is born now must do without.
pub(crate) fn forsworn() -> &'static [u64] {
    Defaults::chosen().speculation.guesses()
}

/// Most memory of a domain beside its own limit, which bounds it then, or by which it wants no bound.
pub(crate) fn bound_of(limit: Option<u64>) -> Option<u64> {
    if limit == Some(UNBOUNDED) { None } else { Defaults::chosen().memory.of(host_memory()) }
}

/// Bytes of memory of the host.
pub(crate) fn host_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_they_are_written() {
        for (text, bound, of_a_gib) in [
            ("50%", Bound::Percent(50), Some((1 << 30) / 100 * 50)),
            ("100%", Bound::Percent(100), Some((1 << 30) / 100 * 100)),
            ("256m", Bound::Bytes(256 << 20), Some(256 << 20)),
            ("4t", Bound::Bytes(4 << 40), Some(1 << 30)),
            ("unlimited", Bound::Unlimited, None),
        ] {
            assert_eq!(Bound::parse(text), Some(bound), "{text}");
            assert_eq!(Bound::parse(&bound.to_string()), Some(bound), "{text}");
            assert_eq!(bound.of(1 << 30), of_a_gib, "{text}");
        }
        for text in ["", "0", "1m", "0%", "101%", "-1%", "50 %", "8mib", "99999999999t", "much"] {
            assert_eq!(Bound::parse(text), None, "{text}");
        }
        assert_eq!(Bound::Percent(1).of(64 << 20), Some(LEAST_MEMORY));
    }
}
