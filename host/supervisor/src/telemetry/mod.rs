//! What is counted and written down: accounts, stages, events, the audit log.

pub mod accounting;
pub mod audit;
pub mod events;
pub mod histogram;
pub mod stages;
