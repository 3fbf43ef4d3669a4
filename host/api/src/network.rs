//! Networks of domains (docs/services.md).

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use doppel_spec::{NetworkRate, NetworkRule, PortMapping};

/// Other rules and rates for a domain. `rules` and `allow` are in place of all it had of both, and what they forbid ends; with
/// `rate` alone they stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateNetwork {
    /// As in `Network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 100)]
    pub rules: Option<Vec<NetworkRule>>,
    /// As in `Network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 100)]
    pub allow: Option<Vec<String>>,
    /// As in `Network`, in place of both there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<NetworkRate>,
}

/// Where a running domain is in its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attached {
    /// Its IPv4 address.
    #[schema(value_type = String)]
    pub ip4: Ipv4Addr,
    /// Its IPv6 address.
    #[schema(value_type = String)]
    pub ip6: Ipv6Addr,
    /// Its published ports, with the host's address and port of each.
    pub ports: Vec<PortMapping>,
}

/// What a domain sent and received beyond its own loopback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkStats {
    /// What it sent.
    pub sent: TrafficStats,
    /// What it received.
    pub received: TrafficStats,
}

/// One direction of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficStats {
    /// Bytes of programs' data.
    pub bytes: u64,
    /// Datagrams, and pieces of streams as the host moved them.
    pub packets: u64,
    /// Connections made (sent: by the domain), and pairs of addresses that began to exchange datagrams.
    pub flows: u64,
    /// Connections and datagrams refused by a rule, and datagrams for which there was no room.
    pub drops: u64,
}
