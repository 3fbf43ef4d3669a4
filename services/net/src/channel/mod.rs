//! One domain at the service: its channel and sockets, and what it may take of the host.

pub mod bucket;
pub mod client;
pub mod quota;
pub mod ready;
pub mod room;
pub mod share;
