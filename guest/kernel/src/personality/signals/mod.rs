//! System calls on signals.

pub mod actions;
pub mod kill;
