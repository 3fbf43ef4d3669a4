//! Names: what domains ask, what they were told, who answers.

pub mod directory;
pub mod dns;
pub mod membership;
pub mod resolved;
pub mod resolver;
pub mod subnet;
