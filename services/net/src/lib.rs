//! The network service domain: executes sockets of domains on its host's TCP/IP (docs/services.md).
//!
//! Key types: [`Engine`] (all clients of one shard, on one thread), [`Settings`] (what the supervisor says of a
//! client), [`Rules`] (the virtual firewall-router's). Folders:
//! - `channel`: one domain's channel and sockets (`client`), and what it may take (`quota`, `room`, `share`).
//! - `flow`: bytes and datagrams between a channel and sockets of the host, where an address leads (`route`), who calls from
//!   outside (`published`).
//! - `names`: what domains ask, what they were told, who answers.
//! - `rules`: what is allowed, rules at work (`policy`), the host's own addresses (`locals`), what is counted (`ledger`).
//! - `service`: the process: events, fairness, what concerns two clients (`engine`), orders (`serve`), whose turn it is
//!   (`turns`), what waits while others need the CPUs (`burden`, `pressure`), what clients leave (`reclaim`).
//! - `manager`: the supervisor's side: service domains (`shard`) and what they have from it (`resources`), who is where
//!   (`placement`), what is written down for a successor (`records`) and how that goes on (`adopt`).
//!
//! Boundary: a domain's channel is hostile. Requests are decoded from copies, numbers are checked, work in a turn is
//! bounded by a budget, and a broken channel costs its own domain the network and nobody else anything.
#![forbid(unsafe_code)]

mod channel;
mod flow;
mod manager;
mod names;
mod rules;
mod service;

pub use channel::client::{Published, Settings};
pub use channel::quota::{Quota, Quotas};
pub use flow::live::{FLOWS, FlowPage, FlowState, LiveFlow};
pub use manager::records::Part;
pub use manager::{Attachment, Endpoint, EndpointSpec, Health, Manager, Port, SERVICE, SHARDS, Sleeper};
pub use names::membership::{Membership, Memberships};
pub use names::subnet::{ServedAddresses, Space, Subnet};
pub use rules::host::{HostAction, HostDirection, HostRule};
pub use rules::ledger::{Counts, Ledger, Sum, Traffic};
pub use rules::logs::{Bells, Logs};
pub use rules::policy::{Line, Log};
pub use rules::text::{PortRange, resolver};
pub use rules::{Action, Direction, MOST_WEIGHT, Pattern, Protocol, Rates, Rule, Rules, Transport, WEIGHT};
pub use service::engine::{ClientId, Engine};
pub use service::serve::serve;

#[cfg(test)]
mod tests;
