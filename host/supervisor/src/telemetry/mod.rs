//! What is counted and written down: accounts, stages, events, the audit log.

pub mod accounting;
pub mod audit;
pub mod events;
mod flows;
pub mod histogram;
pub mod stages;
