//! Verbs that do their work themselves, for hosts without a supervisor.

pub mod clones;
pub mod copy;
pub mod exec;
pub mod freeze;
pub mod frozen;
pub mod hibernate;
pub mod image;
pub mod registry;
pub mod run;
pub mod stats;
