//! Connections and flows of datagrams that domains have (docs/services.md).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use doppel_spec::RuleDirection;

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
