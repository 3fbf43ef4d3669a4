//! What all service domains have in common (docs/design.md §7, VirtuOS §3-4).
//!
//! Key types: [`Channel`], a service domain's end of the memory file it shares with one guest kernel; [`Pace`], which says
//! whether to look again or to sleep; [`Hibernated`], the supervisor's look at a channel whose domain sleeps on disk; [`Heartbeat`] and
//! [`Watchdog`], by which a service domain that hangs is found and killed; [`Program`] and [`confine`], how one is started and what is left to it.
//! Boundary: everything in a channel is an allegation of the domain; what breaks the protocol is [`Broken`], and the
//! caller gives the channel up, which concerns that domain only.
#![forbid(unsafe_code)]

mod born;
mod channel;
mod heartbeat;
mod hibernated;
mod load;
mod pace;
mod packet;
mod process;
#[cfg(test)]
mod tests;
mod watchdog;

pub use born::{Born, check_bell, check_memory, socket_number, take};
pub use channel::{Channel, epoch, make};
pub use doppel_ring::Broken;
pub use heartbeat::Heartbeat;
pub use hibernated::Hibernated;
pub use load::Load;
pub use pace::{Pace, may_poll};
pub use packet::{DESCRIPTORS, Packet, receive_packet, receive_some, send_packet};
pub use process::{Group, Groups, Process, Program, Usage, confine, confine_with};
pub use watchdog::{Calls, Watchdog};

/// Says something on standard error, where the log of whoever keeps the service is. A full disk is no reason to end.
pub fn say(what: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "doppel: {what}");
}
