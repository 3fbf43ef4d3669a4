//! Running domains: one or many, looked after until they have ended.

pub mod domain;
pub mod fleet;
pub mod foreground;
pub mod outcome;
pub mod reaper;
pub mod state;
pub mod workers;
