//! Networks of domains (docs/services.md).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a domain wants of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// What it has beside its own loopback.
    pub kind: NetworkKind,
    /// Ports of the host that lead to its own.
    pub ports: Vec<PortMapping>,
    /// What it may connect to although it is not public, as `ADDRESS[/BITS][:PORT]`; 10.88.0.1 is the host's loopback.
    pub allow: Vec<String>,
    /// Who answers its questions about names, as `ADDRESS[:PORT]`; the host's name server if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<String>,
}

/// Kind of network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkKind {
    /// Only its own loopback.
    #[default]
    None,
    /// Addresses of its own; outbound connections come from the host's.
    Nat,
}

/// A port of the host that leads to one of the domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortMapping {
    /// The domain's port.
    #[schema(minimum = 1)]
    pub port: u16,
    /// The host's port; any free one if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub host_port: Option<u16>,
    /// The host's address; all of its IPv4 addresses if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub host_address: Option<IpAddr>,
    /// TCP if missing.
    #[serde(default)]
    pub protocol: Protocol,
}

/// What travels through a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
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
