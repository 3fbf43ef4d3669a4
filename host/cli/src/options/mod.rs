//! Options that several verbs have, and what they stand for.

pub mod block_io;
pub mod defaults;
pub mod kind;
pub mod network;
pub mod pull;
pub mod rates;
pub mod resources;
pub mod rules;
pub mod values;
