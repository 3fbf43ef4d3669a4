//! The service domain's process: all clients of a shard on one thread.

pub mod burden;
pub mod engine;
pub mod life;
pub mod pressure;
pub mod reclaim;
pub mod serve;
pub mod turns;
