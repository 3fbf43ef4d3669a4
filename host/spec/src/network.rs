//! Its network (docs/services.md).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The network of domains that name none.
pub const DEFAULT_NETWORK: &str = "default";
/// Most networks of a domain.
pub const MOST_NETWORKS: usize = 64;
/// Most further names of a domain, in all of its networks together.
const MOST_ALIASES: usize = 128;

/// What a domain wants of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// What it has beside its own loopback.
    pub kind: NetworkKind,
    /// Which network: those on one reach each other by address and by name, others not at all; `default` if missing. One that is
    /// not there is made, and goes with its last domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    pub name: Option<String>,
    /// All of its networks, in place of `name`: it reaches those who are on one of them. None at all: it reaches nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub networks: Option<Vec<NetworkMembership>>,
    /// Further names by which others of its networks find it; several domains may share one, and are all told then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub aliases: Vec<String>,
    /// Ports of the host that lead to its own.
    pub ports: Vec<PortMapping>,
    /// Of a new domain: those that its image exposes are published too, at any free ports of the host.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub publish_all: bool,
    /// What may go out and come in: the first rule that fits decides. What none fits goes in, and out if it is public.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub rules: Vec<NetworkRule>,
    /// Patterns of what it may connect to, after all `rules`; 10.88.0.1 is the host's loopback.
    #[schema(max_items = 100)]
    pub allow: Vec<String>,
    /// How fast its data goes.
    #[serde(skip_serializing_if = "NetworkRate::is_none")]
    pub rate: NetworkRate,
    /// Its share of the network service's work beside other domains of that service that have some to do, 1 to 10,000; 100 if
    /// missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub weight: Option<u32>,
    /// So many bytes a second, sent and received together, are moved for it before others' are, whatever they weigh; more
    /// than the service can do is guaranteed to nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1024)]
    pub guarantee: Option<u64>,
    /// Who answers its questions about names, as `ADDRESS[:PORT]`; the host's name server if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<String>,
}

/// A network of a domain's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkMembership {
    /// Its name; `default` is that of domains that name none.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    pub name: String,
    /// Further names by which others of this network find the domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub aliases: Vec<String>,
    /// The domain's address there, out of the network's subnet of IPv4; the lowest free one if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ip4: Option<Ipv4Addr>,
    /// The same of IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ip6: Option<Ipv6Addr>,
}

impl Network {
    /// The networks it is on, each with all further names that it has there; networks have small letters.
    #[must_use]
    pub fn memberships(&self) -> Vec<NetworkMembership> {
        if self.kind == NetworkKind::None {
            return Vec::new();
        }
        let named = || {
            let name = self.name.clone().unwrap_or_else(|| DEFAULT_NETWORK.into());
            vec![NetworkMembership { name, ..NetworkMembership::default() }]
        };
        let mut all = self.networks.clone().unwrap_or_else(named);
        for one in &mut all {
            one.name.make_ascii_lowercase();
            let further = self.aliases.iter().filter(|alias| !one.aliases.contains(*alias));
            let further: Vec<String> = further.cloned().collect();
            one.aliases.extend(further);
        }
        all
    }

    /// Refuses what does not go together: the field, and why.
    ///
    /// # Errors
    /// Those.
    pub fn check_networks(&self) -> Result<(), (&'static str, String)> {
        let Some(networks) = &self.networks else { return Ok(()) };
        if self.kind == NetworkKind::None {
            return Err(("networks", "needs `kind` \"nat\"".into()));
        }
        if self.name.is_some() {
            return Err(("networks", "are in place of `name`; give one of both".into()));
        }
        let all = self.memberships();
        if let Some(twice) =
            all.iter().enumerate().find(|(i, one)| all[..*i].iter().any(|o| o.name == one.name))
        {
            return Err(("networks", format!("{:?} is there twice", twice.1.name)));
        }
        let aliases: usize = all.iter().map(|one| one.aliases.len()).sum();
        if aliases > MOST_ALIASES {
            return Err((
                "aliases",
                format!("{aliases} in {} networks; at most {MOST_ALIASES} together", networks.len()),
            ));
        }
        Ok(())
    }
}

/// Most bytes a second of a domain's data beyond its own loopback; as fast as it can if missing. A tenth of a second's bytes, or
/// 64 KiB if that is more, may go at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkRate {
    /// What it sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1024)]
    pub sent: Option<u64>,
    /// What it receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1024)]
    pub received: Option<u64>,
}

impl NetworkRate {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What is to be done with some connections and datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRule {
    /// What is done.
    pub action: RuleAction,
    /// Which way; out if missing.
    #[serde(default)]
    pub direction: RuleDirection,
    /// What it is about: `any`, `ADDRESS[/BITS]`, or outbound `NAME` or `*.NAME`; then `:PORT` or `:FIRST-LAST` (outbound of
    /// the other end, inbound of the domain); then `/tcp`, `/udp` or `/icmp` (no port). `any` and names open nothing that is private.
    pub pattern: String,
    /// An event (`firewall`) for each connection, and for each datagram that begins a flow or is refused; at most ten a
    /// second of one domain.
    #[serde(default)]
    pub log: bool,
    /// Most new connections and flows of datagrams a second; those beyond are denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub rate: Option<u32>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    /// Lets it through.
    Allow,
    /// Refuses connections, drops datagrams.
    Deny,
}

/// Which way a rule looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleDirection {
    /// What the domain connects or sends to.
    #[default]
    Out,
    /// Who connects or sends to it.
    In,
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
