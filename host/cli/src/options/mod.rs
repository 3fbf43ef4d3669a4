//! Options that several verbs have, and what they stand for.

pub mod defaults;
pub mod files;
pub mod kind;
pub mod mounts;
pub mod network;
pub mod pull;
pub mod rates;
pub mod rules;
pub mod storage;
pub mod values;
