//! Running domains: one or many, looked after until they have ended.

pub mod domain;
pub mod exit;
pub mod fleet;
pub mod foreground;
pub mod key;
pub mod outcome;
pub mod reaper;
pub mod rounds;
pub mod state;
pub mod takeover;
pub mod workers;
