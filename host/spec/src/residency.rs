//! When a domain's memory may go to disk, and whose goes first.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[cfg(feature = "cli")]
use crate::values;

/// When a domain hibernates by itself, and its place among others when memory is short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct Residency {
    /// Seconds without work after which it hibernates by itself; 0: never. If missing, the rules of `[gatekeeper]` in `doppeld.toml`
    /// count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 31536000)]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "hibernate-after", value_name = "TIME", value_parser = values::seconds,
            help = "Hibernate it when it has been idle for so long, as 10m; 0: never. It wakes when somebody wants something of it"
        )
    )]
    pub hibernate_after_seconds: Option<f64>,
    /// Who waits for memory, and who gives it, -1000 to 1000: when it is short, higher ones start and wake first and hibernate last.
    /// If missing, the rules count, or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -1000, maximum = 1000)]
    #[cfg_attr(
        feature = "cli",
        arg(
            long,
            value_name = "N",
            allow_negative_numbers = true,
            help = "When memory is short, domains of higher priority start first and hibernate last, -1000 to 1000"
        )
    )]
    pub priority: Option<i32>,
    /// It never hibernates unless somebody asks for it. If missing, the rules count, or false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "pin", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
            help = "Keep it in memory: it never hibernates by itself"
        )
    )]
    pub pinned: Option<bool>,
    /// Most seconds that a start or wake which somebody asks for waits for memory; 0: it does not wait. If missing, what `[gatekeeper]`
    /// says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 31536000)]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "memory-wait", value_name = "TIME", value_parser = values::seconds,
            help = "How long its start may wait for memory, as 30s; 0: not at all"
        )
    )]
    pub wait_seconds: Option<f64>,
}

impl Residency {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, and of `others` what is missing here.
    #[must_use]
    pub fn over(&self, others: &Self) -> Self {
        Self {
            hibernate_after_seconds: self.hibernate_after_seconds.or(others.hibernate_after_seconds),
            priority: self.priority.or(others.priority),
            pinned: self.pinned.or(others.pinned),
            wait_seconds: self.wait_seconds.or(others.wait_seconds),
        }
    }
}
