//! Networks of domains (docs/services.md).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use doppel_spec::{NetworkRate, NetworkRule, PortMapping, RuleDirection};

/// A network: domains that are on it reach each other, by address and by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VirtualNetwork {
    /// Its name.
    pub name: String,
    /// When it was made, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// Key-value pairs for the user's own use.
    pub labels: BTreeMap<String, String>,
    /// Nothing goes out of it to the outside, or comes in from there.
    pub internal: bool,
    /// A domain made it by its name: it goes with the last domain that is on it.
    pub transient: bool,
    /// Ids of domains that are on it, running or not.
    pub used_by: Vec<String>,
    /// Its subnets, out of which domains on it have their addresses; without one they have those of 10.88.0.0/16 and
    /// fd88:d0bb:e1::/48.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<NetworkSubnet>,
    /// Addresses out of these, by the domain's id; a domain keeps them while it is stopped.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
}

/// A subnet of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkSubnet {
    /// As `ADDRESS/BITS`. It must not overlap with those of the owner's other networks, nor with a network of the host's own.
    pub subnet: String,
    /// Domains that ask for no address have one of these; of all of the subnet if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_range: Option<String>,
    /// The host, as domains of the network see it: what 10.88.0.1 is everywhere. The first address if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub gateway: Option<IpAddr>,
}

/// `POST /v1/networks`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateNetwork {
    /// Its name, in small letters from then on. One that domains have made by its name stays from then on.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    pub name: String,
    /// Key-value pairs for the user's own use.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Nothing goes out of it to the outside, or comes in from there: a domain reaches the outside, and has published ports, if
    /// one of its networks is not internal.
    #[serde(default)]
    pub internal: bool,
    /// Its subnets: one of IPv4 and one of IPv6 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 2)]
    pub subnets: Vec<NetworkSubnet>,
}

/// `DELETE /v1/networks/{name}`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct RemoveNetwork {
    /// One that is not there is no error.
    pub force: bool,
}

/// `POST /v1/networks/prune`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct NetworkPruneOptions {
    /// Only with this label: `key` or `key=value`; commas separate several, all of which must be there.
    pub label: Option<String>,
}

/// What `POST /v1/networks/prune` removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkPruneReport {
    /// Names of networks that no domain was on.
    pub removed: Vec<String>,
}

/// `POST /v1/networks/{name}/connect`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectNetwork {
    /// Name or id of the domain that is to be on it.
    pub domain: String,
    /// Further names by which others of this network find it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub aliases: Vec<String>,
    /// Its address there, out of the network's subnet of IPv4; the lowest free one if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ip4: Option<Ipv4Addr>,
    /// The same of IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ip6: Option<Ipv6Addr>,
}

/// `POST /v1/networks/{name}/disconnect`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DisconnectNetwork {
    /// Name or id of the domain that is not to be on it any more.
    pub domain: String,
    /// One that is not on it is no error.
    #[serde(default)]
    pub force: bool,
}

/// Other rules and rates for a domain. `rules` and `allow` are in place of all it had of both, and what they forbid ends; with
/// `rate`, `weight` or `guarantee` alone they stay as they are.
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
    /// As in `Network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub weight: Option<u32>,
    /// As in `Network`; 0: none any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<u64>,
}

impl UpdateNetwork {
    /// Whether its rules are to stay as they are: something else is to change, and none are given.
    #[must_use]
    pub fn keeps_rules(&self) -> bool {
        let other = self.rate.is_some() || self.weight.is_some() || self.guarantee.is_some();
        other && self.rules.is_none() && self.allow.is_none()
    }
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
    /// The networks it is on; missing if an older keeper has it, which knows of one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<Vec<String>>,
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

/// `GET /v1/network/flows`, and of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct FlowOptions {
    /// At most so many, 1 to 10,000; 1,000 if missing.
    #[param(minimum = 1, maximum = 10000)]
    pub limit: Option<usize>,
    /// `next` of the answer before: those behind it.
    pub after: Option<String>,
}

/// Some flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowList {
    /// By the domain's id, then by its sockets.
    pub flows: Vec<Flow>,
    /// For `after` of the next request; missing: there are no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Peers of datagram sockets that are not told: of one socket the latest 64 are.
    pub left_out: u64,
}

/// A connection, or a pair of addresses that exchange datagrams or echoes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Flow {
    /// The domain's id.
    pub domain: String,
    /// Its name.
    pub name: String,
    /// Of which protocol.
    pub protocol: FlowProtocol,
    /// Who began: the domain (out), or the other end (in).
    pub direction: RuleDirection,
    /// The domain's address and port.
    #[schema(value_type = String)]
    pub local: SocketAddr,
    /// The other end's, as the domain knows it.
    #[schema(value_type = String)]
    pub peer: SocketAddr,
    /// The published port through which it came, as it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub through: Option<SocketAddr>,
    /// The host's address and port from which it leaves; missing if it does not leave the virtual network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub host: Option<SocketAddr>,
    /// How far it is.
    pub state: FlowState,
    /// Bytes of programs' data that the domain has sent.
    pub sent_bytes: u64,
    /// Those it has received.
    pub received_bytes: u64,
    /// For how long it has been there.
    pub age_seconds: f64,
}

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP echo.
    Icmp,
}

/// How far a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowState {
    /// It is being connected.
    Connecting,
    /// Both sides may send.
    Established,
    /// One side has ended.
    HalfClosed,
    /// Both have, or it was closed and what is left is sent.
    Closing,
    /// Of datagrams: something was sent or came.
    Active,
}
