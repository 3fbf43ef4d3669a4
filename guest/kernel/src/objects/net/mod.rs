//! Sockets.
//!
//! Key types: [`Socket`] (an open socket, the `FileOps`), [`SocketOps`] (what a protocol does), [`Common`]
//! (options, error and wait queues every socket has). Protocols: [`unix`] (AF_UNIX), [`inet`] (TCP and UDP over
//! loopback), [`netlink`] (NETLINK_ROUTE, read-only, about [`interfaces`]). Boundary: calls.rs decodes
//! system calls and copies names and control data; protocols see decoded addresses, `Input` and `Output`.
//! Lock order: a protocol's socket lock → wait queue; two sockets' locks are never held together except where
//! a module's head says so.

pub mod common;
pub mod consts;
pub mod errqueue;
pub mod filter;
pub mod inet;
pub mod interfaces;
pub mod ioctl;
pub(crate) mod msg;
pub mod netlink;
pub(crate) mod options;
pub mod outside;
pub mod own;
mod recverr;
pub mod socket;
pub mod unix;

pub use common::Common;
pub use socket::{Received, SendMsg, Socket, SocketOps};
