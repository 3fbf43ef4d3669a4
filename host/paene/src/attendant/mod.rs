//! The process that has a container and speaks with the host.

pub mod confined;
pub mod container;
pub mod groups;
pub mod host;
pub mod run;
pub mod session;
pub mod signals;
