//! Verbs that do their work themselves, for hosts without a supervisor.

pub mod changes;
pub mod clones;
pub mod copy;
pub mod disk;
pub mod exec;
pub mod freeze;
pub mod frozen;
pub mod frozen_registry;
pub mod hibernate;
pub mod image;
pub mod layer;
pub mod registry;
pub mod run;
pub mod stats;
