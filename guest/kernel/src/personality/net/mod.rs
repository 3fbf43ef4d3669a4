//! System calls on sockets.

pub mod options;
pub mod sockets;
