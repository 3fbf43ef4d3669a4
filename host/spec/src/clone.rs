//! Clones of a frozen image as they are asked for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{CreateDomain, Network, Residency, Resources};

/// `POST /v1/frozen/{name}/clone`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct CloneFrozen {
    /// How many; 1 if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub count: Option<u32>,
    /// Name; several get -1, -2... behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the clone; several get -1, -2... behind it"))]
    pub name: Option<String>,
    /// Lines of `/sys/doppel/args`.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub args: Vec<String>,
    /// Program to run beside what was frozen; the clone ends with it.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub command: Vec<String>,
    /// Its environment.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub env: BTreeMap<String, String>,
    /// Keep standard input open.
    #[cfg_attr(
        feature = "cli",
        arg(short = 'i', long = "interactive", help = "Connect standard input; only for one clone")
    )]
    pub stdin: bool,
    /// Remove each clone when it ends.
    #[cfg_attr(
        feature = "cli",
        arg(long = "rm", requires = "detach", help = "With --detach: remove each clone when it ends")
    )]
    pub auto_remove: bool,
    /// Key-value pairs for the caller's own use.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub labels: BTreeMap<String, String>,
    /// Limits other than those it was frozen with.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub resources: Resources,
    /// The network of each clone: a new one, whatever was frozen. Several clones cannot have the same port of the host:
    /// leave `host_port` out.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub network: Network,
    /// Seconds after which it is stopped whatever it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub timeout_seconds: Option<u32>,
    /// When each hibernates by itself, and its place among others when memory is short.
    #[serde(skip_serializing_if = "Residency::is_empty")]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub residency: Residency,
}

impl CloneFrozen {
    /// What each clone is as a domain: how many there are, and what they are told, is beside that.
    #[must_use]
    pub fn domain(&self) -> CreateDomain {
        let Self {
            count: _,
            args: _,
            name,
            command,
            env,
            stdin,
            auto_remove,
            labels,
            resources,
            network,
            timeout_seconds,
            residency,
        } = self.clone();
        CreateDomain {
            name,
            command,
            env,
            stdin,
            auto_remove,
            labels,
            resources,
            network,
            timeout_seconds,
            residency,
            ..CreateDomain::default()
        }
    }
}
