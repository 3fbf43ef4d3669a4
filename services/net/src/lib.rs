//! The network service domain: executes sockets of domains on its host's TCP/IP (docs/services.md).
//!
//! Key types: [`Engine`] (all clients of one shard, on one thread), [`Settings`] (what the supervisor says of a
//! client), [`Rules`] (the virtual firewall-router's). Modules: `client` (one domain's channel and sockets), `stream`
//! (bytes between a channel and a host socket), `datagram` (likewise), `published` (who calls from outside), `way` (where an
//! address leads), `locals` (which addresses are the host's own), `ledger` (what is counted), `policy` (rules at work), `share` (what a turn may cost, and how fast bytes may go), `turns` (whose turn it is), `burden` (what waits while others need the CPUs), `quota` (what a domain may have at once), `remains` (what one leaves), `manager` (the supervisor's side), `shard` (one service domain of it), `gear` (what that has from it), `kept` (what is written down of it for a successor), `adopt` (how that goes on), `life` (who needs a service domain that goes on), `book` (who is where), `engine` (events, fairness, what concerns two clients).
//!
//! Boundary: a domain's channel is hostile. Requests are decoded from copies, numbers are checked, work in a turn is
//! bounded by a budget, and a broken channel costs its own domain the network and nobody else anything.
#![forbid(unsafe_code)]

mod address;
mod adopt;
mod book;
mod bucket;
mod burden;
mod busy;
mod client;
mod datagram;
mod directory;
mod dns;
mod engine;
mod gear;
mod kept;
mod ledger;
mod life;
mod locals;
mod logs;
mod manager;
mod names;
mod options;
mod outlet;
mod policy;
mod published;
mod quota;
mod recent;
mod remains;
mod resolver;
mod room;
mod rules;
mod serve;
mod shard;
mod share;
mod strain;
mod stream;
mod text;
mod turns;
mod urgent;
mod way;

pub use client::{Published, Settings};
pub use engine::{ClientId, Engine};
pub use kept::Part;
pub use ledger::{Counts, Ledger, Sum, Traffic};
pub use logs::{Bells, Logs};
pub use manager::{Attachment, Health, Manager, Place, Port, SERVICE, SHARDS, Sleeper, Wanted};
pub use policy::{Line, Log};
pub use quota::{Quota, Quotas};
pub use rules::{Action, Direction, Pattern, Protocol, Rates, Rule, Rules, Transport};
pub use serve::serve;
pub use text::resolver;

#[cfg(test)]
mod tests;
