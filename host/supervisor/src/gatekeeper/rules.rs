//! The gatekeeper's rules: data of the configuration (`[gatekeeper]`), and what they say of a domain.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use doppel_api::Residency;
use doppel_domain::Bound;
use doppel_spec::values;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest time span of a rule, in seconds.
const LONGEST: f64 = 31_536_000.0;
/// The share of an owner that has none of its own.
const SHARE: u32 = 100;

/// Memory that stays free: none, bytes, or a share of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// So many bytes.
    Bytes(u64),
    /// Hundredths of the host's memory.
    Percent(u8),
}

impl Reserve {
    /// In bytes, on a host with so many.
    #[must_use]
    pub fn of(self, host: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(n) => host / 100 * u64::from(n),
        }
    }
}

impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(n) => write!(f, "{n}"),
            Self::Percent(n) => write!(f, "{n}%"),
        }
    }
}

impl Serialize for Reserve {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reserve {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let percent = text.strip_suffix('%').map(|n| n.parse().ok().filter(|n| *n <= 100).map(Self::Percent));
        percent.unwrap_or_else(|| values::size(&text).ok().map(Self::Bytes)).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "{text:?} is neither a size as \"2g\" nor a share of the host's memory as \"5%\""
            ))
        })
    }
}

/// What the configuration says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Seconds without work after which a domain hibernates that has no rule of its own; 0: never.
    pub hibernate_after_seconds: f64,
    /// CPU time in hundredths of a CPU up to which a domain counts as idle.
    pub idle_cpu_percent: f64,
    /// Packets, sent or received, in the whole time up to which it does.
    pub idle_packets: u64,
    /// Memory of the host that stays free.
    pub reserve: Reserve,
    /// Memory that all domains together may use.
    pub budget: Bound,
    /// Hundredths of the last ten seconds in which some tasks of the host waited for memory (PSI), from which on it is short
    /// while less than a quarter of the host's is available; 0: not looked at.
    pub pressure_percent: f64,
    /// When memory is short, a domain that has worked within so many seconds is left alone.
    pub quiet_seconds: f64,
    /// How long a domain that has just woken is left alone; twice as long each time that it had slept for less than that.
    pub protect_seconds: f64,
    /// At most so long.
    pub protect_most_seconds: f64,
    /// A domain whose next timer is due within so many seconds does not hibernate.
    pub least_sleep_seconds: f64,
    /// How long a start or wake that somebody asks for waits for memory.
    pub wait_seconds: f64,
    /// Starts and wakes that wait at most; more are refused.
    pub waiting: usize,
    /// From which time on the first that waits lets none behind it pass that needs less.
    pub patience_seconds: f64,
    /// Memory that a new domain or clone is taken to need that reserves none.
    pub start_bytes: Reserve,
    /// Weights of owners, by name; 100 for all others.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<String, u32>,
    /// Rules for domains of an owner or with a label. The first that says something counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// A rule for some domains.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Those of this owner, as `uid 1000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Those with this label: `key` or `key=value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What they have that say nothing themselves.
    #[serde(flatten)]
    pub residency: Residency,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            hibernate_after_seconds: 0.0,
            idle_cpu_percent: 0.1,
            idle_packets: 0,
            reserve: Reserve::Percent(2),
            budget: Bound::Unlimited,
            pressure_percent: 20.0,
            quiet_seconds: 5.0,
            protect_seconds: 10.0,
            protect_most_seconds: 600.0,
            least_sleep_seconds: 10.0,
            wait_seconds: 300.0,
            waiting: 10_000,
            patience_seconds: 10.0,
            start_bytes: Reserve::Bytes(4 << 20),
            shares: BTreeMap::new(),
            rules: Vec::new(),
        }
    }
}

fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// A domain as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Whose it is.
    pub owner: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// What it asks for itself.
    pub asked: &'a Residency,
}

/// What counts for a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// It hibernates after so long without work.
    pub hibernate_after: Option<Duration>,
    /// Higher ones start first and hibernate last.
    pub priority: i32,
    /// It never hibernates by itself.
    pub pinned: bool,
    /// A start of it waits at most so long.
    pub wait: Duration,
}

impl Rule {
    fn is_for(&self, subject: Subject<'_>) -> bool {
        let labelled = |label: &str| match label.split_once('=') {
            Some((key, value)) => subject.labels.get(key).is_some_and(|v| v == value),
            None => subject.labels.contains_key(label),
        };
        self.owner.as_deref().is_none_or(|owner| owner == subject.owner)
            && self.label.as_deref().is_none_or(labelled)
    }
}

impl Rules {
    /// What counts for a domain: what it asks for, the rules in their order, what is said for all.
    #[must_use]
    pub fn of(&self, subject: Subject<'_>) -> Policy {
        let rules = self.rules.iter().filter(|rule| rule.is_for(subject));
        let all = rules.fold(subject.asked.clone(), |said, rule| said.over(&rule.residency));
        let pinned = all.pinned.unwrap_or(false);
        let after = all.hibernate_after_seconds.unwrap_or(self.hibernate_after_seconds);
        Policy {
            hibernate_after: (after > 0.0 && !pinned).then(|| span(after)),
            priority: all.priority.unwrap_or(0),
            pinned,
            wait: span(all.wait_seconds.unwrap_or(self.wait_seconds)),
        }
    }

    /// An owner's weight.
    #[must_use]
    pub fn share(&self, owner: &str) -> u32 {
        self.shares.get(owner).copied().unwrap_or(SHARE)
    }

    pub(crate) fn quiet(&self) -> Duration {
        span(self.quiet_seconds)
    }

    pub(crate) fn least_sleep(&self) -> Duration {
        span(self.least_sleep_seconds)
    }

    pub(crate) fn patience(&self) -> Duration {
        span(self.patience_seconds)
    }

    /// First and longest protection of a domain that has woken.
    pub(crate) fn protection(&self) -> (Duration, Duration) {
        (span(self.protect_seconds), span(self.protect_most_seconds))
    }

    /// Refuses nonsense, naming the entry.
    ///
    /// # Errors
    /// Which entry, and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let spans = [
            ("hibernate_after_seconds", self.hibernate_after_seconds),
            ("quiet_seconds", self.quiet_seconds),
            ("protect_seconds", self.protect_seconds),
            ("protect_most_seconds", self.protect_most_seconds),
            ("least_sleep_seconds", self.least_sleep_seconds),
            ("wait_seconds", self.wait_seconds),
            ("patience_seconds", self.patience_seconds),
        ];
        if let Some((name, _)) = spans.into_iter().find(|(_, n)| !(0.0..=LONGEST).contains(n)) {
            return Err(format!("{name}: must be between 0 and {LONGEST} seconds"));
        }
        let percents =
            [("idle_cpu_percent", self.idle_cpu_percent), ("pressure_percent", self.pressure_percent)];
        if let Some((name, _)) = percents.into_iter().find(|(_, n)| !(0.0..=100.0).contains(n)) {
            return Err(format!("{name}: must be between 0 and 100"));
        }
        if !(1..=1_000_000).contains(&self.waiting) {
            return Err("waiting: must be between 1 and 1,000,000".into());
        }
        if let Some((owner, _)) = self.shares.iter().find(|(_, n)| !(1..=10_000).contains(*n)) {
            return Err(format!("shares: {owner:?}: must be between 1 and 10,000"));
        }
        for (at, rule) in self.rules.iter().enumerate() {
            if rule.owner.is_none() && rule.label.is_none() {
                return Err(format!("rules: number {} names neither an owner nor a label", at + 1));
            }
            doppel_api::schema::check(&rule.residency)
                .map_err(|problem| format!("rules: number {}: {}", at + 1, problem.detail))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let text = r#"
            hibernate_after_seconds = 600
            reserve = "1g"
            [shares]
            "uid 7" = 300
            [[rules]]
            label = "tier=batch"
            hibernate_after_seconds = 60
            priority = -5
            [[rules]]
            owner = "uid 7"
            priority = 9
            pinned = true
        "#;
        let rules: Rules = toml::from_str(text).expect("rules");
        rules.check().expect("they make sense");
        rules
    }

    fn policy(owner: &str, label: Option<&str>, asked: Residency) -> Policy {
        let labels = label.map(|l| ("tier".to_owned(), l.to_owned())).into_iter().collect();
        rules().of(Subject { owner, labels: &labels, asked: &asked })
    }

    #[test]
    fn what_a_domain_asks_for_counts_before_rules_and_these_in_their_order() {
        let after = |p: Policy| p.hibernate_after.map(|d| d.as_secs());
        assert_eq!(after(policy("uid 1", None, Residency::default())), Some(600));
        let batch = policy("uid 7", Some("batch"), Residency::default());
        assert_eq!((batch.priority, batch.pinned, after(batch)), (-5, true, None));
        let own =
            Residency { hibernate_after_seconds: Some(1.0), pinned: Some(false), ..Residency::default() };
        let own = policy("uid 7", Some("other"), own);
        assert_eq!((own.priority, own.pinned, after(own)), (9, false, Some(1)));
        let never = Residency { hibernate_after_seconds: Some(0.0), ..Residency::default() };
        assert_eq!(after(policy("uid 1", Some("batch"), never)), None);
        assert_eq!((rules().share("uid 7"), rules().share("uid 8")), (300, SHARE));
        assert_eq!(rules().reserve.of(9), 1 << 30);
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, says) in [
            ("reserve = 'much'", "much"),
            ("reserve = '101%'", "101%"),
            ("quiet_seconds = -1", "quiet_seconds"),
            ("pressure_percent = 101", "pressure_percent"),
            ("waiting = 0", "waiting"),
            ("[shares]\n'uid 1' = 0", "uid 1"),
            ("[[rules]]\npriority = 1", "number 1"),
            ("[[rules]]\nowner = 'uid 1'\npriority = 2000", "priority"),
            ("[[rules]]\nowner = 'uid 1'\ncolour = 1", "colour"),
        ] {
            let error = match toml::from_str::<Rules>(text) {
                Err(error) => error.to_string(),
                Ok(rules) => rules.check().expect_err(text),
            };
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
