//! What people read: tables, bars, times, tips.

pub mod bars;
pub mod format;
pub mod lines;
pub mod out;
pub mod time;
pub mod tips;
