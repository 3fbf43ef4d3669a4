//! Verbs about the host and this program.

pub mod debug;
pub mod doctor;
pub mod manual;
