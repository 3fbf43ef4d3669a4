//! What the host and this kernel say to each other through the control area.

pub mod channel;
pub mod console;
pub mod control;
pub mod network;
pub mod session;
pub mod storage;
